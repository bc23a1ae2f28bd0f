"""Compare a checkpoint and its converted file: build both models, run them under probes, and return a verdict; or
compare a recording with the file, without the checkpoint.

A recording is planned from its names and shapes, and their hashes show that the variables are the recorded tensors.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import numpy as np

from wdport.base.errors import (
    IncompleteError,
    InputError,
    InternalError,
    MisfitError,
    WdportError,
    require_paths,
    require_values,
)
from wdport.base.options import PathText
from wdport.checkpoint import Checkpoint
from wdport.compare.activities import Say, seconds_spent, spent_on
from wdport.compare.findings import Finding, notice
from wdport.compare.measure import same_bits
from wdport.conversion.data_units import read_units
from wdport.conversion.load import Converted, open_converted
from wdport.conversion.prepare import Prepared, Settings, planned
from wdport.families.registry import own_model
from wdport.families.roles import OwnFamily
from wdport.files.inputs import Snapshot
from wdport.mapping.plan import Move
from wdport.mapping.table import choose_table, load_table
from wdport.models.interface import Array, Resolved
from wdport.parity.file_pair import both_files, contradictions
from wdport.parity.fresh.gate import fresh_verdict
from wdport.parity.model_pair import (
    Weights,
    converted_weights,
    file_variables,
    unequal,
    unequal_fills,
    unequal_variables,
    unrounded,
    user_reference,
)
from wdport.parity.recorded_reference import Recording, Replay, open_recording
from wdport.parity.resumed_gate import open_resumed
from wdport.parity.run_gates import EVERYTHING, Setup, VerifySubject, run_gates
from wdport.parity.verdict_api import Verdict
from wdport.parity.verify_options import Pair, require_repro
from wdport.recording.cases import battery
from wdport.recording.user_model import Tensors


class Described:
    """A checkpoint as described by its recording: names and shapes, but no values."""

    def __init__(self, recording: Recording) -> None:
        self.path = recording.path
        self.tensors: Mapping[str, Tensors] = recording.tensors

    def read(self, name: str) -> NoReturn:
        raise InternalError((self.path, name), "a recording holds no weights", "report this")


def recorded_plan(recording: Recording, converted: Converted, mapping: PathText | None) -> Prepared:
    """The plan from the recording's names and shapes; raises :class:`MisfitError` if they do not fit."""
    names, family = recording.tensors, converted.family
    try:
        table = load_table(Path(mapping)) if mapping else choose_table(names, recording.path)
    except MisfitError as error:
        if mapping:
            raise
        what = f"is a recording of another model than {converted.path.name}, a {family.name}"
        raise MisfitError(recording.path, what, "give the recording of its PyTorch model") from error
    if table.family != family.name:
        what = f"is a {family.name}, the recording is of a {table.family}"
        raise MisfitError(converted.path, what, "give the recording of the checkpoint that this file was made from")
    # What is dropped need not be in the model, and so not in its recording.
    table = replace(table, rows=tuple(row if row.drop is None else replace(row, optional=True) for row in table.rows))
    shapes, variables = {name: tensor.shape for name, tensor in names.items()}, converted.variables
    plan, constants = planned(recording.path, table, family, converted.config, shapes, variables)
    resolved = Resolved(converted.config, converted.origins)
    checkpoint = cast(Checkpoint, Described(recording))
    return Prepared(checkpoint, table, family, resolved, plan, constants, (), variables)


def recorded_weights(prepared: Prepared, recording: Recording, converted: Converted) -> Weights:
    """The converted file's variables, and the tensors that are combined with others into one variable: moved tensors
    are recovered from the variables, those of arithmetic are read from the recording. Raises :class:`IncompleteError`
    if these were not recorded."""
    variables, tensors = file_variables(prepared, converted), dict[str, Array]()
    for move in prepared.plan.moves:
        if not move.exact:
            tensors |= {name: _value(recording, move, name) for name in move.sources}
        elif len(move.sources) > 1:
            tensors |= zip(move.sources, move.invert([variables[name] for name in move.targets]), strict=True)
    return unrounded(prepared, Weights("converted weights", tensors, variables))


