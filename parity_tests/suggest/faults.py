"""``python -m parity_tests.suggest.faults``: what ``wdport map suggest`` says of twins with a seeded fault.

The first disagreement must be named within one layer of the fault, and the hyper-parameter where one is wrong. Edits
that are no faults must still give a table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import jax
import keras
import numpy as np
import torch

from wdport.base.errors import WdportError
from wdport.compare.probe import Probe
from wdport.mapping.table import load_table
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_runtime import children, exact_float64, layers_by_path
from wdport.recording.calls import Call, layer_of

from .corpus import PAIRS
from .running import BOUND, Sides
from .scoring import UNCOUNTED, Answer, fates_of, run_command
from .seeded import FAULTS, HARMLESS, Fault

HEAD = ("fault", "pair", "at", "exit", "last agrees", "first unlike", "named", "cause", "seconds", "told")
Ask = Callable[[str, str, Sequence[str], Path], Answer]
NEEDED, CAUSES = 20, 15
"""How many faults the demand is about, and of how many the hyper-parameter."""


@dataclass(frozen=True)
class Located:
    """What was said of an edited twin.

    Attributes:
        fault: the edit.
        code: the exit code.
        first: the Keras layer that was named as the first that does not agree.
        last: the last that agrees, if it was told.
        named: whether the first is within one layer of the edit; of a harmless one, whether there is a table under
            which the models compute the same.
        cause: whether a cause names the hyper-parameter.
        causes: what was said.
        error: relative error of the models under the suggested table.
        seconds: wall time.
    """

    fault: Fault
    code: int
    first: str
    last: str
    named: bool
    cause: bool
    causes: tuple[str, ...]
    error: float
    seconds: float


def locate(fault: Fault, ask: Ask = run_command) -> Located:
    """Ask about a twin with this edit."""
    pair = PAIRS[fault.pair]
    with edited(fault) as model, TemporaryDirectory(prefix="suggest-") as folder:
        sides = Sides(pair, model)
        answer = ask(pair.reference("honest"), model, pair.inputs, Path(folder, "suggested.yaml"))
        error = error_under(answer, sides)
        equal = error <= BOUND and answer.code == 0
        unlike = answer.first_unlike or {}
        first, last = path_of(unlike), path_of(answer.document.get("last_agrees"))
        if fault.harmless:
            named = equal
        else:
            named = bool(first) and order_of(sides).near(first, fault.at) and answer.code != 0
            named = named or (fault.either and equal)
    return Located(fault, answer.code, first, last, named, names_cause(fault, answer.causes), answer.causes, error,
                   answer.seconds)  # fmt: skip


def names_cause(fault: Fault, causes: Sequence[str]) -> bool:
    """Whether one sentence holds all words of the fault's."""
    return bool(fault.words) and any(
        all(any(word in text.lower() for word in group.split("|")) for group in fault.words) for text in causes
    )


def error_under(answer: Answer, sides: Sides) -> float:
    """The error of the models with what the table says; infinite where there is none, or half of one."""
    if answer.table is None:
        return float("inf")
    shapes = {name: tuple(array.shape) for name, array in sides.state.items()}
    counted = {name: array for name, array in sides.state.items() if not name.endswith(UNCOUNTED)}
    try:
        return sides.error(fates_of(load_table(answer.table), shapes, sides.variables, {}).apply(counted))
    except (WdportError, KeyError, ValueError):
        return float("inf")


def path_of(told: Any) -> str:
    """The Keras layer of ``{"keras": ..., "torch": ...}`` or of a text, without the number of its call."""
    path = told.get("keras") if isinstance(told, Mapping) else told
    return str(path or "").split("#")[0].strip("/")


@click.command()
@click.option("--pair", "chosen", multiple=True, type=click.Choice(list(PAIRS)), help="Faults of this pair alone.")
def command(chosen: Sequence[str]) -> None:
    """Seeded faults in twins: is the first disagreement named, and the hyper-parameter?"""
    torch.set_num_threads(1)
    jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[2] / ".jax_cache"))
    asked = [fault for fault in (*FAULTS, *HARMLESS) if not chosen or fault.pair in chosen]
    click.echo("  ".join(HEAD))
    found = []
    for fault in asked:
        found.append(locate(fault))
        click.echo("  ".join(_cells(found[-1])))
    click.echo(f"\n{summary(found)}")
    sys.exit(0 if all(each.named for each in found) else 1)


