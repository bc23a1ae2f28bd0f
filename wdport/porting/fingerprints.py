"""Prints: properties of an array that do not change when it is transposed, reshaped, padded or repeated; and the Keras
model whose layers have them.

Two models store the same activations in different layouts: channels first or last, flattened or not, padded before a
convolution or in it. Their sorted values, without zeros and repetitions, are equal, and with random weights no two
activations share them. Integers and booleans are compared directly.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from wdport.compare.calls import layer_of
from wdport.compare.pairs import is_keras
from wdport.models.interface import Array, KerasModel, KerasVariable
from wdport.models.keras_runtime import layers_by_path, variables_by_path

NEAR = 1e-9
"""Tolerance for equal values, relative to the largest: float64 rounding through a deep network is smaller, the effect
of a wrong epsilon is larger."""

ZERO = 1e-13
"""Values smaller than this share of the largest count as zeros with rounding errors."""

T = TypeVar("T")


@dataclass(frozen=True)
class Print:
    """The print of an array; compare with :meth:`same`."""

    array: Array = field(repr=False)

    @cached_property
    def exact(self) -> bool:
        """Whether the values are not floating-point."""
        return self.array.dtype.kind != "f"

    @cached_property
    def _values(self) -> Array:
        """The values that are neither zero nor infinite, flat."""
        flat = np.asarray(self.array, np.float64).ravel()
        # Masked logits are infinite.
        flat = flat[np.isfinite(flat)]
        size = np.abs(flat)
        nonzero: Array = flat[size > ZERO * size.max(initial=0.0)]
        return nonzero

    @property
    def count(self) -> int:
        """The number of these values. Prints are equal if only this differs, such as those of an image and of the same
        image with every pixel repeated."""
        return len(self._values)

    @cached_property
    def extremes(self) -> tuple[float, float]:
        values = self._values
        return (float(values.max()), float(values.min())) if values.size else (0.0, 0.0)

    @cached_property
    def size(self) -> float:
        return max(map(abs, self.extremes))

    @property
    def empty(self) -> bool:
        """Whether there are only zeros, which are uninformative."""
        return self.size == 0.0

    @cached_property
    def distinct(self) -> Array:
        """The sorted values, without near duplicates."""
        values = np.sort(self._values)
        # Padding repeats values, and rounding may make them differ in the last bits.
        apart: Array = values[np.diff(values, prepend=-np.inf) > NEAR * self.size]
        return apart

    def same(self, other: Print) -> bool:
        """Whether the two arrays hold the same values."""
        if self.exact or other.exact:
            return self.exact and other.exact and _repeats(self.array.ravel(), other.array.ravel())
        within = NEAR * max(self.size, other.size)
        # Cheap, and enough for most pairs: the full comparison sorts.
        if any(abs(a - b) > within for a, b in zip(self.extremes, other.extremes, strict=True)):
            return False
        return self.distinct.shape == other.distinct.shape and bool(
            np.all(np.abs(self.distinct - other.distinct) <= within)
        )


def _repeats(first: Array, second: Array) -> bool:
    """Whether one of the two is a repetition of the other."""
    # Masks and positions may be repeated for every head or sample.
    short, long = sorted((first, second), key=len)
    return bool(len(short)) and len(long) % len(short) == 0 and np.array_equal(np.resize(short, long.shape), long)


class Prints(Generic[T]):
    """A lookup table from prints to objects."""

    def __init__(self) -> None:
        self._sorted: list[tuple[float, int]] = []
        self._held: list[tuple[Print, T]] = []

    def add(self, key: Print, value: T) -> None:
        """Add a print; empty ones are uninformative and ignored."""
        if key.empty:
            return
        # By the largest value: a look-up compares only prints that are near in it.
        insort(self._sorted, (key.extremes[0], len(self._held)))
        self._held.append((key, value))

    def find(self, key: Print) -> Iterator[T]:
        """The objects of all equal prints, in the order in which they were added."""
        if key.empty:
            return
        # Twice the tolerance of `same`, whose size may be that of the other print.
        within = 2 * NEAR * key.size
        position = bisect_left(self._sorted, (key.extremes[0] - within, -1))
        near = []
        while position < len(self._sorted) and self._sorted[position][0] <= key.extremes[0] + within:
            near.append(self._sorted[position][1])
            position += 1
        # In the order of the run: of equal values the first one is meant.
        for place in sorted(near):
            stored, value = self._held[place]
            if stored.same(key):
                yield value


_OPAQUE = ("RNN", "Bidirectional", "TimeDistributed")
"""Classes of ``keras.layers`` that call the layers below them in a loop, where the calls are not visible."""


class KerasSide:
    """The Keras model: its layers that can be watched, and the variables below each."""

    def __init__(self, model: KerasModel) -> None:
        self.model = model
        every = layers_by_path(model)
        opaque = tuple(f"{path}/" for path, layer in every.items() if is_keras(layer, *_OPAQUE))
        # Layers below an opaque one are not watched: their variables are filled as those of the outer layer.
        self.layers = {path: layer for path, layer in every.items() if not path.startswith(opaque)}
        self.variables: dict[str, KerasVariable] = {
            path: variable for path, variable in variables_by_path(model).items() if "float" in str(variable.dtype)
        }

    def variables_below(self, path: str) -> dict[str, KerasVariable]:
        """The variables of a layer and of the layers in it."""
        return {name: variable for name, variable in self.variables.items() if not path or name.startswith(f"{path}/")}

    def direct_variables(self, path: str) -> dict[str, KerasVariable]:
        """The variables of a layer that do not belong to a watched layer in it."""
        inside = tuple(f"{layer}/" for layer in self.layers if not path or layer.startswith(f"{path}/"))
        return {name: variable for name, variable in self.variables_below(path).items() if not name.startswith(inside)}


@dataclass
class InputCall:
    """A call of a Keras layer: its inputs and outputs; ``names`` are the arguments that hold its inputs."""

    call: str
    inputs: list[Array]
    outputs: list[Array] = field(default_factory=list)
    names: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return layer_of(self.call)