def _value(recording: Recording, move: Move, name: str) -> Array:
    if name not in recording.values:
        what = f"does not hold {name}, which line {move.line} of the table calculates with"
        fix = f"record it again with `--mapping`, or python -m recording --keep '{name}'"
        raise IncompleteError(recording.path, what, fix)
    if _digest(recording.values[name]) != recording.tensors[name].sha256:
        raise InputError(recording.path, f"holds a {name} that does not match its hash", "record it again")
    return recording.values[name]


def unequal_to_recording(prepared: Prepared, recording: Recording, weights: Weights) -> list[Finding]:
    """Findings on variables that are not bitwise equal to the recorded tensors; raises :class:`MisfitError` if no
    matrix is equal.

    Results of arithmetic are recomputed from the recorded values. Tables that were recomputed because they were stored
    in 16 bits have no hash and are checked by constants (A').
    """
    variables = weights.variables
    tensors = recording.tensors
    hashed = [m for m in prepared.plan.moves if m.exact and all(tensors[name].sha256 is not None for name in m.sources)]
    equal: dict[str, bool] = {}
    for move in hashed:
        sources = zip(move.sources, move.invert([variables[name] for name in move.targets]), strict=True)
        equal |= {name: _digest(source) == tensors[name].sha256 for name, source in sources}
    matrices = [name for name in equal if len(recording.tensors[name].shape) > 1]
    # Vectors such as zero biases are equal in any two checkpoints; a matrix is not.
    if matrices and not any(equal[name] for name in matrices):
        fix = "give the recording of the checkpoint that this file was made from"
        raise MisfitError(recording.path, f"is of another checkpoint: none of {len(matrices)} matrices is equal", fix)
    wrong = [target for move in hashed if not all(map(equal.get, move.sources)) for target in move.targets]
    for move in prepared.plan.moves:
        if not move.exact:
            arrays = move.apply([weights.tensors[name] for name in move.sources])
            wrong += [name for name, array in zip(move.targets, arrays, strict=True)
                      if not same_bits(array, variables[name])]  # fmt: skip
    return [*(unequal(name) for name in wrong), *unequal_fills(prepared.plan, weights)]


