"""In which cases, and in which samples of them, a layer differs: a fault at other sizes than the stated ones, or with a
few values only, is hard to see otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from wdport.compare.calls import Case
from wdport.recording.cases import HIDDEN, UNUSUAL
from wdport.recording.inputs import Input, given

SAMPLES: Final[Mapping[str, str]] = {
    "zeros": "zeros",
    "constant": "one value",
    "large": "large values",
    "missing": "missing values",
    "whole": "multiples of 1/8",
    "sparse": "many zeros",
    "small": "small values",
    "far": "values far from 0",
    HIDDEN: "masks without visible tokens",
}
"""The values of a sample, by the name of its kind in a case."""


def other_sizes(inputs: Sequence[Input], shapes: Sequence[tuple[int, ...]]) -> list[str]:
    """The sizes in shapes of the port's inputs that are not the stated ones, such as "t = 512"."""
    sizes: dict[str, None] = {}
    for spec, shape in zip(given(inputs, len(shapes)), shapes, strict=False):
        for axis, size in zip(spec.keras_axes, shape, strict=False):
            if axis in spec.sizes and size != spec.sizes[axis]:
                sizes[f"{spec.name} of size {shape}" if axis.startswith("_") else f"{axis} = {size}"] = None
    return list(sizes)


class Sightings:
    """``first`` is the case of ordinary values, of the stated sizes."""

    def __init__(self, first: Case) -> None:
        self._first = first
        self._places: dict[str, dict[str, None]] = {}
        self._everywhere: set[str] = set()

    def add(self, name: str, case: Case, sizes: Sequence[str], samples: Collection[int]) -> None:
        """A layer differs in a case, whose inputs have these ``sizes``, see :func:`other_sizes`; ``samples`` are those
        in which it does, if known."""
        kinds = {case.extremes[index] for index in samples} if case.extremes and case.batched else {*case.extremes}
        if case == self._first:
            self._everywhere.add(name)
        elif kinds and "" not in kinds and (kinds != set(case.extremes) or not case.batched):
            words = [SAMPLES[kind] for kind in case.extremes if kind in kinds]
            self._note(name, f"in samples of {', '.join(dict.fromkeys(words))}")
        elif case.batch == 1 != self._first.batch:
            self._note(name, f"with {', '.join(sizes) or 'a batch of one'}")
        elif case.scale != self._first.scale:
            self._note(name, f"with values {case.scale / self._first.scale:g} times as large")
        elif case.random_biases:
            self._note(name, "with random biases")
        else:
            self._everywhere.add(name)

    def _note(self, name: str, place: str) -> None:
        self._places.setdefault(name, {})[place] = None

    def only(self, name: str) -> str:
        """The only inputs with which a layer differs, such as "only in samples of zeros"; "" if there are others."""
        places = list(self._places.get(name, ()))
        # Inputs without a batch axis have a case of each kind of unusual values, with random biases.
        unusual = {f"in samples of {SAMPLES[kind]}" for kind in UNUSUAL}
        if unusual <= {*places}:
            places = [*(place for place in places if place not in unusual), "with random biases"]
        if name in self._everywhere or not places:
            return ""
        return f"only {', '.join(places[:-1])}{' and ' if places[1:] else ''}{places[-1]}"