def summary(found: Sequence[Located]) -> str:
    """The two counts, and what became of the harmless edits."""
    faults = [each for each in found if not each.fault.harmless]
    settable = [each for each in faults if each.fault.words]
    named, caused = sum(each.named for each in faults), sum(each.cause for each in settable)
    harmless = [each for each in found if each.fault.harmless]
    return (
        f"{len(faults)} faults: {named} named within one layer, the hyper-parameter of {caused} of {len(settable)}"
        f" (wanted: all, and {CAUSES} of {NEEDED}); {sum(each.named for each in harmless)} of {len(harmless)} harmless"
        " edits have a table under which the models are equal"
    )


def _cells(each: Located) -> list[str]:
    return [each.fault.name, each.fault.pair, each.fault.at or "harmless", str(each.code), each.last or "-",
            each.first or "-", "yes" if each.named else "NO", "yes" if each.cause else "-", f"{each.seconds:.1f}",
            " / ".join(each.causes)[:200]]  # fmt: skip


GLUE = ("ZeroPadding", "Cropping", "Reshape", "Flatten", "Permute", "Dropout", "Identity", "Masking")
"""Layers that only arrange values: none of them stands between neighbours."""

LOOPS = (keras.layers.RNN, keras.layers.Bidirectional)
"""What runs in a loop cannot be looked at, so these are layers without layers inside."""


@contextmanager
def edited(fault: Fault) -> Iterator[str]:
    """``module:build`` of the twin with the edit; the module exists inside."""
    source = PAIRS[fault.pair].twin.read_text(encoding="utf-8")
    if source.count(fault.before) != 1:
        raise ValueError(f"{fault.name}: {fault.before!r} stands {source.count(fault.before)} times in {fault.pair}")
    name = "faulty_" + re.sub(r"\W+", "_", f"{fault.pair} {fault.name}").lower()
    with TemporaryDirectory(prefix="suggest-") as folder:
        Path(folder, f"{name}.py").write_text(source.replace(fault.before, fault.after), encoding="utf-8")
        sys.path.insert(0, folder)
        try:
            yield f"{name}:build"
        finally:
            sys.path.remove(folder)
            sys.modules.pop(name, None)


@dataclass(frozen=True)
class Order:
    """The layers without layers inside, in the order of their calls, those of :data:`GLUE` left out."""

    called: Sequence[str]
    glue: frozenset[str]

    def places(self, path: str) -> list[int]:
        """Where a layer is called, or the layers inside it; a layer of glue is where the next one is."""
        found, place = [], 0
        for each in self.called:
            if each == path or each.startswith(f"{path}/"):
                found.append(place)
            place += each not in self.glue
        return found

    def near(self, path: str, fault: str) -> bool:
        """Whether a layer is the fault's, or within one layer of a call of it."""
        named, at = self.places(path), self.places(fault)
        if not named or not at:
            return path == fault
        first = named[0]
        return any(abs(first - place) <= 1 for place in at) and named[-1] - first <= max(at) - min(at) + 1


def calls_of(model: KerasModel, given: Sequence[Array]) -> dict[str, Call]:
    """Every call of a layer without layers inside, in order, by path; run step by step."""
    layers = layers_by_path(model)
    loops = tuple(f"{path}/" for path, layer in layers.items() if isinstance(layer, LOOPS))
    paths = [path for path, layer in layers.items() if f"{path}/" in loops or not children(layer)]
    paths = [path for path in paths if not any(path.startswith(loop) for loop in loops)]
    with jax.enable_x64(True), exact_float64():
        return Probe(model, paths, eager=True).record(tuple(given))[1]


def order_of(sides: Sides) -> Order:
    """The order of a built model's layers."""
    layers = layers_by_path(sides.model)
    called = [layer_of(call) for call in calls_of(sides.model, sides.laid_out())]
    glue = {path for path in called if type(layers[path]).__name__.startswith(GLUE)}
    return Order(called, frozenset(glue))


def first_difference(right: Sides, wrong: Sides) -> str:
    """The first layer of the edited twin that is given or makes something else, both with weights that are there;
    empty where none does."""
    ours, theirs = (calls_of(each.model, each.laid_out()) for each in (right, wrong))
    for call, made in theirs.items():
        before = ours.get(call)
        if before is None or not _alike(made.inputs, before.inputs) or not _alike(made.outputs, before.outputs):
            return layer_of(call)
    return ""


def _alike(made: object, before: object) -> bool:
    ours, theirs = (list(map(np.asarray, jax.tree.leaves(each))) for each in (made, before))
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(ours, theirs, strict=True)
    )


if __name__ == "__main__":
    command()
