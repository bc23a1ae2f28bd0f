"""A twin with one edit of its source, as a module of its own; and the order in which its layers are called."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import keras
import numpy as np

from wdport.compare.probe import Probe
from wdport.keras_runtime import children, exact_float64, layers_by_path
from wdport.model import Array, KerasModel
from wdport.recorder import Call, layer_of

from .corpus import PAIRS
from .running import Sides
from .seeded import Fault

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
    return _order(sides.model, calls_of(sides.model, sides.laid_out()))


def _order(model: KerasModel, calls: dict[str, Call]) -> Order:
    layers = layers_by_path(model)
    called = [layer_of(call) for call in calls]
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