def _digest(array: Array) -> str:
    """SHA-256 of a tensor, as the recorder computes it."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype=np.float32).tobytes()).hexdigest()


def verify(
    checkpoint: PathText,
    converted: PathText,
    *,
    mapping: PathText | None = None,
    key: str | None = None,
    reference: str | None = None,
    full: bool = False,
    repro: PathText | None = None,
    say: Say | None = None,
    model: str | None = None,
    inputs: Sequence[str] = (),
    config: PathText | None = None,
    values: Mapping[str, str] | None = None,
    norm_stats: PathText | None = None,
    data: PathText | None = None,
    transform: str | None = None,
    resume: PathText | None = None,
    schedule: str | None = None,
    train: bool = False,
    seed: int = 0,
    cases: int = 0,
    fresh: bool = False,
) -> Verdict:
    """Run a converted model and its checkpoint, and compare them layer by layer.

    Args:
        checkpoint: the PyTorch file that was converted.
        converted: the file that :func:`wdport.convert` wrote.
        mapping: the mapping table, if you used your own.
        key: dotted key of the state_dict, if the file holds more than one.
        reference: ``module:function`` that builds your own PyTorch model, in place of wdport's; see
            :mod:`wdport.recording`.
        full: also compare bfloat16, gradients, training mode, optimizer steps and trajectories, and run the port both
            eagerly and compiled.
        repro: a folder for the first faulty layer, if there is one, and a script that runs only that layer.
        say: called with a short message at every step, for a progress display.
        model: ``module:function`` that builds your own Keras model, if the table does not name it.
        inputs: the inputs of your own model, such as "x: b 3 48 48", if the table does not state them.
        config: the training configuration to compare with that of the converted file; needed if it was passed to the
            conversion and Keras has saved the file since. The same applies to ``values`` and ``norm_stats``, see
            :func:`wdport.convert`.
        values: individual configuration values as text.
        norm_stats: mean and standard deviation per feature.
        data: the training data, from which the mean and standard deviation per feature are computed or, for some
            transforms, the statistics of every window.
        transform: how windows were made from the data.
        resume: the optimizer's file from ``convert(..., with_optimizer=True)``: five training steps from its state are
            compared.
        schedule: ``module:class`` of the learning-rate schedule in the checkpoint, if its fields do not show which
            PyTorch class it belongs to; requires ``resume``.
        train: also compare losses, gradients and running statistics of both models in training mode, and which weights
            are trained, as ``full`` does.
        seed: seed for the random inputs; the same seed produces the same inputs.
        cases: number of additional random inputs.
        fresh: also compare whole outputs on inputs and weights drawn at run time, with the port alone in a process
            without PyTorch. In that case, neither model's code runs in the calling process.

    Returns:
        A verdict, which is true if the two models agree. Its ``complete`` is False if something could not be compared.

    Raises:
        WdportError: a file is invalid, the checkpoint and the converted file do not belong together, torch is missing,
            or the comparison cannot run at all, for example because the mapping table names a layer that the model
            lacks.
    """
    files = {"mapping": mapping, "config": config, "norm_stats": norm_stats, "data": data, "resume": resume}
    require_paths(*files, checkpoint=checkpoint, converted=converted, **files)
    require_values(values)
    pair = Pair(converted, checkpoint, mapping=mapping, model=model, inputs=tuple(inputs), reference=reference,
                config=config, values=tuple((values or {}).items()), norm_stats=norm_stats, data=data,
                transform=transform, key=key, full=full, resume=resume is not None, schedule=schedule,
                train=train, seed=seed, cases=cases, fresh=fresh)  # fmt: skip
    pair.require_consistent()
    require_repro(repro)
    run = fresh_verdict if pair.fresh else compare_files
    return run(pair, say, repro, Path(resume) if resume is not None else None)


def compare_files(
    pair: Pair, say: Say | None = None, repro: PathText | None = None, resume: Path | None = None,
    setup: Setup = EVERYTHING,
) -> Verdict:  # fmt: skip
    """What :func:`verify` does for a ``pair`` with a checkpoint; ``resume`` is the optimizer's file."""
    started, say, user_family = time.monotonic(), say or (lambda _: None), pair.own
    spent, units = seconds_spent(), read_units(pair.norm_stats, pair.data, pair.transform)
    settings = Settings(pair.config, dict(pair.values), units=None if units is None else units.flags())
    with ExitStack() as stack:
        with spent_on("reading files"):
            files = stack.enter_context(both_files(pair, user_family))
            prepared, opened = files.prepared, files.converted
            say("reading both files")
            weights = converted_weights(prepared, opened)
        unequal = [
            *unequal_variables(prepared, weights, opened.rounded),
            *contradictions(prepared, opened, user_family, settings),
        ]
        # Only what is the same by both ways of the conversion's own code.
        subjects = {finding.subject for finding in unequal}
        findings = () if units is None else units.differences(opened.config.to_dict())
        unequal += [finding for finding in findings if finding.subject not in subjects or not finding.subject]
        say("building four models")
        reference = setup.reference
        if files.target:
            with spent_on("building models"):
                reference = user_reference(
                    files.target, prepared, pair.key, weights.tensors if opened.rounded else None
                )
        resumed = None if resume is None else open_resumed(prepared, resume, weights.variables, pair.schedule)
        probes = setup.probes or battery(pair.seed, pair.cases)
        subject = VerifySubject(prepared, opened, weights, unequal, files.digests, started, reference, spent, resumed,
                                pair.train, probes)  # fmt: skip
        verdict = run_gates(subject, say, pair.full, repro, setup)

    def again(inputs: tuple[str, ...]) -> Verdict:
        return compare_files(replace(pair, inputs=inputs), say, None, resume, setup)

    return in_some_layout(verdict, user_family, again)


