"""Inputs of a network: their text, as in ``--input 'x: b 3 48 48'``, and the values drawn for a case."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import numpy as np

from .cases import CONSTANT, FAR, HIDDEN, LARGE, TINY, UNUSUAL

if TYPE_CHECKING:
    from .shared_types import Array
FEW = 64
"""Up to this number of possible integers, a batch holds as many of them as it has room for."""

ORDINARY = (0.05, 50.0)
"""The range of most positive values."""

EDGES = (1e-6, 1e4)
"""A tiny and a huge positive value."""

Pattern = Callable[[np.random.Generator, int], "Array"]


def _holes(rng: np.random.Generator, size: int) -> Array:
    values = rng.integers(0, 2, size).astype(bool)
    # At least one of each, if there is room.
    values[rng.permutation(size)[:2]] = (True, False)[:size]
    return values


PATTERNS = (
    lambda rng, size: np.arange(size) < rng.integers(1, max(size, 2)),
    _holes,
    lambda rng, size: np.arange(size) >= rng.integers(min(1, size - 1), size),
    lambda rng, size: np.arange(size) == rng.integers(0, size),
    lambda rng, size: np.ones(size, bool),
)
"""Masks of one sample: true up to a random position, at random, from a random position on, at one position, and
everywhere; all but the last leave something out, if there is room."""


def _remove(values: Array, rng: np.random.Generator) -> None:
    """Replace values of one sample by NaN: along its longest axis all those of one position, one at another, and one
    at several in a row."""
    if not values.ndim:
        return
    steps = np.moveaxis(values, int(np.argmax(values.shape)), 0)
    first, *others = rng.permutation(len(steps))[: min(3, max(len(steps) - 1, 1))].tolist()
    steps[first] = np.nan
    for start, count in zip(others, (1, 4)):
        start = min(start, max(len(steps) - count, 0))
        place: tuple[Any, ...] = (slice(start, start + count), *(rng.integers(0, size) for size in steps.shape[1:]))
        steps[place] = np.nan


DISTRIBUTIONS = {
    "normal": (0,),
    "below": (1, 3),
    "from": (3,),
    "steps": (1,),
    "parts": (),
    "mask": (0,),
    "positive": (0,),
}
"""Names of distributions of an input, with the possible numbers of words that follow; all are for "parts"."""


@dataclass(frozen=True)
class Input:
    """One input of a network: ``NAME: AXES [-> AXES] [, DRAW]``, such as ``x: b c=3 h=48 w=48 -> b h w c``.

    ``NAME -> NAME`` are its names in PyTorch and in Keras. ``NAME?`` is an input without which the network also runs: a
    batch of one leaves it out.

    Axes are sizes, with or without a name, names whose size this or another input states, and ``b``, the batch, which
    an input may lack; those after the arrow are the Keras model's. Axes of one name have one size. A size such as
    ``24..512`` is 24, and 512 in a batch of one. DRAW is ``normal`` (the default; magnitudes vary along the first axis
    that is not the batch's), ``below N`` or ``below N from M`` (integers, the first and the last among them),
    ``below NAME`` (integers below the size of that axis, such as the nodes at the ends of edges), ``from LOW to
    HIGH``, ``steps N`` (k/N for k from 0 to N), ``parts 5 5 8`` (normal, with each of these parts of that axis half
    the magnitude of the previous one), ``positive`` (of any magnitude, among them a tiny and a huge number) or
    ``mask`` (true or false along the last axis, in the :data:`PATTERNS`).
    """

    name: str
    axes: tuple[str, ...]
    sizes: Mapping[str, int]
    keras_axes: tuple[str, ...]
    draw: str = "normal"
    numbers: tuple[float, ...] = ()
    alone: Mapping[str, int] = field(default_factory=dict)
    """Other sizes of axes for a batch of one, such as the greatest length that the network takes."""
    ids: tuple[int, ...] = ()
    """Integers that every batch should hold, such as the id of padding."""
    marks: tuple[float, ...] = ()
    """Numbers that unusual samples also hold, such as the mark of a missing value."""
    hides: bool | None = None
    """What a mask has at places that are left out; if known, no mask leaves out everything, so that queries see a key.
    Otherwise, masks have the :data:`PATTERNS`, and the same value everywhere in samples of extreme values."""
    right: bool = False
    """Whether masks only leave out what follows a position, so that a causal query always sees a key."""
    optional: bool = False
    """Whether the network also runs without it."""
    limit: str = ""
    """The axis whose size integers are below."""
    keras_name: str = ""
    """The Keras model's name of it."""

    @property
    def order(self) -> tuple[int, ...]:
        """The place among the PyTorch model's axes of each of the Keras model's; axes of one name are in order."""
        places = [[place for place, other in enumerate(self.axes) if other == axis] for axis in self.keras_axes]
        counts = [self.keras_axes[:index].count(axis) for index, axis in enumerate(self.keras_axes)]
        return tuple(same[count] for same, count in zip(places, counts))

    @property
    def rule(self) -> str:
        """How the axes move, in the notation of a table's rules, which has no name twice."""
        names = [axis + "_" * self.axes[:index].count(axis) for index, axis in enumerate(self.axes)]
        return f"{' '.join(names)} -> {' '.join(names[place] for place in self.order)}"

    @property
    def kind(self) -> str:
        """ "float", "int" or "bool"."""
        return {"below": "int", "mask": "bool"}.get(self.draw, "float")

    @property
    def integers(self) -> range:
        """All integers of ``below``."""
        end, first = map(int, (*self.numbers, 0)[:2])
        return range(first, end)

    @property
    def every(self) -> Array | None:
        """All values, float64 or int64, of a scalar input with a finite list of values; otherwise ``None``."""
        if self.axes != ("b",) or self.draw not in ("steps", "below"):
            return None
        if self.draw == "below":
            return np.array(self.integers)
        return np.arange(self.numbers[0] + 1) / self.numbers[0]

    def shape(self, batch: int) -> tuple[int, ...]:
        """The shape of the PyTorch model's input."""
        sizes = {**self.sizes, **(self.alone if batch == 1 else {}), "b": batch}
        return tuple(sizes[axis] for axis in self.axes)

    def _resolved(self, batch: int) -> Input:
        """The input with the size of the axis that limits its integers."""
        sizes = {**self.sizes, **(self.alone if batch == 1 else {}), "b": batch}
        return replace(self, numbers=(sizes[self.limit], *self.numbers[1:])) if self.limit else self

    def make(self, seed: int, batch: int, scale: float, extremes: Sequence[str] = ()) -> Array:
        """Draw values in float64, int64 or bool; ``scale`` applies to normal ones, ``extremes`` are those of a
        :class:`Case`."""
        # The inputs of a case are independent. crc32, since hash() of a text differs between processes.
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        resolved = self._resolved(batch)
        values = resolved._ordinary(rng, seed, batch, scale)
        if "b" in self.axes:
            samples = np.moveaxis(values, self.axes.index("b"), 0)
        else:  # all samples share it
            samples, extremes = values[np.newaxis], tuple(dict.fromkeys(extremes))
            extremes = extremes if len(extremes) == 1 else ()
        for index, extreme in enumerate(extremes):
            if extreme:
                samples[index] = resolved._extreme(extreme, samples[index], scale, rng)
            if extreme in UNUSUAL and self.marks:
                self._mark(samples[index, ...], index, rng)
        return values

    def _mark(self, sample: Array, index: int, rng: np.random.Generator) -> None:
        """Replace all values of at most half of the positions along an axis by ``marks``: in one sample those along the
        first axis, in the next one along the second, and then the next marks along the first."""
        turn, axis = divmod(index, sample.ndim or 1)
        steps = np.moveaxis(sample, axis, 0) if sample.ndim else sample.reshape(1)
        count = max(len(steps) // 2, 1)
        first = turn * count % len(self.marks)
        marks = (*self.marks[first:], *self.marks[:first])
        for place, mark in zip(rng.permutation(len(steps))[:count].tolist(), marks):
            steps[place] = mark

    def _ordinary(self, rng: np.random.Generator, seed: int, batch: int, scale: float) -> Array:
        shape = self.shape(batch)
        if self.draw == "below":
            return self._integers(rng, seed, shape)
        if self.draw == "from":
            return rng.uniform(self.numbers[0], self.numbers[1], shape)
        if self.draw == "mask":
            return self._masks(rng, seed, shape)
        if self.draw == "steps":
            return self._steps(rng, batch, shape) / self.numbers[0]
        if self.draw == "positive":
            return self._positive(rng, shape)
        values = rng.standard_normal(shape) * scale
        first = next((index for index, axis in enumerate(self.axes) if axis != "b"), None)
        if first is None:
            return values
        sizes = np.ones(len(values.shape), int)
        sizes[first] = shape[first]
        return values * self._energies(shape[first]).reshape(sizes)

    def _integers(self, rng: np.random.Generator, seed: int, shape: tuple[int, ...]) -> Array:
        """Random integers, of which one at least stays random: the first, the last and ``ids`` are among them, and all
        others, if there are at most :data:`FEW`. Without room for all, the next seed goes on where this one ends."""
        valid = self.integers
        if self.limit:
            return self._ends(rng, shape)
        values = rng.integers(valid.start, valid.stop, shape)
        order = np.random.default_rng(zlib.crc32(self.name.encode()))  # the same for all seeds
        others = (valid.start + order.permutation(len(valid))).tolist() if len(valid) <= FEW else []
        integers = list(dict.fromkeys([valid[0], valid[-1], *filter(valid.__contains__, self.ids), *others]))
        places = rng.permutation(values.size)[: max(values.size - 1, 0)]
        if len(places) < len(integers):
            first = seed * len(places) % len(integers)
            integers = integers[first:] + integers[:first]
        pairs = list(zip(places.tolist(), integers))
        flat = values.reshape(-1)
        flat[[place for place, _ in pairs]] = [integer for _, integer in pairs]
        if flat.size > 1 and len(valid) > 1 and np.all(flat == flat[0]):  # two samples that are both 0 show little
            other = valid[0] if flat[0] == valid[-1] else flat[0] + 1
            flat[int(np.argmax(~np.isin(np.arange(flat.size), [place for place, _ in pairs])))] = other
        return values

    def _ends(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Integers below a size, such as the ends of a graph's edges: few are frequent, a quarter of them is missing,
        and the last is there."""
        valid = self.integers
        chosen = valid.start + rng.permutation(len(valid))[: -(-len(valid) * 3 // 4)]
        values = chosen[np.floor(len(chosen) * rng.random(shape) ** 2).astype(int)]
        values.reshape(-1)[-1:] = valid[-1]
        return np.asarray(values)

    def _positive(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Random magnitudes; one value is tiny and one huge, if others are left."""
        low, high = ORDINARY
        values: Array = low * (high / low) ** rng.random(shape)
        flat = values.reshape(-1)
        edges = EDGES[: max(flat.size - len(EDGES), 0)]
        flat[: len(edges)] = edges
        return values

    def _masks(self, rng: np.random.Generator, seed: int, shape: tuple[int, ...]) -> Array:
        """Every sample has another of the :data:`PATTERNS`, and the next case starts with another."""
        if len(shape) < 2:
            return rng.integers(0, 2, shape).astype(bool)
        values, batch = np.zeros(shape, bool), self.axes.index("b") if "b" in self.axes else len(shape)
        for index in np.ndindex(*shape[:-1]):
            sample = index[batch] if batch < len(index) else 0
            pattern = PATTERNS[0] if self.right else PATTERNS[(seed + sample) % len(PATTERNS)]
            values[index] = pattern(rng, shape[-1]) != bool(self.hides)
        return values

    def _extreme(self, extreme: str, ordinary: Array, scale: float, rng: np.random.Generator) -> Any:
        """One sample of extreme values; ``ordinary`` are those that it replaces."""
        if self.draw == "mask":
            return self._extreme_mask(extreme, ordinary, rng)
        if self.draw == "below":
            valid_ids = list(filter(self.integers.__contains__, dict.fromkeys((0, *self.ids))))
            if extreme == "sparse" and ordinary.ndim:
                return np.repeat(ordinary, 3, -1)[..., : ordinary.shape[-1]]
            if extreme == "whole" and len(valid_ids) > 1:
                return rng.choice(valid_ids, ordinary.shape)
            hidden = 0 if self.integers == range(2) else ordinary  # a mask of numbers
            return {"zeros": self.integers[0], "constant": self.integers[-1], HIDDEN: hidden}.get(extreme, ordinary)
        if self.draw in ("from", "steps"):
            ends = self.numbers if self.draw == "from" else (0.0, 1.0)
            if extreme == "whole" and self.draw == "from":
                return np.round(ordinary).clip(ends[0], ends[1])
            return {"zeros": ends[0], "constant": ends[1]}.get(extreme, ordinary)
        if self.draw == "positive":
            return {"zeros": EDGES[0], "constant": 1.0, "large": EDGES[1], "small": TINY * ordinary,
                    "whole": np.ceil(ordinary)}.get(extreme, ordinary)  # fmt: skip
        factor = {"large": LARGE, "small": TINY}.get(extreme, 1.0)
        fixed = {"zeros": 0.0, "constant": CONSTANT}
        values: Array = np.full_like(ordinary, fixed[extreme]) if extreme in fixed else factor * ordinary
        if extreme == "far":
            values += FAR * scale
        if extreme == "whole":
            # Between two multiples of 1/2 and so on, of which rounding half to even takes the lower one in the first
            # four places, and the upper one in the next four.
            index = np.arange(values.size).reshape(values.shape)
            parts, rest = 2.0 ** ((index + 1) % 4), 1 + index // 4 % 2 * 2
            values = (4.0 * np.round((parts * ordinary - rest) / 4.0) + rest) / parts
        if extreme == "sparse" and values.ndim:
            values *= rng.integers(0, 2, values.shape)
            steps = np.moveaxis(values, int(np.argmax(values.shape)), 0)
            # The last quarter, as padding is; the double negation rounds up.
            steps[-(-len(steps) * 3 // 4) :] = 0.0
        if extreme == "missing":
            _remove(values, rng)
        return values

    def _extreme_mask(self, extreme: str, ordinary: Array, rng: np.random.Generator) -> Any:
        if extreme == "constant":
            return not self.hides
        if extreme == "large" and ordinary.ndim and not self.right:
            one = np.arange(ordinary.shape[-1]) == rng.integers(0, ordinary.shape[-1], (*ordinary.shape[:-1], 1))
            return one != bool(self.hides)
        return False if extreme in ("zeros", HIDDEN) and self.hides is None else ordinary

    def _steps(self, rng: np.random.Generator, batch: int, shape: tuple[int, ...]) -> Array:
        """Both ends, the middle, and random other steps."""
        last = int(self.numbers[0])
        if shape != (batch,):
            return np.asarray(rng.integers(0, last + 1, shape))
        steps = np.concatenate(
            [[1, (last + 1) // 2, last], rng.integers(min(2, last), max(last, 3), max(batch - 3, 0))]
        )
        # A batch of one gets the middle.
        first = 1 if batch == 1 else 0
        return steps[first : first + batch]

    def _energies(self, size: int) -> Array:
        """Factors along an axis that differ between neighbours, or between parts."""
        if self.draw == "parts":
            parts = [int(width) for width in self.numbers]
            return np.repeat(2.0 ** (1 - np.arange(len(parts))), parts)
        # From 2 down to 1/2, with a period of 8.
        return 2.0 ** (1.0 - 2.0 * (np.arange(size) % 8) / 7.0) if size > 1 else np.ones(1)


def given(inputs: Sequence[Input], count: int) -> Sequence[Input]:
    """The inputs that a call with ``count`` arrays has: all, or those that are not optional."""
    return inputs if len(inputs) == count else [spec for spec in inputs if not spec.optional]
