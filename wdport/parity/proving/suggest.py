"""Find the mapping table of two running models, or the place where they differ, by runs of the Keras model.

The table is a guess until :func:`wdport.parity.proving.proof.prove` runs verify on it, with other random weights and
other inputs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, UnsetType

from wdport.base.errors import MisfitError, UsageError
from wdport.base.shared_types import Count, about
from wdport.checkpoint import open_checkpoint
from wdport.compare.activities import Say
from wdport.compare.reference import translated
from wdport.families.custom import CustomConfig, CustomFamily
from wdport.models.interface import Array, Document
from wdport.parity.verdict import VerdictDocument
from wdport.porting.candidate_rows import Fields, table_of_rows
from wdport.porting.fingerprints import KerasSide
from wdport.porting.layer_units import Unit, units_of
from wdport.porting.matching import Assigning, Decision, RunOutcome, next_guess
from wdport.porting.rows import suggested_rows
from wdport.porting.table_text import Doubt, Place, TableSection, fold, fold_doubts, sections, table_text
from wdport.porting.torch_run import BATCH, SEED, TorchRun, build_module, draw_inputs, fill, run_torch
from wdport.recording.cases import Case
from wdport.recording.fitted_inputs import call_by_name, with_keys
from wdport.recording.runs import module_names
from wdport.recording.user_code import find_function, takes_path

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict
    from wdport.porting.divergence import Divergence


@dataclass(frozen=True)
class SuggestionDocument:
    """What ``wdport map suggest --json`` prints."""

    found: Annotated[bool, about("Whether a table was found for the whole model.")]
    proved: Annotated[bool, about("Whether `verify` proved the table.")]
    layers: Annotated[Count, about("Number of layers that were matched.")]
    passes: Annotated[Count, about("Number of runs of the Keras model.")]
    seconds: Annotated[
        float, about("Duration of the search in seconds, without building the models and without the proof.")
    ]
    forward_seconds: Annotated[float, about(
        "Duration of one run of both models, in seconds.")]  # fmt: skip
    doubts: Annotated[Sequence[str], about("Uncertainties about the table, one sentence each.")]
    notes: Annotated[Sequence[str], about("Notes for the reader, one sentence each.")]
    rows: Annotated[Sequence[Mapping[str, object]], about(
        "Rows of the table, in the form that a mapping table uses under `layers`, `tensors`, `tied` and "
        "`filled`.")]  # fmt: skip
    failure: Annotated[str, about(
        "Why the table is not proved; empty if it is proved, or if no proof was attempted.")]  # fmt: skip
    verdict: Annotated[VerdictDocument | None, about("The proof; null if there is none.")]
    last_alike: Annotated[Place | None, about("The last layer at which the models agree; null if a table was found.")]
    first_unlike: Annotated[
        Place | None, about("The first layer at which the models do not agree; null if a table was found.")
    ]
    causes: Annotated[Sequence[str], about("Probable causes of the difference, the most likely first.")]
    what: Annotated[str | UnsetType, about(
        "What is wrong at the first layer at which the models do not agree.")] = UNSET  # fmt: skip
    wanted: Annotated[str | UnsetType, about(
        "What the input or output of this layer should be; empty if unknown.")] = UNSET  # fmt: skip


MOST_PASSES = 20
"""Runs of the Keras model before the search gives up."""


@dataclass
class Search:
    """The result of the runs: the last one if it succeeded, or else the one that got furthest."""

    outcome: RunOutcome
    passes: int
    exhausted: bool = True


def search(
    side: KerasSide, run: TorchRun, units: Sequence[Unit], inputs: Sequence[Array],
    say: Say | None = None, max_passes: int = MOST_PASSES,
) -> Search:  # fmt: skip
    """Run the model, and after every dead end run it again with the last unsettled guess changed."""
    prefix: list[Decision] = []
    best: RunOutcome | None = None
    # In calls of layers, since retries inside a run cost as much as runs.
    budget = max_passes * max(len(side.layers), 1)
    for count in range(1, max_passes + 1):
        if say:
            say(f"run {count}: {len(prefix)} guesses reused")
        running = Assigning(side, run, units, prefix, budget)
        outcome = running.go(inputs)
        budget = running.budget
        if outcome.dead_end is None:
            return Search(outcome, count)
        if best is None or _progress(outcome) > _progress(best):
            best = outcome
        guesses = next_guess(outcome.decisions)
        if guesses is None or budget <= 0:
            return Search(best, count, guesses is None)
        prefix = guesses
    assert best is not None
    return Search(best, max_passes, exhausted=False)


def _progress(outcome: RunOutcome) -> tuple[bool, int]:
    deepest = outcome.deepest or outcome
    # A run that reached the outputs has filled every layer that it calls.
    return (deepest.dead_end is not None and deepest.dead_end.reason == "end", len(deepest.matched))


@dataclass(frozen=True)
class Models:
    """The two functions that build the models, the models' inputs, and the functions' arguments."""

    reference: str
    model: str
    inputs: tuple[str, ...] = ()
    arguments: Document = field(default_factory=dict)
    checkpoint: str | None = None
    outputs: tuple[str, ...] = ()


@dataclass
class Suggestion:
    """The result of a search.

    Attributes:
        models: the two models.
        rows: of the table, before folding.
        parts: the table's rows, folded, in sections.
        doubts: unproved guesses, in words.
        stop: where the two models differ, if no table was found.
        passes: runs of the Keras model.
        seconds: duration of the search, without building the models; ``forward`` is that of one run of both models.
        verdict: the verdict of verify, if it ran.
        notes: parts that could not be examined.
    """

    models: Models
    rows: tuple[Fields, ...] = ()
    parts: tuple[TableSection, ...] = ()
    doubts: tuple[str, ...] = ()
    stop: Divergence | None = None
    passes: int = 0
    exhausted: bool = True
    seconds: float = 0.0
    forward: float = 0.0
    verdict: Verdict | None = None
    failure: str = ""
    notes: tuple[str, ...] = ()
    layers: int = 0
    method: str = "found by running both models with the same random weights"
    title: str = "Suggested by wdport map suggest"

    @property
    def proved(self) -> bool:
        """Whether verify found the two models equal under the table."""
        return bool(self.verdict)

    def text(self) -> str:
        models = self.models
        head = [f"{self.title}: {self.method}."]
        if self.verdict is not None:
            gates = ", ".join(gate.title for gate in self.verdict.gates)
            state = "Proved" if self.proved else "NOT proved"
            head.append(f"{state} by wdport verify with other weights and inputs: {gates}.")
        elif self.failure:
            head.append(f"NOT proved: {self.failure}")
        return table_text(
            self.parts,
            models.reference,
            models.model,
            models.inputs,
            tuple(models.arguments),
            head,
            self.doubts,
            models.outputs,
        )


def suggest(models: Models, say: Say | None = None) -> Suggestion:
    """Find the table of two models; raises :class:`WdportError` if one of them cannot be built or run.

    If sizes do not tell the layout of inputs, the table states the one with which it is found."""
    suggestion, other = _search(models, say)
    if suggestion.stop is None or not other:
        return suggestion
    again, _ = _search(replace(models, inputs=other), say)
    note = f"the sizes of the inputs do not tell their layout: also tried {'; '.join(other)}"
    return again if again.stop is None else replace(suggestion, notes=(note, *suggestion.notes))


def _search(models: Models, say: Say | None) -> tuple[Suggestion, tuple[str, ...]]:
    """A search with the inputs as stated, and the inputs with another layout that fits as well."""
    import jax
    import keras  # noqa: F401  before our modules that need it: importing it imports the ports

    from wdport.porting.divergence import divergence_of

    tell = say or (lambda _: None)
    tell("building the models")
    module = build_module(models.reference, models.arguments, models.checkpoint)
    family = family_of(models)
    declared = family.told()
    if not declared:
        raise UsageError("--input", "the models' inputs are not known", "state it, such as `--input 'x: b 3 48 48'`")
    with jax.enable_x64(True):
        config = CustomConfig(models.model, models.inputs, models.arguments)
        model = family.build(config, "float64")
        signature = family.signature(config)
        fill(module, SEED)
        with translated():
            call_by_name(module, declared)
        # Two libraries may compute different values for a query that sees no key.
        case = Case(0, BATCH, 1.0)
        declared = with_keys(declared, module, [case], lambda _, inputs: draw_inputs(inputs))
        drawn = draw_inputs(declared)
        tell("running PyTorch")
        begin = time.perf_counter()
        try:
            run = run_torch(models.reference, module, drawn)
        except MisfitError as error:
            if any("b" in spec.axes for spec in declared):
                raise
            first, axes = declared[0].name, " ".join(models.inputs[0].partition(":")[2].split())
            fix = f"if it takes a batch, state its axis: `--input '{first}: b {axes}'`"
            raise MisfitError(error.where, error.what, fix) from error
        ran = time.perf_counter() - begin
        units = units_of(run)
        side = KerasSide(model)
        begin = time.perf_counter()
        result = search(side, run, units, signature.in_port(drawn), tell)
        seconds = time.perf_counter() - begin
        suggestion = Suggestion(models, passes=result.passes, exhausted=result.exhausted, seconds=seconds,
                                forward=ran + seconds / result.passes, notes=tuple(run.notes),
                                layers=len(result.outcome.matched))  # fmt: skip
        if result.outcome.dead_end is not None:
            suggestion.stop = divergence_of(run, side, units, result.outcome)
            return suggestion, family.other_layout()
        rows, guesses = suggested_rows(run, side, result.outcome, units)
    names, state, variables = module_names(module), list(module.state_dict()), list(side.variables)
    spare = _spare(models.checkpoint, state) if models.checkpoint else []
    doubts = [Doubt(name, "dropped, since only the checkpoint has it, not the PyTorch model") for name in spare]
    suggestion.rows = (*rows, *({"torch": name, "drop": "the PyTorch model does not have it"} for name in spare))
    suggestion.doubts = tuple(fold_doubts([*guesses, *doubts]))
    suggestion.parts = tuple(sections(fold(suggestion.rows, names, [*state, *spare], variables)))
    return suggestion, ()


def _spare(checkpoint: str, state: Sequence[str]) -> list[str]:
    """The tensors of a checkpoint that the model does not have; empty if its names have a prefix, which convert
    removes."""
    with open_checkpoint(Path(checkpoint)) as opened:
        names = list(opened.tensors)
    return [name for name in names if name not in set(state)] if set(state) & set(names) else []


def loads_itself(models: Models) -> bool:
    """Whether the PyTorch function loads the checkpoint itself, so that no other file can replace it."""
    return not models.arguments and takes_path(find_function(models.reference), models.reference)


def family_of(models: Models) -> CustomFamily:
    """The user's models as a family without a table."""
    rows: Sequence[Fields] = [{"torch": "x", "keras": "x", "rule": "identity"}]
    return CustomFamily(replace(table_of_rows(rows), path="--input"), models.model, models.reference, models.inputs)


def suggestion_document(suggestion: Suggestion) -> SuggestionDocument:
    """The table, or the place where the two models differ."""
    stop = suggestion.stop
    return SuggestionDocument(
        found=stop is None,
        proved=suggestion.proved,
        layers=suggestion.layers,
        passes=suggestion.passes,
        seconds=round(suggestion.seconds, 3),
        forward_seconds=round(suggestion.forward, 3),
        doubts=suggestion.doubts,
        notes=suggestion.notes,
        rows=suggestion.rows,
        failure=suggestion.failure,
        verdict=None if suggestion.verdict is None else suggestion.verdict.document(),
        last_alike=None if stop is None else stop.last,
        first_unlike=None if stop is None else stop.first,
        causes=() if stop is None else stop.causes,
        what=UNSET if stop is None else stop.what,
        wanted=UNSET if stop is None else stop.wanted,
    )