def in_some_layout(
    verdict: Verdict, user_family: OwnFamily | None, again: Callable[[tuple[str, ...]], Verdict]
) -> Verdict:
    """The verdict, or, if sizes do not tell the layout of inputs and more agrees with another one, that of ``again``
    with these inputs, with a notice. Another layout in which a model does not run, such as at its longest inputs, is
    none."""
    other = user_family.other_layout() if user_family is not None and verdict.exit_code == 1 else ()
    if user_family is None or not other:
        return verdict
    moved = [new for new, old in zip(other, user_family.inputs, strict=True) if new != old]
    state = f"the sizes of {', '.join(text.partition(':')[0] for text in moved)} do not tell the layout"
    inputs = "; ".join(f"'{text}'" for text in moved)
    try:
        second = again(other)
    except WdportError:
        return verdict
    sentence = f"{state}; if channels are second in PyTorch and last in Keras, write {inputs}"
    if second or _findings(second) < _findings(verdict):
        agrees = "both models agree" if second else "more agrees"
        verdict, sentence = second, f"{state}: {agrees} with {inputs}, which is used; state it so"
    first, *others = verdict.gates
    return replace(verdict, gates=(replace(first, facts=(*first.facts, notice(sentence))), *others))


def _findings(verdict: Verdict) -> int:
    return sum(not finding.notice for gate in verdict.gates for finding in gate.findings)


def verify_recording(
    converted: PathText,
    recording: PathText,
    *,
    mapping: PathText | None = None,
    repro: PathText | None = None,
    say: Say | None = None,
    model: str | None = None,
    inputs: Sequence[str] = (),
) -> Verdict:
    """Compare a converted model with a recording of its PyTorch model; needs neither torch nor the checkpoint.

    Args:
        converted: the file that :func:`wdport.convert` wrote.
        recording: the file that `wdport record` wrote.
        mapping: the mapping table, if you used your own.
        repro: a folder for the first faulty layer, as for :func:`verify`.
        say: called with a short message at every step, for a progress display.
        model: as for :func:`verify`.
        inputs: as for :func:`verify`.

    Returns:
        A verdict, which is true if the two models agree. Its ``complete`` is False if something could not be compared.

    Raises:
        WdportError: a file is invalid, the recording and the converted file do not belong together, or the comparison
            cannot run at all, for example because the recording lacks an input.
    """
    require_paths("mapping", converted=converted, recording=recording, mapping=mapping)
    started = time.monotonic()
    say = say or (lambda _: None)
    # The snapshot is of the recording before it is read: no hash is reported if it changes later.
    user_family = own_model(mapping, model, None, inputs)
    opened, snapshot = open_converted(converted, user_family), Snapshot(Path(recording))
    if opened.rounded:
        what = f"was rounded to {', '.join(sorted(set(opened.rounded.values())))}, and the recording is not"
        raise MisfitError(opened.path, what, "verify it against the checkpoint, or a float32 conversion")
    say("reading both files")
    with open_recording(Path(recording)) as recorded:
        prepared = recorded_plan(recorded, opened, mapping)
        weights = recorded_weights(prepared, recorded, opened)
        unequal = unequal_to_recording(prepared, recorded, weights)
        digests = {"recording": snapshot.sha256, "converted": opened.snapshot.sha256}
        replay = Replay(recorded)
        if user_family is not None:
            replay.compare_sizes(prepared.family.signature(prepared.config))
        subject = VerifySubject(prepared, opened, weights, unequal, digests, started, replay)
        verdict = run_gates(subject, say, repro=repro)

    def again(other: tuple[str, ...]) -> Verdict:
        return verify_recording(converted, recording, mapping=mapping, say=say, model=model, inputs=other)

    return in_some_layout(verdict, user_family, again)
