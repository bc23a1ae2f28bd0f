"""Record a PyTorch model with its checkpoint to one NPZ file, with which wdport compares a port without torch.

This file needs only Python 3.8, numpy and torch 1.13, or later, and no other file of wdport. Copy it into your project:

    python recorder.py package.module:factory checkpoint.ckpt -o run.npz

If ``factory`` requires one argument, it is called with the checkpoint's path and returns the module with its
weights loaded; otherwise it is called without arguments and the weights are loaded here. It returns the module, or the
module and ``make_inputs(seed, batch, scale)``, which returns a tuple of float64 arrays with the batch on axis 0;
``--input 'x: b 3 48 48'``, once for every input, replaces such a function.

The file holds arrays ``N.npy``, without duplicates, and ``index.npy``, UTF-8 JSON. The index refers to array N as
``"N"``; as ``"N:s"``, rounded to float32; as ``"N:d"``, rounded to float32 and converted back to float64; or as
``"N:p"``, ``"N:ps"`` and ``"N:pd"``, the same of its positive values, with zeros in place of all others, as of a ReLU.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import functools
import hashlib
import importlib
import inspect
import itertools
import json
import os
import platform
import random
import re
import secrets
import sys
import sysconfig
import traceback
import warnings
import zipfile
import zlib
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Callable,
    Collection,
    Dict,
    Iterator,
    Mapping,
    Sequence,
    Tuple,
    Union,
    overload,
)
from unittest.mock import patch
from weakref import WeakValueDictionary

import numpy as np

if TYPE_CHECKING:
    from typing import TypeGuard

    from numpy.typing import ArrayLike, DTypeLike, NDArray
    from torch import Tensor
    from torch import dtype as Dtype
    from torch.nn import Module, MultiheadAttention, RNNBase

    Array = NDArray[Any]
    Nested = Union[Array, Sequence["Nested"]]
    """An array, or lists and tuples of them."""
    Factory = Callable[..., Any]
    """A user's function."""
    Given = Tuple[Tuple[object, ...], Mapping[str, object]]
    """Positional and keyword arguments of a module's call."""
    Compute = Callable[[Tuple[object, ...], Mapping[str, object]], object]
    Handle = Callable[[str, str, Module, Compute, Given], object]
    Fresh = Dict[Tuple[Module, str], Tensor]
    """Buffers as computed by the code, before a state_dict was loaded, by module and name."""
    Index = Dict[str, Any]
    """The index of the file, as JSON."""

SCHEMA = 4
BIAS_SEED = 7
RECOMPOSED = 1e-12
"""Maximum relative float64 difference between attention composed here and the module's own."""


MODEL_ERRORS = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError, ArithmeticError)
"""What the code of a model raises for inputs that it does not take."""


class Refusal(Exception):
    """A reason not to record, in one line; ``exit_code`` is as in wdport: 2 usage, 3 file, 4 misfit, 5 machine,
    6 incomplete."""

    def __init__(self, exit_code: int, where: str, what: str, fix: str) -> None:
        super().__init__(f"{where}: {what}; {fix}")
        self.exit_code, self.where, self.what, self.fix = exit_code, where, what, fix


# --- Calls -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call of one layer: its inputs (arrays, or lists of arrays), its outputs, the innermost enclosing watched call
    ("" is the network), the names of its inputs if they are the parameters of a function, and the mask (B, T) that
    Keras passes on with an input, true at the steps that count."""

    inputs: tuple[Nested, ...]
    outputs: tuple[Array, ...]
    caller: str = ""
    names: tuple[str, ...] = ()
    mask: Array | None = None


Calls = Mapping[str, Call]
"""Calls by layer path; the second call of X in one pass is ``X#2``."""

MOST_CALLS = 64
"""Maximum number of recorded calls of one layer in one pass; more are a loop, and the enclosing layer is compared."""


def call_name(name: str, count: int) -> str:
    """The name of the ``count``-th call of ``name``."""
    return name if count == 1 else f"{name}#{count}"


def layer_of(call: str) -> str:
    """The layer that was called: ``X`` for ``X#2``."""
    return call.partition("#")[0]


def inside(call: str, part: str) -> str:
    """The part of a layer in one of its calls: ``X.query#2`` for ``X#2``."""
    name, mark, count = call.partition("#")
    return f"{name}.{part}{mark}{count}"


@overload
def cast(value: Call, dtype: DTypeLike) -> Call: ...
@overload
def cast(value: Array, dtype: DTypeLike) -> Array: ...
@overload
def cast(value: tuple[Array, ...], dtype: DTypeLike) -> tuple[Array, ...]: ...
@overload
def cast(value: tuple[Nested, ...], dtype: DTypeLike) -> tuple[Nested, ...]: ...
def cast(value: Any, dtype: DTypeLike) -> Any:
    """Cast floating-point arrays in lists, tuples and calls to ``dtype``."""
    if isinstance(value, Call):
        return Call(cast(value.inputs, dtype), cast(value.outputs, dtype), value.caller, value.names)
    if isinstance(value, (list, tuple)):
        return type(value)(cast(item, dtype) for item in value)
    array = np.asarray(value)
    return _rounded(array, dtype) if array.dtype.kind == "f" else array


def _rounded(array: Array, dtype: DTypeLike) -> Array:
    """Finite values stay finite: a mask that adds the lowest float64 number adds the lowest float32 number."""
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype)
    except FloatingPointError:
        with np.errstate(over="ignore"):
            converted = np.asarray(array.astype(dtype))
        largest = np.finfo(converted.dtype).max
        return np.where(np.isinf(converted) & np.isfinite(array), np.copysign(largest, converted), converted)


def leaves(value: object) -> list[Any]:
    """The arrays of a nested list or tuple, in order."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, (list, tuple)) else [value]


# --- What is run -----------------------------------------------------------------------------------------------------


EXTREMES = ("zeros", "constant", "large", "missing")
"""Samples of extreme values: all zero, all one number, :data:`LARGE` times normal, with missing values (NaN)."""

UNUSUAL = ("whole", "sparse", "small", "far")
"""Samples of unusual values, which are run in float32 as well: odd multiples of 1/2, 1/4, 1/8 and 1, or ids that have a
meaning; zeros at half of the places and at the end, or runs of equal ids; :data:`TINY` times normal; and :data:`FAR`
from 0."""

HIDDEN = "hidden"
"""The sample in place of one with missing values where none can be missing: ordinary values, and masks without any true
value. Masks of the other extreme samples are false everywhere with zeros, true everywhere with a constant, and true at
one position with large values, which a number that stands for infinity must exceed."""

LARGE = 2e4
"""Factor of normal values in a sample of large values: float16 does not hold the largest, and the products of two stay
below the 1e9 that many models take for infinity in a mask."""

TINY = 1e-4
"""Factor of normal values in a sample of small values."""

FAR = 300.0
"""What a sample of values far from 0 is shifted by, as a factor of the case's scale."""

CONSTANT = -0.7
"""The value of a constant sample: neither float32 nor a short sum of powers of two holds it."""


@dataclass(frozen=True)
class Case:
    """One input of the battery: how its values are drawn.

    ``extremes`` names for every sample of the batch one of :data:`EXTREMES` or :data:`UNUSUAL`, :data:`HIDDEN`, or ""
    for ordinary values; it is empty if all are ordinary. ``numerics``: also run in float32. That takes two more
    compiled programs per batch size, so only one batch size is run in float32; a batch of 1, which has the greatest
    lengths, is run in float64 only. Of extreme values, which float32 rounds too coarsely to be compared, only the
    outputs are run in float32 too. In float32, isolated layers get ``gain`` times the recorded values, see
    :func:`answers_of`. If it is not ``batched``, no input has a batch axis: the case has one
    sample, and ``batch`` only selects the sizes of the axes.
    """

    seed: int
    batch: int
    scale: float
    random_biases: bool = False
    extremes: tuple[str, ...] = ()
    gain: float = 1.0
    batched: bool = True

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.batch if self.batched else 1

    @property
    def extreme(self) -> bool:
        """Whether values are more than unusual."""
        return not {"", *UNUSUAL}.issuperset(self.extremes)

    @property
    def numerics(self) -> bool:
        return self.batch > 1 and not self.extreme

    def describe(self) -> str:
        weights = "random biases" if self.random_biases else "converted weights"
        extremes = ", ".join(extreme for extreme in self.extremes if extreme)
        more = f"samples: {extremes}, " if extremes else ""
        gain = f", gain x{self.gain:g}" if self.gain != 1.0 else ""
        sizes = f"batch {self.batch}" if self.batched else f"the {'first' if self.batch > 1 else 'other'} sizes"
        return f"seed {self.seed}, {sizes}, scale x{self.scale:g}, {more}{weights}{gain}"


CASES = (
    Case(seed=0, batch=4, scale=1.0),
    Case(seed=1, batch=1, scale=1.0),
    Case(seed=2, batch=4, scale=50.0, gain=32.0),
    Case(seed=4, batch=4, scale=1.0, extremes=EXTREMES),
    Case(seed=3, batch=4, scale=1.0, random_biases=True, extremes=UNUSUAL),
)

LONGEST = 513
"""Positions up to which lengths are compared: with more, a run in float64 takes long. It is odd, for layers that treat
pairs of steps; tables often end one before."""

SEEDS = 1000
"""Seeds of one battery: those of the next are this much larger."""

SCALES = (1.0, 0.01, 50.0)
"""Factors of additional cases, in turn."""


def battery(seed: int = 0, more: int = 0) -> tuple[Case, ...]:
    """The cases of a comparison: :data:`CASES` with other seeds if ``seed`` is not 0, and ``more`` random ones."""
    first = SEEDS * seed
    random = [Case(first + len(CASES) + index, CASES[0].batch, SCALES[index % len(SCALES)]) for index in range(more)]
    return (*(replace(case, seed=first + case.seed) for case in CASES), *random)


MakeInputs = Callable[[int, int, float], Sequence["ArrayLike"]]


_INPUT = re.compile(
    r"\s*([A-Za-z_][\w.]*\??)\s*(?:->\s*([A-Za-z_][\w.]*)\s*)?:"
    r"\s*([^,>]*?)\s*(?:->\s*([^,]*?)\s*)?(?:,\s*(\w+)((?:\s+[\w.+-]+)*)\s*)?"
)
_AXIS = re.compile(r"(?:([a-z]+)=)?([1-9]\d*(?:\.\.[1-9]\d*)?)|([a-z]+)")
_NAME = re.compile(r"[a-z]+")
_IDS = re.compile(r",\s*ids\s*<\s*")
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


_DRAWS = {"normal": (0,), "below": (1, 3), "from": (3,), "steps": (1,), "parts": (), "mask": (0,), "positive": (0,)}
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


def parse_input(text: str) -> Input:
    """Read one input by itself; raises ``ValueError`` with the reason."""
    return parse_inputs([text])[0]


def parse_inputs(texts: Sequence[str]) -> tuple[Input, ...]:
    """Read all inputs of a network, ``NAME [-> NAME]: AXES [-> AXES] [, DRAW]`` each, in which axes of one name have
    one size; raises ``ValueError`` with the reason."""
    matches, axes = [], []
    sizes: dict[str, str] = {}  # by name
    for text in texts:
        match = _INPUT.fullmatch(_IDS.sub(", below ", text))
        if match is None:
            raise ValueError(f"{text!r} is not NAME: AXES, such as {_with_numbers(text)!r}")
        stated = _parse_axes(match.group(3), text)
        for axis, size in stated:
            # Sizes without a name are those of their own input.
            if size and not axis.startswith("_") and sizes.setdefault(axis, size) != size:
                raise ValueError(f"{text!r}: {axis} is {size} here, and {sizes[axis]} before; use another name")
        matches.append(match)
        axes.append(stated)
    names = [match.group(1).rstrip("?") for match in matches]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"several inputs have the name {repeated[0]}; each needs its own")
    return tuple(_parsed(text, match, stated, sizes) for text, match, stated in zip(texts, matches, axes))


def _with_numbers(text: str) -> str:
    """An example of the notation, with the numbers of a shape such as ``3,32,32`` or ``(1, 3, 32, 32)``, if it is
    one."""
    numbers = re.findall(r"\d+", text)
    if not numbers or re.search(r"[^\s\d,x()\[\]]", text):
        return "x: b 3 48 48"
    batch = numbers[0] == "1" and len(numbers) > 1
    return " ".join(["x: b", *numbers[batch:]])


def _parse_axes(text: str, where: str) -> list[tuple[str, str]]:
    """The axes with the sizes that are stated here, "" for ``b`` and a name alone."""
    axes = []
    for index, word in enumerate(text.split()):
        match = _AXIS.fullmatch(word)
        if match is None or match.group(1) == "b":
            raise ValueError(
                f"{where!r}: {word!r} is not b, a size, NAME=SIZE or a NAME whose size is stated elsewhere"
            )
        named, size, name = match.groups()
        axes.append((named or name or f"_{chr(97 + index)}", size or ""))
    return axes


def _parsed(text: str, match: re.Match[str], axes: Sequence[tuple[str, str]], shared: Mapping[str, str]) -> Input:
    """One input with its sizes, those that other inputs state among them."""
    called, keras_name, _, right, draw, rest = match.groups()
    name, optional = called.rstrip("?"), called.endswith("?")
    words = rest.split() if rest else []
    limit = words[0] if draw == "below" and words and _NAME.fullmatch(words[0]) else ""
    names = tuple(axis for axis, _ in axes)
    ranges = {axis: size or shared.get(axis, "") for axis, size in [*axes, (limit, "")] if axis not in ("", "b")}
    if unknown := [axis for axis, size in ranges.items() if not size]:
        raise ValueError(f"{text!r}: no input states the size of {unknown[0]}, such as {unknown[0]}=8..64")
    ends = {axis: tuple(map(int, size.split(".."))) for axis, size in ranges.items()}
    sizes = {axis: numbers[0] for axis, numbers in ends.items()}
    alone = {axis: numbers[1] for axis, numbers in ends.items() if numbers[1:]}
    keras_axes = tuple(right.split()) if right else names
    if sorted(keras_axes) != sorted(names):
        raise ValueError(f"{text!r} does not name the same axes on both sides, such as 'x: b c=3 t=40 -> b t c'")
    parsed = Input(
        name, names, sizes, keras_axes, alone=alone, optional=optional, limit=limit, keras_name=keras_name or name
    )
    if draw is None:
        return parsed
    between, counts = {"from": "to", "below": "from"}.get(draw), _DRAWS.get(draw, ())
    if (counts and len(words) not in counts) or draw not in _DRAWS or (between and words[1:2] not in ([], [between])):
        draws = "normal, below N, below N from M, from LOW to HIGH, steps N, parts N N, positive or mask"
        raise ValueError(f"{text!r}: {draw!r} is not {draws}")
    if limit:
        words[0] = str(min(ends.get(limit, (1,))))
    try:
        numbers = tuple(float(word) for word in words if word != between)
    except ValueError:
        raise ValueError(f"{text!r}: {' '.join(words)!r} is not a list of numbers") from None
    parsed = replace(parsed, draw=draw, numbers=numbers)
    if draw in ("below", "steps", "parts") and any(number < 1 or number % 1 for number in numbers):
        raise ValueError(f"{text!r}: {draw} takes positive integers")
    if draw == "below" and not parsed.integers:
        raise ValueError(f"{text!r}: there are no integers below {words[0]} from {words[2]}")
    if draw == "parts" and (len(names) < 2 or sum(numbers) != parsed.shape(1)[1]):
        raise ValueError(f"{text!r}: the parts do not add up to the axis after b")
    return parsed


def read_inputs(texts: Sequence[str]) -> tuple[Input, ...]:
    """:func:`parse_inputs` for a command line; raises :class:`Refusal`."""
    try:
        return parse_inputs(texts)
    except ValueError as error:
        raise Refusal(2, "--input", str(error), "see docs/inputs.md") from None


def given(inputs: Sequence[Input], count: int) -> Sequence[Input]:
    """The inputs that a call with ``count`` arrays has: all, or those that are not optional."""
    return inputs if len(inputs) == count else [spec for spec in inputs if not spec.optional]


def by_parameter(inputs: Sequence[Input], parameters: Sequence[str]) -> list[str] | None:
    """The parameter of a function that takes each input: that of its name or, for other inputs, the one in its place.
    ``None`` if there are no such names, or they contradict the places."""
    places = [*parameters, *([""] * len(inputs))]
    chosen = [spec.name if spec.name in parameters else place for spec, place in zip(inputs, places)]
    named = any(spec.name in parameters for spec in inputs)
    return chosen if named and all(chosen) and len(set(chosen)) == len(chosen) else None


def call_by_name(module: Module, inputs: Sequence[Input]) -> None:
    """Let the ``forward`` of a module take these inputs in their order, those that have names of its parameters by
    name; raises :class:`Refusal` if one is optional, not the last, and has no such name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        every = inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        every = MappingProxyType({})
    chosen = by_parameter(inputs, [name for name, parameter in every.items() if parameter.kind in kinds])
    optional = [spec.name for spec in inputs if spec.optional]
    in_place = chosen is None or chosen == parameter_names(module)[: len(inputs)]
    if in_place and optional == [spec.name for spec in inputs[len(inputs) - len(optional) :]]:
        return
    if chosen is None:
        fix = "name the inputs as its parameters, or state this one last"
        raise Refusal(2, f"input {optional[0]}", "can only be left out by name, and forward has no such parameter", fix)
    parameters, forward = dict(zip([spec.name for spec in inputs], chosen)), module.forward

    def by_name(*args: object, **kwargs: object) -> object:
        names = [parameters[spec.name] for spec in given(inputs, len(args))]
        return forward(**dict(zip(names, args)), **kwargs)

    stated = [every[name].replace(kind=kinds[0], default=inspect.Parameter.empty) for name in chosen]
    stated[-1] = stated[-1].replace(default=every[chosen[-1]].default)
    by_name.__signature__ = inspect.Signature(stated)  # type: ignore[attr-defined]
    module.forward = by_name


USUAL_IDS = (1, 2, 3)
"""Ids that vocabularies usually have for padding, the beginning and the end, besides 0."""


def with_ids(inputs: Sequence[Input], module: Module) -> tuple[Input, ...]:
    """These inputs with the ids that the module may treat specially: what its configuration calls ``..._token_id``, the
    ``padding_idx`` of its layers, all other integers that its layers keep, such as the sizes of embeddings, and
    :data:`USUAL_IDS`, since its code may have the id of the padding as a constant."""
    config = getattr(module, "config", None)
    stated = [value for name, value in getattr(config, "__dict__", {}).items() if str(name).endswith("_token_id")]
    stated += [getattr(part, "padding_idx", None) for part in module.modules()]
    stored = [value for part in module.modules() for name, value in vars(part).items() if not name.startswith("_")]
    # Not isinstance, for which a bool is an int as well.
    ids = dict.fromkeys([*(leaf for leaf in leaves([*stated, *stored]) if type(leaf) is int), *USUAL_IDS])
    return tuple(replace(spec, ids=(*spec.ids, *ids)) if spec.kind == "int" else spec for spec in inputs)


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ORDERS = ("lt", "le", "gt", "ge")
MEMBERSHIPS = {"isin": (1, "test_elements"), "bucketize": (1, "boundaries"), "searchsorted": (0, "sorted_sequence")}
"""Functions of torch that compare with a number, and those that compare with several, with that argument."""


Ranges = Dict[int, Tuple[int, int]]
"""Numbers that code compares sizes and positions with, and the least and the greatest of these sizes and positions."""


class ComparedSize(int):
    """A size of a tensor, which notes its comparisons by the model's code with other numbers."""

    def compared(self, name: str, other: int) -> None:
        """Note one comparison."""
        raise NotImplementedError

    def _compared(self, name: str, other: object) -> bool:
        # Of torch's own checks, such as that of a batch norm, two calls up, nothing is noted.
        torch_code = str(sys._getframe(2).f_globals.get("__name__")).startswith("torch.")
        if isinstance(other, int) and not isinstance(other, (bool, ComparedSize)) and not torch_code:
            self.compared(name, other)
        result: bool = getattr(int, f"__{name}__")(self, other)
        return result

    def __lt__(self, other: Any) -> bool:
        return self._compared("lt", other)

    def __le__(self, other: Any) -> bool:
        return self._compared("le", other)

    def __gt__(self, other: Any) -> bool:
        return self._compared("gt", other)

    def __ge__(self, other: Any) -> bool:
        return self._compared("ge", other)


class _Size(ComparedSize):
    """A size that extends ``ranges`` by the numbers that it is compared with."""

    ranges: Ranges

    def compared(self, name: str, other: int) -> None:
        _extend(self.ranges, other, int(self), int(self))


def _extend(ranges: Ranges, number: int, low: int, high: int) -> None:
    least, greatest = ranges.get(number, (low, high))
    ranges[number] = min(low, least), max(high, greatest)


ORDERED = (*ORDERS, "minimum", "maximum", "fmin", "fmax")
LIMITS = ("clamp", "clip", "clamp_min", "clamp_max")
BANDS = ("tril", "triu")


def _note_positions(ranges: Ranges, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Note that positions, which are integers, are compared with a number by their order: those along the last two axes
    of a band as well."""
    import torch

    def number(value: object) -> int | None:
        if isinstance(value, torch.Tensor) and not value.ndim and to_array(value).dtype.kind in "iu":
            return int(value)
        return value if type(value) is int else None

    pairs: list[tuple[Any, Any]] = [(args[0], args[1]), (args[1], args[0])] if name in ORDERED and args[1:] else []
    if name in LIMITS and args:
        pairs = [(args[0], limit) for limit in (*args[1:], *(named.get(limit) for limit in ("min", "max")))]
    for values, other in pairs:
        is_full = isinstance(values, torch.Tensor) and values.ndim and values.numel()
        if is_full and to_array(values).dtype.kind in "iu" and (limit := number(other)) is not None:
            _extend(ranges, limit, int(values.min()), int(values.max()))
    if name in BANDS and args and isinstance(args[0], torch.Tensor) and args[0].ndim > 1:
        diagonal = number(args[1] if args[1:] else named.get("diagonal", 0))
        _extend(ranges, abs(diagonal or 0), 0, max(args[0].shape[-2:]) - 1)


def unreached(ranges: Ranges, inputs: Sequence[Input]) -> dict[int, tuple[str, int, int]]:
    """The numbers that no compared size or position along an axis of several sizes reaches, with this axis and sizes on
    either side to try. Those up to 2 are guards against sizes that are too small to compute with."""
    axes = {(axis, spec.sizes[axis], longest) for spec in inputs for axis, longest in spec.alone.items()}
    sizes: dict[int, tuple[str, int, int]] = {}
    for axis, size, longest in sorted(axes):
        for number, (least, greatest) in ranges.items():
            # A position is less than its size.
            inside = least <= number <= greatest or number <= 2 or (number < least and least != size)
            if inside or not {greatest, greatest + 1} & {size, longest}:
                continue
            upper = number > greatest
            low, high = (size, number + max(number // 16, 8)) if upper else (max(number // 2, 1), longest)
            sizes[number] = axis, low, high
    return sizes


def unreached_notes(ranges: Ranges, inputs: Sequence[Input]) -> list[str]:
    """A sentence for each of these numbers, with what to state."""
    sentences = []
    for number, (axis, low, high) in unreached(ranges, inputs).items():
        least, greatest = ranges[number]
        tried = f"up to {greatest}" if number > greatest else f"from {least} on"
        stated = f"{low}..{high}" if axis.startswith("_") else f"{axis}={low}..{high}"
        sentences.append(f"sizes or positions {tried} were tried, the code compares them with {number}; state {stated} "
                         "to try both sides")  # fmt: skip
    return sentences


def compared_numbers(
    module: Module, inputs: tuple[Array, ...], ranges: Ranges | None = None
) -> list[float]:  # fmt: skip
    """The numbers that the code of a float64 module compares values with in one run, as far as the run gets; ``ranges``
    is extended by those that it compares sizes and positions with."""
    import torch

    numbers: list[float] = []
    compared: Ranges = {} if ranges is None else ranges
    size_class = type("Size", (_Size,), {"ranges": compared})

    def watch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        name = getattr(function, "__name__", "").strip("_")
        if name in ("get", "size"):
            result = function(*args, **kwargs)
            if isinstance(result, torch.Size):
                return torch.Size(map(size_class, result))
            return size_class(result) if name == "size" and type(result) is int else result
        _note_positions(compared, name, args, kwargs)
        values = list(args) if name in COMPARISONS else []
        if name in MEMBERSHIPS:
            place, keyword = MEMBERSHIPS[name]
            values = [kwargs[keyword] if keyword in kwargs else args[place]]
        for value in values:
            if isinstance(value, torch.Tensor) and (not value.ndim or (name in MEMBERSHIPS and value.numel() <= FEW)):
                numbers.extend(to_array(value).reshape(-1).tolist())
            elif isinstance(value, (int, float)):
                numbers.append(value)
        return function(*args, **kwargs)

    # What the module does not accept is refused when it is compared.
    with suppress(Exception), highest_precision(), lifted(), functions(watch):
        run(module, inputs)
    return numbers


def largest_tensor(module: Module, inputs: Sequence[Nested]) -> int:
    """The number of values of the largest tensor that a float64 module computes."""
    counts = [0]

    def watch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        result = function(*args, **kwargs)
        counts.extend(tensor.numel() for tensor in tensors_of(result))
        return result

    with highest_precision(), lifted(), functions(watch):
        run(module, inputs)
    return max(counts)


MOST_MARKS = 8
"""Marks of an input: more would leave little of a sample."""


def marks_of(numbers: Sequence[float]) -> list[float]:
    """Those of the numbers that an input may have: finite ones that float32 holds, since others would be rounded to
    numbers that are not equal. Zeros are among the inputs anyway."""
    finite = [float(number) for number in numbers if not isinstance(number, bool) and 0 < abs(number) < MASKING]
    return list(dict.fromkeys(number for number in finite if float(np.float32(number)) == number))


def with_numbers(inputs: Sequence[Input], numbers: Sequence[float]) -> tuple[Input, ...]:
    """These inputs with numbers that the code of a model compares values with, such as the mark of a missing value or
    the edge of a bucket."""
    exact = marks_of(numbers)
    ids = [int(np.floor(number)) + step for number in exact for step in (0, 1, -1)]

    def extended(spec: Input) -> Input:
        if spec.kind == "int":
            return replace(spec, ids=tuple(dict.fromkeys((*spec.ids, *ids))))
        low, high = {"from": spec.numbers, "positive": EDGES}.get(spec.draw, (-MASKING, MASKING))
        marks = dict.fromkeys((*spec.marks, *(number for number in exact if low <= number <= high)))
        unmarked = spec.kind == "bool" or spec.draw == "steps"
        return spec if unmarked else replace(spec, marks=tuple(marks)[:MOST_MARKS])

    return tuple(map(extended, inputs))


KEYLESS = " has queries that see no key; they get zeros, where torch may also give NaN"


def with_keys(
    inputs: Sequence[Input], module: Module, cases: Sequence[Case],
    draw: Callable[[Case, Sequence[Input]], tuple[Array, ...]],
) -> tuple[Input, ...]:  # fmt: skip
    """These inputs with masks under which every query of an attention sees a key, if some see none under others:
    libraries, and releases of one library, compute different values for such a query, or NaN. Whether true or false
    marks what is left out, each mask's runs tell."""
    masks = [index for index, spec in enumerate(inputs) if spec.draw == "mask"]
    attention = any(map(_is_attention, module.modules()))

    def keyless(drawn: Sequence[Input]) -> bool:
        # Extreme samples with NaN are left out anyway.
        return any(_keyless(module, draw(case, drawn), attention or not case.extremes) for case in cases)

    if not masks or not keyless(inputs):
        return tuple(inputs)
    chosen = inputs
    for right, hides in itertools.product((False, True), itertools.product((False, True), repeat=len(masks))):
        chosen = list(inputs)
        for index, value in zip(masks, hides):
            chosen[index] = replace(inputs[index], hides=value, right=right)
        if not keyless(chosen):
            return tuple(chosen)
    if not attention:  # other code may have NaN for another reason, and is refused when it runs
        return tuple(inputs)
    return tuple(replace(spec, hides=False, right=True) if spec.draw == "mask" else spec for spec in inputs)


def _keyless(module: Module, inputs: tuple[Array, ...], nan: bool) -> bool:
    """Whether queries of attention see no key or, if ``nan``, the outputs have NaN where the inputs have none."""
    import torch

    notes: list[str] = []

    def watch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        if getattr(function, "__name__", "") == "scaled_dot_product_attention":
            mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
            if mask is not None and bool((~mask if mask.dtype is torch.bool else mask < -1e30).all(-1).any()):
                notes.append(f"attention{KEYLESS}")
        return function(*args, **kwargs)

    # What the module does not accept is reduced by finite_case, or refused when it runs.
    with suppress(Exception), highest_precision(), lifted(), functions(watch):
        outputs, _ = record(module, inputs, None, notes.append)
        unknown = not any(np.isnan(array).any() for array in inputs) and any(np.isnan(array).any() for array in outputs)
        return (nan and unknown) or any(note.endswith(KEYLESS) for note in notes)
    return any(note.endswith(KEYLESS) for note in notes)


def mask_notes(inputs: Sequence[Input]) -> list[str]:
    """What :func:`with_keys` has found, a sentence for every mask."""
    return [
        f"{str(spec.hides).lower()} in {spec.name} means left out; its masks leave out "
        f"{'only what follows a position' if spec.right else 'some, never all'}, since queries would see no key"
        for spec in inputs
        if spec.hides is not None
    ]


def finite_case(module: Module, case: Case, inputs_of: Callable[[Case], tuple[Array, ...]]) -> Case:
    """The case with only those extreme samples that the float64 module accepts and turns into finite values, for
    unusual ones only finite outputs: few modules have a meaning for missing values, or for a fully masked sample.
    :data:`HIDDEN` replaces missing values that are not accepted, or of which there are none."""
    if not case.extremes:
        return case
    places = range(case.samples)

    def finite(extremes: tuple[str, ...]) -> list[bool]:
        flags = _finite_samples(module, inputs_of(replace(case, extremes=extremes)), case.samples, case.extreme)
        if flags is not None:
            return flags
        # One sample may make the module reject all of them.
        single = [tuple(extremes[index] if index == sample else "" for index in places) for sample in places]
        tried = [_finite_samples(module, inputs_of(replace(case, extremes=kinds)), case.samples, case.extreme)
                 for kinds in single]  # fmt: skip
        return [flags is not None and all(flags) for flags in tried]

    others = [tuple(other if extreme == "missing" else extreme for extreme in case.extremes)
              for other in ("missing", HIDDEN, "")]  # fmt: skip
    inputs = [inputs_of(replace(case, extremes=extremes)) for extremes in others]
    changed = [extremes for extremes, arrays in zip(others, inputs)
               if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, inputs[-1]))]  # fmt: skip
    chosen, flags = case.extremes, [True] * case.samples
    for chosen in changed or [case.extremes]:
        flags = finite(chosen)
        if all(flag or extreme not in ("missing", HIDDEN) for flag, extreme in zip(flags, chosen)):
            break
    return replace(case, extremes=tuple(extreme if flag else "" for extreme, flag in zip(chosen, flags)))


def _finite_samples(module: Module, inputs: tuple[Array, ...], count: int, inside: bool) -> list[bool] | None:
    """By sample, whether the outputs of the module and, if ``inside``, of all its submodules are finite; ``None`` if
    samples cannot be distinguished, or the module does not accept these inputs."""
    try:
        with highest_precision(), lifted():
            outputs, calls = record(module, inputs) if inside else (run(module, inputs), {})
    except Exception:
        return None
    finite = [np.isfinite(array) for group in (outputs, *(call.outputs for call in calls.values())) for array in group]
    finite = [mask for mask in finite if not np.all(mask)]
    rows = [by_sample(mask, count) for mask in finite]
    if any(row is None for row in rows):
        return None
    return [all(row is None or bool(np.all(row[index])) for row in rows) for index in range(count)]


def by_sample(array: Array, count: int) -> Array | None:
    """A row of values for each of ``count`` samples, which are along the first axis, or all of the array; ``None`` if
    the array does not have that many."""
    if not count or (count > 1 and array.shape[:1] != (count,)):
        return None
    return array.reshape(count, -1)


def rows_of_sample(rows: int, count: int, sample: int) -> tuple[range, range]:
    """The places along a first axis of ``rows``, a multiple of ``count``, that may be of one of ``count`` samples:
    adjacent ones, as of windows of an image, or ones that are a batch apart, as of two batches in one."""
    several = rows // count
    return range(sample * several, (sample + 1) * several), range(sample, rows, count)


def squares_by_sample(arrays: Sequence[Array], count: int) -> Array | None:
    """The sum of the squares of each of ``count`` samples, over the arrays that have their axis; if there is none, of
    each row, if the first axis of all arrays is the same multiple of ``count``; else ``None``."""
    rows = [values for array in arrays if (values := by_sample(array, count)) is not None]
    lengths = {len(array) if array.ndim else 0 for array in arrays}
    if not rows and count > 1 and len(lengths) == 1 and (length := lengths.pop()) > count and length % count == 0:
        rows = [array.reshape(length, -1) for array in arrays]
    return np.asarray(np.sum([np.sum(np.square(values), 1) for values in rows], 0)) if rows else None


def named_tensors(module: Module) -> dict[str, Tensor]:
    """Every parameter and buffer under each of its names: ``named_parameters`` has a shared one only once."""
    return {
        f"{path}.{name}".lstrip("."): tensor
        for path, part in module.named_modules(remove_duplicate=False)
        for name, tensor in (*part._parameters.items(), *part._buffers.items())
        if tensor is not None
    }


def _memory(tensor: Tensor) -> object:
    """What is equal for two tensors that share all their memory."""
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) if tensor.numel() else id(tensor)


def _memories(tensors: Mapping[str, Tensor], names: Collection[str]) -> set[object]:
    return {_memory(tensors[name]) for name in names if name in tensors}


CONSTANT_WITHIN = 1e-6
"""Values that differ by less than this count as equal. Zeros hide whatever they multiply, and ones hide an order."""


def bias_shift(name: str, values: Array, seed: int = BIAS_SEED) -> Array:
    """The N(0, 0.2^2) shift in float32 for the parameter of this name, divided by the root of a matrix's fan-in; no
    value changes its sign, since a parameter may be a width or an epsilon."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    fan = values[0].size if values.size > max(values.shape, default=1) else 1
    shift = rng.normal(0.0, 0.2 / fan**0.5, values.shape)
    return np.asarray(np.where((values + shift) * values < 0.0, -shift, shift), np.float32)


def bias_shifts(module: Module, carried: Mapping[str, str] = MappingProxyType({})) -> dict[str, Array]:
    """The shift of every floating-point parameter that is a number, a vector of any rank or constant, such as the
    zeros of a residual scale or of a convolution, and of constant buffers among the ``carried`` tensors, by name.

    Tensors that share memory, or that :func:`build` is told to be one, get the same shift.
    """
    import torch

    tensors, shifts, first = named_tensors(module), {}, {}
    held = _memories(tensors, carried)
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.numel()):
            continue
        vector = tensor.numel() == max(tensor.shape, default=1)
        constant = float(tensor.detach().max() - tensor.detach().min()) <= CONSTANT_WITHIN
        parameter = isinstance(tensor, torch.nn.Parameter)
        if (vector or constant) if parameter else (constant and _memory(tensor) in held):
            one = _memory(tensors.get(carried.get(name, name), tensor))
            if one not in first:
                first[one] = bias_shift(name, to_array(tensor))
            shifts[name] = first[one]
    return shifts


@contextmanager
def moved_biases(modules: Mapping[str, Module], shifts: Mapping[str, Array]) -> Iterator[None]:
    """Inside, the shifts are added to both modules' tensors in float32, and then converted to float64."""
    import torch

    originals: dict[int, tuple[Tensor, Tensor]] = {}
    single, double = (named_tensors(modules[dtype]) for dtype in ("float32", "float64"))
    for name, shift in shifts.items():
        if id(single[name]) not in originals:  # a shared one is shifted once
            # The shifted values get new memory: the originals are put back.
            for tensor in (single[name], double[name]):
                originals.setdefault(id(tensor), (tensor, tensor.data))
            single[name].data = single[name].data + torch.from_numpy(shift)
        double[name].data = single[name].data.double()
    try:
        yield
    finally:
        for tensor, data in originals.values():
            tensor.data = data


# --- Looking into a running module -----------------------------------------------------------------------------------

ATTENTION = ("query", "key", "value", "out")
"""Parts of ``torch.nn.MultiheadAttention`` at X that are recorded as calls ``X.query``, ``X.key``, ``X.value``
(tokens (B, L, E) to the projection before it is split into heads, (B, L, E)) and ``X.out`` (merged heads (B, L, E) to
the output)."""

Note = Callable[[str], None]


def _silent(_: str) -> None:
    pass


Outputs = Tuple["Array", ...]


@dataclass(frozen=True)
class Single:
    """One case in float32 and in float64 from the same rounded inputs: the outputs, and the outputs and calls with each
    tap's output replaced by its rounded float64 reference (activation patching), ``None`` with extreme values. Each
    pair is float32, then float64."""

    inputs: tuple[Array, ...]
    outputs: tuple[Outputs, Outputs]
    isolated: tuple[tuple[Outputs, Calls], tuple[Outputs, Calls]] | None


@dataclass(frozen=True)
class Observation:
    """One case in float64: inputs, outputs, every call in order of completion; and in float32 if requested.

    ``names`` are the names of the outputs, "" for unnamed ones.
    """

    inputs: tuple[Array, ...]
    outputs: Outputs
    calls: Calls
    single: Single | None = None
    names: tuple[str, ...] = ()


def observe(
    modules: Mapping[str, Module], case: Case, inputs: tuple[Array, ...], names: Collection[str] | None = None,
    taps: Collection[str] | None = None, note: Note = _silent,
) -> Observation:  # fmt: skip
    """Run one case: ``names`` are the modules to record, ``taps`` those to isolate; all if ``None``."""
    double, single = modules["float64"], modules["float32"]
    with highest_precision():
        with lifted():
            output_names: list[str] = []
            outputs, calls = record(double, inputs, names, note, output_names)
        if not (case.numerics or case.extreme):
            return Observation(inputs, outputs, calls, names=tuple(output_names))
        rounded = cast(inputs, np.float32)
        if case.extreme:
            with lifted():
                wide_outputs = run(double, cast(rounded, np.float64))
            numerics = Single(rounded, (run(single, rounded), wide_outputs), None)
            return Observation(inputs, outputs, calls, numerics, tuple(output_names))
        answers = answers_of(case, _tapped(calls, taps))
        plain, isolated = run(single, rounded), isolate(single, rounded, answers)
        with lifted():
            truth, wide = cast(rounded, np.float64), {name: cast(call, np.float64) for name, call in answers.items()}
            exact = (run(double, truth), isolate(double, truth, wide))
    numerics = Single(rounded, (plain, exact[0]), (isolated, exact[1]))
    return Observation(inputs, outputs, calls, numerics, tuple(output_names))


def _tapped(calls: Calls, taps: Collection[str] | None) -> Calls:
    """The calls of the modules that are isolated: those among ``taps``; all if ``None``."""
    layers = None if taps is None else set(map(layer_of, taps))
    return {name: call for name, call in calls.items() if layers is None or layer_of(name) in layers}


def answers_of(case: Case, calls: Calls) -> dict[str, Call]:
    """The recorded ``calls`` as isolated layers get them in float32: rounded, and those of at least three axes, such as
    tokens and pixels, or of two if there is no batch, times the case's gain. The logits of attention then grow by its
    square, to hundreds.

    Numbers as large as those of a mask are not changed.
    """
    rounded = {name: cast(call, np.float32) for name, call in calls.items()}
    if case.gain == 1.0:
        return rounded

    def amplified(array: Array) -> Array:
        # Where it does not multiply, NumPy leaves in `out` what was there.
        product = array.copy()
        np.multiply(array, array.dtype.type(case.gain), where=np.abs(array) < MASKING, out=product)
        return product

    return changed_tokens(rounded, amplified, 3 if case.batched else 2)


MASKING = 1e30
"""Values from here on are masks: they are neither rounded nor amplified."""


def changed_tokens(calls: Calls, change: Callable[[Array], Array], axes: int = 3) -> dict[str, Call]:
    """``calls`` with ``change`` of their floating-point arrays of at least this number of ``axes``, such as tokens and
    pixels; times and vectors, which have fewer, stay."""

    def changed(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(changed(item) for item in value)
        array = np.asarray(value)
        return change(array) if array.dtype.kind == "f" and array.ndim >= axes else value

    return {name: replace(call, inputs=changed(call.inputs), outputs=changed(call.outputs))
            for name, call in calls.items()}  # fmt: skip


# --- Conditioning ----------------------------------------------------------------------------------------------------

DRAWS = 3
RERUNS = 8
SPREAD_SEED = 11
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53}
"""Largest relative error of rounding to a dtype."""


@dataclass
class Spread:
    """How far one tap moves when everything that it is given is perturbed by one rounding: sums of squares and largest
    values, the maximum over the draws, of its inputs, its isolated outputs, and its outputs in the running network.

    ``samples`` has the sums of squares of every sample of the batch by part.
    """

    fed: tuple[float, float] = (0.0, 0.0)
    made: tuple[float, float] = (0.0, 0.0)
    running: tuple[float, float] = (0.0, 0.0)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, part: str, moved: Nested, still: Nested, samples: int = 0) -> None:
        """Add one draw: how far the values of ``part`` have ``moved`` from ``still``, also by sample if their number is
        given."""
        every = zip(leaves(list(moved)), leaves(list(still)))
        alike = [(a, b) for a, b in every if a.shape == b.shape]  # rounding may choose others
        moves = [(_distance(a, b), b.dtype.kind) for a, b in alike]
        distances = [distance for distance, kind in moves if kind == "f"]
        square = float(sum(float(np.sum(distance * distance)) for distance in distances))
        largest = [float(np.max(distance, initial=0.0)) for distance in distances]
        before = getattr(self, part)
        setattr(self, part, (max(before[0], square), max([before[1], *largest])))
        # With integers, such as the place of a maximum, to see whether a rounding decides them.
        squares = squares_by_sample([distance for distance, _ in moves], samples)
        if squares is not None:
            self.samples[part] = np.maximum(squares, self.samples.get(part, 0.0)).tolist()


@dataclass
class Conditioning:
    """One case in float64, perturbed by the rounding of a dtype: the spread by call, and the largest change of each
    value of the outputs."""

    taps: dict[str, Spread]
    outputs: Outputs

    def add_outputs(self, moved: Outputs, still: Outputs) -> None:
        """Add one draw: how far the outputs have ``moved`` from ``still``."""
        distances = tuple(_distance(a, b) for a, b in zip(moved, still))
        pairs = zip(self.outputs or distances, distances)
        self.outputs = tuple(np.maximum(largest, distance) for largest, distance in pairs)


def conditioning(
    module: Module, case: Case, inputs: tuple[Array, ...], taps: Collection[str] | None = None
) -> Conditioning:
    """Run a float64 module with random relative errors of the size of its rounding in all tensors between its
    submodules; ``taps`` are those to isolate, as for :func:`observe`."""
    unit = ROUNDING["float64"]
    with highest_precision(), lifted():
        outputs, calls = record(module, inputs)
        result = Conditioning({name: Spread() for name in calls}, tuple(map(np.zeros_like, outputs)))
        for draw in range(DRAWS):
            rng = np.random.default_rng([SPREAD_SEED, case.seed, draw])
            moved, fed = _moved_calls(_tapped(calls, taps), rng, unit), _moved(inputs, rng, unit)
            _, isolated = isolate(module, fed, moved)
            disturbed, running = _disturbed(module, _moved(inputs, rng, unit), rng, unit)
            result.add_outputs(disturbed, outputs)
            for name, spread in result.taps.items():
                if name in isolated:
                    spread.add("fed", isolated[name].inputs, calls[name].inputs, case.samples)
                    spread.add("made", isolated[name].outputs, calls[name].outputs, case.samples)
                if name in running:
                    spread.add("running", running[name].outputs, calls[name].outputs, case.samples)
    return result


def float32_errors(
    modules: Mapping[str, Module], case: Case, inputs: tuple[Array, ...], taps: Collection[str] | None = None
) -> Conditioning:
    """The largest errors of the float32 module itself over :data:`RERUNS` runs on inputs that are moved by one
    rounding, each relative to the float64 module on the same inputs: those of a single run may be small by chance.
    ``taps`` are the modules to isolate, as for :func:`observe`: with others isolated, the code between two taps would
    have the errors of its last part alone."""
    double, single = modules["float64"], modules["float32"]
    with highest_precision():
        with lifted():
            _, calls = record(double, inputs)
        answers = answers_of(case, _tapped(calls, taps))
        result = Conditioning({name: Spread() for name in calls}, ())
        for rerun in range(RERUNS):
            rng = np.random.default_rng([SPREAD_SEED, case.seed, rerun])
            # Twice the largest rounding error, since the moved values are rounded again.
            unit = 2.0 * ROUNDING["float32"]
            fed = cast(_moved(cast(inputs, np.float32), rng, unit), np.float32)
            moved = {name: cast(call, np.float32) for name, call in _moved_calls(answers, rng, unit).items()}
            outputs, (_, isolated) = run(single, fed), isolate(single, fed, moved)
            with lifted():
                truth = cast(fed, np.float64)
                exact = run(double, truth)
                _, right = isolate(double, truth, {name: cast(call, np.float64) for name, call in moved.items()})
            result.add_outputs(cast(outputs, np.float64), exact)
            for name, spread in result.taps.items():
                if name in isolated and name in right:
                    sides = cast(isolated[name], np.float64), right[name]
                    spread.add("fed", sides[0].inputs, sides[1].inputs)
                    spread.add("made", sides[0].outputs, sides[1].outputs)
    return result


def _moved_calls(calls: Calls, rng: np.random.Generator, unit: float) -> dict[str, Call]:
    return {name: replace(call, inputs=_moved(call.inputs, rng, unit), outputs=_moved(call.outputs, rng, unit))
            for name, call in calls.items()}  # fmt: skip


def _moved(value: Any, rng: np.random.Generator, unit: float) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, rng, unit) for item in value)
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return array
    factors = 1.0 + unit * rng.uniform(-1.0, 1.0, array.shape)
    return array * np.where(np.abs(array) >= MASKING, 1.0, factors)


def stated_float64(
    single: Module, inputs: Sequence[Nested], names: Collection[str] = ()
) -> dict[tuple[str, str], bool]:  # fmt: skip
    """What a float32 module computes in float64, as its code states: by call of these submodules, "" for the module
    itself, "fed" for what is computed before the call, and "made" for its outputs. True if the same code also states
    float32 for numbers that are float32 already."""
    import torch

    wide, narrow = (torch.float64, torch.complex128), (torch.float32, torch.complex64)
    marks: dict[int, tuple[Tensor, frozenset[Dtype]]] = {}
    places: dict[tuple[str, str], bool] = {}

    def watch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        name, arguments = getattr(function, "__name__", ""), tensors_of([*args, *kwargs.values()])
        result = function(*args, **kwargs)
        stated: set[Dtype] = set()
        stated.update(*(marks[id(tensor)][1] for tensor in arguments if id(tensor) in marks))
        made = tensors_of(args[:1] if result is None else result)
        if any(tensor.dtype in wide and tensor.numel() > 1 for tensor in made):
            stated.add(torch.float64)
        float32 = name == "float" or any(value is torch.float32 for value in (*args, *kwargs.values()))
        if float32 and arguments and arguments[0].dtype in narrow:
            stated.add(torch.float32)
        if stated:
            marks.update({id(tensor): (tensor, frozenset(stated)) for tensor in made})
        return result

    def keep(name: str, _: str, __: Module, compute: Compute, arguments: Given) -> object:
        fed = {id(tensor) for tensor in note(name, "fed", [*arguments])}
        outside = {key: marks.pop(key) for key in fed.intersection(marks)}
        output = compute(*arguments)
        marks.update(outside)
        for tensor in note(name, "made", output):
            marks.pop(id(tensor), None)
        return output

    def note(name: str, part: str, value: object) -> list[Tensor]:
        stated = [marks[id(tensor)][1] for tensor in tensors_of(value) if id(tensor) in marks]
        if any(torch.float64 in dtypes for dtypes in stated):
            places[name, part] = any(torch.float32 in dtypes for dtypes in stated)
        return tensors_of(value)

    parts = {name: part for name, part in single.named_modules() if not name or name in names}
    with functions(watch), watched(parts, keep):
        run(single, inputs)
    return places


def run_as_stated(modules: Mapping[str, Module], inputs: Sequence[Array]) -> Outputs:
    """The float64 outputs with those results rounded to float32 that the code of the float32 module makes of float64:
    both modules call the same functions in the same order."""
    import torch

    narrowing: set[int] = set()
    calls = itertools.count()

    def watch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        index, result = next(calls), function(*args, **kwargs)
        wide = any(tensor.dtype == torch.float64 for tensor in tensors_of([*args, *kwargs.values()]))
        if wide and isinstance(result, torch.Tensor) and result.dtype == torch.float32:
            narrowing.add(index)
        return result

    def rounded(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        index, result = next(calls), function(*args, **kwargs)
        return torch.from_numpy(cast(to_array(result), np.float32).astype(np.float64)) if index in narrowing else result

    with highest_precision(), functions(watch):
        run(modules["float32"], cast(tuple(inputs), np.float32))
    calls = itertools.count()
    with highest_precision(), lifted(), functions(rounded):
        return run(modules["float64"], inputs)


def _distance(first: Array, second: Array) -> Array:
    """|a - b|, which is 0 where both are the same infinity or the lowest number of a dtype, as masks hold, and for
    booleans 1 where they differ."""
    if first.dtype.kind in "biu":
        return np.abs(np.subtract(first, second, dtype=np.float64))
    masked = (np.abs(first) >= MASKING) & (np.abs(second) >= MASKING) & (np.sign(first) == np.sign(second))
    where = (first != second) & ~masked
    return np.abs(np.subtract(first, second, where=where, out=np.zeros(first.shape, first.dtype)))


def _disturbed(
    module: Module, inputs: Sequence[Nested], rng: np.random.Generator, unit: float
) -> tuple[Outputs, dict[str, Call]]:
    """A run in which every submodule's output is perturbed by one rounding."""
    calls: dict[str, Call] = {}

    def disturb(name: str, caller: str, part: Module, compute: Compute, arguments: Given) -> object:
        output = compute(*arguments)
        moved = [_tensor(_moved(to_array(tensor), rng, unit)) for tensor in tensors_of(output)]
        calls.update(_apart(name, part, arguments, {}, _silent)[0])
        calls[name] = Call(
            (), tuple(to_array(tensor) for tensor in moved[: 1 if _is_attention(part) else None]), caller
        )
        return _replaced(part, output, moved)

    with watched({name: part for name, part in module.named_modules() if name}, disturb):
        outputs = run(module, inputs)
    return outputs, calls


# --- Inputs of few values --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaseSweep:
    """Outputs of a module that is fed one number per sample for many numbers: ``exact`` in float64, ``single`` in
    float32, and ``truth`` in float64 from the rounded numbers."""

    exact: Array
    single: Array
    truth: Array


def scalar_fed(inputs: Sequence[Array], calls: Calls) -> dict[str, int]:
    """Modules whose only input is one of the network's inputs of shape (B,), and the index of that input."""
    indices = {}
    for name, call in calls.items():
        arrays = leaves(list(call.inputs))
        for index, value in enumerate(inputs):
            if "#" not in name and len(arrays) == 1 and np.ndim(value) == 1 and np.array_equal(arrays[0], value):
                indices[name] = index
    return indices


def sweep(modules: Mapping[str, Module], names: Collection[str], values: Array) -> dict[str, CaseSweep]:
    """Run each of these submodules alone on ``values`` (n,), float64 or integer."""
    narrow, sweeps = cast(values, np.float32), {}
    double, single = (dict(modules[dtype].named_modules()) for dtype in ("float64", "float32"))
    for name in names:
        with highest_precision():
            rounded = run(single[name], (narrow,))[0]
            with lifted():
                exact, truth = (run(double[name], (points,))[0] for points in (values, cast(narrow, np.float64)))
        sweeps[name] = CaseSweep(exact, rounded, truth)
    return sweeps


def module_names(module: Module) -> list[str]:
    """The paths of all submodules, and of their recorded parts."""
    names = []
    for name, part in module.named_modules():
        if name:
            names += [name, *(f"{name}.{step}" for step in _steps_of(part))]
    return names


def record(
    module: Module, inputs: Sequence[Nested], names: Collection[str] | None = None, note: Note = _silent,
    output_names: list[str] | None = None,
) -> tuple[Outputs, dict[str, Call]]:  # fmt: skip
    """Run ``module``; returns its outputs, and every call of its submodules in order of completion.

    A submodule that is called too often is not recorded, which is reported to ``note``.
    """
    calls: dict[str, Call] = {}

    def keep(name: str, caller: str, part: Module, compute: Compute, arguments: Given) -> object:
        inputs, input_names = _inputs(part, *arguments)
        output = compute(*arguments)
        path = layer_of(name)
        steps = [step for step in _steps_of(part) if names is None or f"{path}.{step}" in names]
        if steps:
            inner_calls, recomputed = _apart(name, part, arguments, {}, note)
            _check_apart(name, recomputed, output)
            calls.update({inside(name, step): inner_calls[inside(name, step)] for step in steps if inner_calls})
        calls[name] = Call(inputs, _outputs(part, output), caller, input_names)
        return output

    parts = {name: part for name, part in module.named_modules() if name and (names is None or name in names)}
    with watched(parts, keep) as too_often:
        outputs = run(module, inputs, output_names)
    for name in too_often:
        note(f"{name} is called more than {MOST_CALLS} times in one pass and not recorded; tap the enclosing layers")
        lost = {name, *(f"{name}.{step}" for step in _steps_of(parts[name]))}
        for call in [call for call in calls if layer_of(call) in lost]:
            del calls[call]
    return outputs, calls


def isolate(module: Module, inputs: Sequence[Nested], answers: Calls) -> tuple[Outputs, dict[str, Call]]:
    """Run ``module`` with the calls of ``answers`` isolated (activation patching).

    Each of them computes from its answer's inputs and passes on its answer's outputs. Returns the outputs of the
    module, and for each call its actual inputs and the outputs of its own computation. A call whose inputs have other
    shapes than its answer's is not isolated: rounding may choose other tokens for an expert, for example.
    """
    calls: dict[str, Call] = {}

    def answer(name: str, caller: str, part: Module, compute: Compute, arguments: Given) -> object:
        (inputs, input_names), expected = _inputs(part, *arguments), answers.get(name)
        if expected is not None and _shapes(inputs) != _shapes(expected.inputs):
            expected = None
        if expected is not None:
            arguments = _fed(part, arguments, expected)
        output = compute(*arguments)
        if any(inside(name, step) in answers for step in _steps_of(part)):
            inner_calls, recomputed = _apart(name, part, arguments, answers, _silent)
            calls.update({step: call for step, call in inner_calls.items() if step in answers})
            output = _replaced(part, output, recomputed)
        if expected is None:
            return output
        calls[name] = Call(inputs, _outputs(part, output), caller, input_names)
        return _replaced(part, output, [_tensor(value) for value in expected.outputs])

    layers = {layer_of(name) for name in answers}
    owners = {name.rpartition(".")[0] for name in layers}
    parts = {name: part for name, part in module.named_modules()
             if name in layers or (name in owners and _steps_of(part))}  # fmt: skip
    with watched(parts, answer):
        outputs = run(module, inputs)
    return outputs, calls


def unused_calls(
    module: Module, inputs: Sequence[Nested], outputs: Outputs, calls: Calls, names: Collection[str]
) -> list[str]:
    """Those of the ``calls`` of these submodules that no output of ``module`` depends on: no function of torch leads
    from a call to an output, or out of torch, and other numbers in place of its outputs change no output, bit for bit.
    ``outputs`` and ``calls`` are of the same inputs."""
    used, unused = _used_calls(module, inputs, names), []
    for name, call in calls.items():
        if layer_of(name) in names and name not in used and all(a.dtype.kind == "f" for a in leaves(call.outputs)):
            others = tuple(1.0 - 2.0 * output for output in call.outputs)
            changed, _ = isolate(module, inputs, {name: replace(call, outputs=others)})
            if len(changed) == len(outputs) and all(
                np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
                for one, other in zip(changed, outputs, strict=True)
            ):
                unused.append(name)
    return unused


_ABOUT = {"size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size",
                 "is_floating_point", "is_complex", "is_contiguous", "__len__", "untyped_storage"}  # fmt: skip
"""Methods of a tensor that tell nothing of its values."""

_ABOUT_FIELDS = {"shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout", "is_leaf", "grad_fn",
                        "itemsize", "is_nested", "is_sparse", "is_quantized", "is_meta"}  # fmt: skip


_BY_VALUES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount", "repeat_interleave"}
"""Functions whose outputs have sizes that values determine, as those of an index of booleans are."""


def _used_calls(module: Module, inputs: Sequence[Nested], names: Collection[str]) -> set[str]:
    """The calls of these submodules from which functions of torch lead to an output of ``module``, or out of torch,
    such as to a number that the code compares. Tensors that share memory count as one."""
    import torch

    marks: dict[int, tuple[Tensor, frozenset[str]]] = {}  # by memory, with a tensor that keeps it
    used: set[str] = set()

    def memory(tensor: Tensor) -> int:
        return int(tensor.untyped_storage()._cdata)

    def marked(value: object) -> frozenset[str]:
        memories = map(memory, tensors_of(value))
        return frozenset().union(*(marks[place][1] for place in memories if place in marks))

    def mark(value: object, called: frozenset[str]) -> None:
        for tensor in tensors_of(value):
            first, before = marks.get(memory(tensor), (tensor, frozenset[str]()))
            marks[memory(tensor)] = first, before | called

    def follow(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        called = marked([*args, *kwargs.values()])
        result = function(*args, **kwargs)
        if called:
            name = getattr(function, "__name__", "")
            field_name = getattr(getattr(function, "__self__", None), "__name__", "") if name == "__get__" else ""
            about = name in _ABOUT or field_name in _ABOUT_FIELDS
            made = tensors_of(args[:1] if result is None else result)
            mark(made, called)
            index = name == "__getitem__" and any(not tensor.dtype.is_floating_point for tensor in tensors_of(args[1:]))
            if index or name in _BY_VALUES or not (made or about):
                used.update(called)
        return result

    def keep(name: str, _: str, __: Module, compute: Compute, arguments: Given) -> object:
        output = compute(*arguments)
        with torch._C.DisableTorchFunction():
            mark(output, frozenset({name}))
        return output

    parts = {name: part for name, part in module.named_modules() if name in names}
    with functions(follow), watched(parts, keep):
        run(module, inputs)  # which converts the outputs to arrays, so that they leave torch
    return used


def run(module: Module, inputs: Sequence[Nested], names: list[str] | None = None, fast: bool = False) -> Outputs:
    """The outputs of ``module`` for arrays (or lists of arrays), without gradients; their names in a dictionary or
    similar output are appended to ``names``. ``fast``: as torch runs it where no submodule is looked at."""
    import torch

    with torch.no_grad(), nullcontext() if fast else _by_submodules(module), _equals_in_order():
        output = module(*(_tensor(value) for value in inputs))
    if names is not None:
        named = has_names(output)
        names[:] = [name if named else "" for name, _ in named_leaves(output, torch.is_tensor)]
    return tuple(to_array(tensor) for tensor in tensors_of(output))


@contextmanager
def _by_submodules(module: Module) -> Iterator[None]:
    """Inside, torch's own encoders and masked attention compute as in training: ``torch.nn.TransformerEncoderLayer``
    calls its submodules in place of one function without calls to tap, ``torch.nn.TransformerEncoder`` keeps padding,
    and a query that sees no key gets zeros in place of NaN.
    """
    from torch import nn

    forward = nn.MultiheadAttention.forward

    @functools.wraps(forward)
    def attend(self: MultiheadAttention, *args: Any, **kwargs: Any) -> object:
        arguments = inspect.signature(forward).bind(self, *args, **kwargs).arguments
        # Without a mask, every query sees a key.
        if arguments.get("attn_mask") is None and arguments.get("key_padding_mask") is None:
            return forward(self, *args, **kwargs)
        with masked_rows(), _unfused():
            return forward(self, *args, **kwargs)

    with patch.object(nn.MultiheadAttention, "forward", attend):
        fused = any(isinstance(part, nn.TransformerEncoderLayer) for part in module.modules())
        with _unfused() if fused else nullcontext():
            yield


@contextmanager
def _equals_in_order() -> Iterator[None]:
    """Inside, ``topk``, ``sort`` and ``argsort`` keep equal values in their order, as Keras's functions do; torch does
    not define their order. A router, for example, chooses among equal values if its inputs are zeros."""
    import torch

    original = torch.sort

    def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True, **out: Any) -> Any:
        return original(input, stable=True, dim=dim, descending=descending, **out)

    def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        order: Tensor = sort(input, dim, descending)[1]
        return order

    def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        return torch.return_types.topk(tuple(part.narrow(dim, 0, k) for part in sort(input, dim, largest)))

    with ExitStack() as stack:
        for function in (sort, argsort, topk):
            for place in (torch, torch.Tensor):
                stack.enter_context(patch.object(place, function.__name__, function))
        yield


def _unfused() -> AbstractContextManager[object]:
    """A context whose only effect is that torch takes no fast path: it takes none under a ``TorchFunctionMode``."""
    return functions(lambda function, args, kwargs: function(*args, **kwargs))


def functions(
    answer: Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], object],
) -> AbstractContextManager[object]:
    """A context in which ``answer(function, args, kwargs)`` replaces every function of torch that is called."""
    from torch.overrides import TorchFunctionMode

    class Functions(TorchFunctionMode):
        def __torch_function__(
            self, function: Callable[..., Any], _: object, args: tuple[Any, ...] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> object:  # fmt: skip
            return answer(function, args, kwargs or {})

    return Functions()


def masked_rows() -> AbstractContextManager[object]:
    """Inside, ``torch.nn.functional.softmax`` is zero where all scores are -inf."""
    from torch.nn import functional

    return patch.object(functional, "softmax", _softmax)


def _softmax(scores: Tensor, dim: int = -1, **_: object) -> Tensor:
    """The softmax that is zero where all scores are -inf, as in ``scaled_dot_product_attention`` since torch 2.5."""
    return scores.softmax(dim).masked_fill((scores == -float("inf")).all(dim, keepdim=True), 0.0)


@contextmanager
def _changed(read: Callable[[], Any], change: Callable[[Any], object], value: object) -> Iterator[Any]:
    before = read()
    change(value)
    try:
        yield read()
    finally:
        change(before)


def highest_precision() -> AbstractContextManager[str]:
    """Inside, float32 matrix products run at full precision, whatever was set before; yields the setting."""
    import torch

    return _changed(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")


@contextmanager
def watched(parts: Mapping[str, Module], handle: Handle, limit: int = MOST_CALLS) -> Iterator[Collection[str]]:
    """Inside, calls of these modules go to ``handle(name, caller, module, compute, (args, kwargs))``, where ``name`` is
    the call's name, ``caller`` the innermost enclosing one and ``compute(args, kwargs)`` the module's own computation.
    Yields the names of modules that are called too often; only the first ``limit`` calls are handled. What the user's
    hooks of a submodule compute is outside of its call, as if the enclosing module computed it.

    Hooks are not used, since before torch 2 they do not see keyword arguments.
    """
    from torch import nn

    names = {id(part): name for name, part in parts.items()}
    count = dict.fromkeys(names.values(), 0)
    within = [""]
    call: Callable[..., object] = nn.Module.__call__

    def seen(self: Module, *args: object, **kwargs: object) -> object:
        name = names.get(id(self))
        if name is None or count[name] > limit:
            return call(self, *args, **kwargs)
        count[name] += 1
        if count[name] > limit:
            return call(self, *args, **kwargs)
        called = call_name(name, count[name])
        if not name or not has_hooks(self):
            return handled(called, self, functools.partial(call, self), args, kwargs)
        forward = self.forward

        @functools.wraps(forward)
        def between_hooks(*args: object, **kwargs: object) -> object:
            with patch.object(self, "forward", forward):
                return handled(called, self, forward, args, kwargs)

        with patch.object(self, "forward", between_hooks):
            return call(self, *args, **kwargs)

    def handled(
        name: str, part: Module, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        within.append(name)
        try:
            compute = lambda positional, named: function(*positional, **named)  # noqa: E731
            return handle(within[-1], within[-2], part, compute, (args, kwargs))
        finally:
            within.pop()

    too_often: list[str] = []
    # On the class, since Python looks up __call__ there and not on the object.
    with patch.object(nn.Module, "__call__", seen):
        yield too_often
        too_often += [name for name, calls in count.items() if calls > limit]


def has_hooks(part: Module) -> bool:
    """Whether a module has forward hooks of the user, not only those with which torch computes weights."""
    if type(part).__module__.startswith("torch.jit."):  # its forward cannot be replaced
        return False
    hooks = (*part._forward_pre_hooks.values(), *part._forward_hooks.values())
    return any(not str(getattr(hook, "__module__", "")).startswith("torch.nn.utils.") for hook in hooks)


def _inputs(
    part: Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[tuple[Nested, ...], tuple[str, ...]]:
    """Copies of the tensors among a module's arguments, in the order of its signature, nested ones in lists; and their
    parameters' names."""
    order = parameter_names(part)
    named = [*zip([*order, *([""] * len(args))], args), *_ordered(part, kwargs).items()]
    held = [(name, value) for name, value in named if tensors_of(value)]
    return tuple(_nested(value) for _, value in held), tuple(name for name, _ in held)


def _shapes(values: Sequence[Nested]) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in leaves(list(values))]


def _outputs(part: Module, output: object) -> tuple[Array, ...]:
    """Copies of the tensors that a module returns; for attention only the output, not the weights."""
    return tuple(to_array(tensor) for tensor in tensors_of(output)[: 1 if _is_attention(part) else None])


def _fed(part: Module, arguments: Given, answer: Call) -> Given:
    """The arguments with their tensors replaced by the answer's inputs."""
    values = iter([_tensor(leaf) for leaf in leaves(list(answer.inputs))])
    args = tuple(_filled(value, values) for value in arguments[0])
    return args, {name: _filled(value, values) for name, value in _ordered(part, arguments[1]).items()}


def _replaced(part: Module, output: object, tensors: Sequence[Tensor]) -> object:
    """The output with its tensors replaced by these."""
    if _is_attention(part) and isinstance(output, tuple):
        return (tensors[0], *output[1:])
    return _filled(output, iter(tensors))


def parameter_names(part: Module) -> list[str]:
    """The names of the positional parameters of a module's ``forward``."""
    try:
        parameters = inspect.signature(part.forward).parameters.items()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in parameters if parameter.kind in positional]


def _ordered(part: Module, kwargs: Mapping[str, object]) -> dict[str, object]:
    order = parameter_names(part) if kwargs else []
    return dict(sorted(kwargs.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def tensors_of(value: object) -> list[Tensor]:
    """The tensors of nested lists, tuples, dictionaries and dataclasses, in order."""
    import torch

    return [leaf for _, leaf in named_leaves(value, torch.is_tensor)]


def named_leaves(value: object, is_leaf: Callable[[object], bool]) -> list[tuple[str, Any]]:
    """The leaves of nested lists, tuples, dictionaries and dataclasses, in order, by their keys and numbers, such as
    "hidden.0"; a part of one leaf needs no number."""
    if is_leaf(value):
        return [("", value)]
    value = by_name(value)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    named: list[tuple[str, Any]] = []
    for key, item in items:
        inner = named_leaves(item, is_leaf)
        named += [(f"{key}.{name}" if len(inner) > 1 else str(key), leaf) for name, leaf in inner]
    return named


def by_name(value: object) -> object:
    """A dataclass as a dictionary, without fields that are None."""
    if isinstance(value, dict) or not is_dataclass(value) or isinstance(value, type):
        return value
    named = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: item for name, item in named.items() if item is not None}


def has_names(value: object) -> bool:
    """Whether a dictionary or a dataclass is among nested lists and tuples."""
    value = by_name(value)
    return isinstance(value, dict) or (isinstance(value, (list, tuple)) and any(map(has_names, value)))


def _filled(value: object, tensors: Iterator[Tensor]) -> object:
    """``value`` with each of its tensors replaced by the next of ``tensors``."""
    import torch

    if isinstance(named := by_name(value), dict) and not isinstance(value, dict):
        filled: Any = value
        return replace(filled, **{name: _filled(item, tensors) for name, item in named.items()})
    if isinstance(value, dict):
        return type(value)((key, _filled(item, tensors)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        items: list[Any] = [_filled(item, tensors) for item in value]
        # A named tuple takes its items as separate arguments.
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, torch.Tensor):
        tensor = next(tensors)
        # What a module rounds to 16 bits is recorded in more.
        return tensor.to(value.dtype) if value.dtype in (torch.bfloat16, torch.float16) else tensor
    return value


def _nested(value: object) -> Nested:
    if isinstance(value, (list, tuple)):
        return [_nested(item) for item in value if tensors_of(item)]
    arrays = [to_array(tensor) for tensor in tensors_of(value)]
    return arrays if isinstance(value, dict) else arrays[0]


def as_array(tensor: Tensor) -> Array:
    """A tensor's values, with its memory where NumPy has the dtype."""
    import torch

    tensor = tensor.detach().cpu()
    # NumPy has no bfloat16; nothing else is to be computed in 16 bits.
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()


def to_array(tensor: Tensor) -> Array:
    """A copy of a tensor's values, in C order. A layer's output is the next one's input, so calls share copies; none
    may be changed."""
    values = as_array(tensor)
    key = (tensor.data_ptr(), values.shape, values.dtype.str)
    cached = _COPIES.get(key)
    bits = f"u{values.itemsize}"
    # The bits are compared, since NaN differs from itself; the 16 bytes of a complex128 have no integer dtype.
    if cached is None or values.itemsize > 8 or not np.array_equal(cached.view(bits), values.view(bits)):
        cached = _COPIES[key] = np.array(values, copy=True, order="C")
    return cached


_COPIES: WeakValueDictionary[tuple[object, ...], Array] = WeakValueDictionary()
"""Copies that are in use, by the address of their tensor, which another tensor may have meanwhile."""


def _tensor(value: Any) -> Any:
    import torch

    if isinstance(value, np.ndarray):
        # A copy, since from_numpy shares memory and modules may change their inputs.
        return torch.from_numpy(np.array(value, copy=True))
    return [_tensor(item) for item in value] if isinstance(value, (list, tuple)) else value


# --- The insides of modules ------------------------------------------------------------------------------------------


def _is_attention(part: Module) -> TypeGuard[MultiheadAttention]:
    from torch import nn

    return isinstance(part, nn.MultiheadAttention)


def _is_deep(part: Module) -> TypeGuard[RNNBase]:
    from torch import nn

    return isinstance(part, nn.RNNBase) and part.num_layers > 1


def _steps_of(part: Module) -> tuple[str, ...]:
    """The recorded parts of a module that is one call to torch: :data:`ATTENTION`, or ``layer_<n>`` of an RNN."""
    if _is_attention(part):
        return ATTENTION
    if _is_deep(part):
        return tuple(f"layer_{layer}" for layer in range(part.num_layers))
    return ()


def _apart(
    name: str, part: Module, arguments: Given, answers: Calls, note: Note
) -> tuple[dict[str, Call], list[Tensor]]:
    """The calls inside a module, recomputed from its parameters and inputs, and the resulting output tensors; empty if
    there are none, or, with a note, if the module does more than is recomputed here.

    Calls in ``answers`` are isolated, as :func:`isolate` does with modules.
    """
    if _is_attention(part):
        calls, output = _attention(name, part, arguments, answers, note)
        return calls, [] if output is None else [output]
    return _recurrent(name, part, arguments, answers, note) if _is_deep(part) else ({}, [])


def _recurrent(
    name: str, part: RNNBase, arguments: Given, answers: Calls, note: Note
) -> tuple[dict[str, Call], list[Tensor]]:
    """The layers of ``torch.nn.LSTM``, ``GRU`` or ``RNN``; each maps a sequence to a sequence and last states."""
    import torch

    bound = inspect.signature(part.forward).bind(*arguments[0], **arguments[1]).arguments
    tokens, start = bound["input"], bound.get("hx")
    if not isinstance(tokens, torch.Tensor) or tokens.ndim != 3:
        note(f"{name} is fed a packed sequence or one without a batch, so its layers are not recorded")
        return {}, []
    ways = 2 if part.bidirectional else 1
    size = part.proj_size or part.hidden_size
    batch = tokens.shape[0 if part.batch_first else 1]
    widths = (size, part.hidden_size) if part.mode == "LSTM" else (size,)
    starts = start if isinstance(start, tuple) else (start,)
    if start is None:
        starts = tuple(tokens.new_zeros(ways * part.num_layers, batch, width) for width in widths)
    # What torch.nn.LSTM, GRU and RNN call, here with the weights of one layer.
    compute = getattr(torch._VF, {"LSTM": "lstm", "GRU": "gru"}.get(part.mode, part.mode.lower()))
    count = len(part._flat_weights) // part.num_layers
    calls, states = {}, []
    for layer in range(part.num_layers):
        call, span = inside(name, f"layer_{layer}"), slice(layer * ways, (layer + 1) * ways)
        answer, weights = answers.get(call), part._flat_weights[layer * count : (layer + 1) * count]
        first = tuple(state[span] for state in starts)
        fed = tokens if answer is None else _tensor(answer.inputs[0])
        # After the weights: bias, one layer, no dropout, not training.
        outputs = compute(fed, first if part.mode == "LSTM" else first[0], weights, part.bias, 1, 0.0, False,
                          part.bidirectional, part.batch_first)  # fmt: skip
        calls[call] = Call((to_array(tokens),), tuple(map(to_array, outputs)), name)
        handed = list(outputs) if answer is None else [_tensor(array) for array in answer.outputs]
        tokens = handed[0]
        states.append(handed[1:])
    return calls, [tokens, *(torch.cat(state) for state in zip(*states))]


def _attention(
    name: str, part: MultiheadAttention, arguments: Given, answers: Calls, note: Note
) -> tuple[dict[str, Call], Tensor | None]:
    """The four calls inside ``torch.nn.MultiheadAttention``, recomputed from its parameters and inputs, and its output,
    in the module's own layout; empty and ``None``, with a note, if it has additional keys. Tokens without a batch axis
    are one sample.

    Calls in ``answers`` are isolated, as :func:`isolate` does with modules.
    """
    from torch.nn.functional import linear

    bound = inspect.signature(part.forward).bind(*arguments[0], **arguments[1]).arguments
    tokens = _tokens(name, part, bound, note)
    if tokens is None:
        return {}, None
    calls: dict[str, Call] = {}

    def project(step: str, tokens: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        call = inside(name, step)
        answer = answers.get(call)
        projected = linear(tokens if answer is None else _tensor(answer.inputs[0]), weight, bias)
        calls[call] = Call((to_array(tokens),), (to_array(projected),), name)
        return projected if answer is None else _tensor(answer.outputs[0])

    weights: tuple[Tensor, ...] = (part.q_proj_weight, part.k_proj_weight, part.v_proj_weight)
    # With kdim or vdim, torch keeps three separate weights.
    weights = weights if part.in_proj_weight is None else part.in_proj_weight.chunk(3)
    biases = (None,) * 3 if part.in_proj_bias is None else part.in_proj_bias.chunk(3)
    width = part.embed_dim // part.num_heads
    query, key, value = (
        project(*inputs).unflatten(-1, (part.num_heads, width)).transpose(1, 2)
        for inputs in zip(ATTENTION[:3], tokens, weights, biases)
    )
    scores = query * width**-0.5 @ key.transpose(-1, -2)
    mask = _additive_mask(part, bound, scores)
    if mask is not None and bool((mask == -float("inf")).all(-1).any()):
        note(f"{name}{KEYLESS}")
    attended = _softmax(scores if mask is None else scores + mask) @ value
    output = project("out", attended.transpose(1, 2).flatten(2), part.out_proj.weight, part.out_proj.bias)
    if bound["query"].ndim == 2:
        return calls, output[0]
    return calls, output if part.batch_first else output.transpose(0, 1)


def _tokens(name: str, part: MultiheadAttention, bound: Mapping[str, Any], note: Note) -> list[Tensor] | None:
    """Query, key and value as (B, L, E), or ``None`` if the keys are not only these."""
    tokens = [bound.get(step) for step in ATTENTION[:3]]
    extras = ["bias_k"] if part.bias_k is not None else []
    extras += ["add_zero_attn"] if part.add_zero_attn else []
    ranks = {None if tensor is None else tensor.ndim for tensor in tokens}
    if not extras and ranks not in ({2}, {3}):
        extras = ["inputs other than query, key and value"]
    if extras:
        note(f"{name} is attention with {', '.join(extras)}, so its parts are not recorded")
        return None
    present = [tensor for tensor in tokens if tensor is not None]
    if ranks == {2}:
        return [tensor[None] for tensor in present]
    return [tensor if part.batch_first else tensor.transpose(0, 1) for tensor in present]


def _additive_mask(part: MultiheadAttention, bound: Mapping[str, Any], scores: Tensor) -> Tensor | None:
    """What the masks add to the scores (B, heads, L, S): -inf where a mask of bool is true.

    Without weights and without a mask of keys, ``is_causal`` replaces the mask, as in torch 2.0 and later.
    """
    import torch

    attended, padded = bound.get("attn_mask"), bound.get("key_padding_mask")
    if bound.get("is_causal") and padded is None and not bound.get("need_weights", True):
        attended = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    masks = [] if attended is None else [attended if attended.ndim == 2 else attended.unflatten(0, scores.shape[:2])]
    masks += [] if padded is None else [padded.reshape(-1, 1, 1, padded.shape[-1])]
    added = [torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device).masked_fill(mask, -float("inf"))
             if mask.dtype == torch.bool else mask for mask in masks]  # fmt: skip
    return sum(added[1:], added[0]) if added else None


def _check_apart(name: str, recomputed: Sequence[Tensor], output: object) -> None:
    """Raise :class:`Refusal` if the recomputed output is not the module's own."""
    import torch

    for ours, actual in zip(recomputed, tensors_of(output)):
        # The bound is one for float64.
        if actual.dtype != torch.float64:
            continue
        error = float((ours - actual).norm() / actual.norm().clamp_min(1e-300))
        # Not `>`, which is false for NaN.
        if not error <= RECOMPOSED:
            fix = f"leave its parts out with --leave-out '{layer_of(name)}.*'"
            raise Refusal(6, name, f"its output is {error:.1e} off the one recomputed from its parameters", fix)


# --- True float64 ----------------------------------------------------------------------------------------------------

_READING = frozenset({"view", "frombuffer"})
"""Functions of torch whose dtype argument describes raw bytes."""

_SUMS = frozenset({
    "matmul", "rmatmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "einsum", "tensordot", "addmm", "addmv", "addbmm",
    "baddbmm", "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "scaled_dot_product_attention", "softmax", "log_softmax", "sum",
    "multi_head_attention_forward", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm",
    "local_response_norm", "normalize", "nansum", "mean", "nanmean", "var", "std", "norm", "vector_norm", "prod",
    "cumsum", "cumprod", "logsumexp", "cdist", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "embedding_bag", "lstm", "gru", "rnn_tanh", "rnn_relu",
})  # fmt: skip
"""Functions of torch that add many numbers."""


@contextmanager
def lifted() -> Iterator[None]:
    """Inside, float32 is float64: it is the default dtype, and replaces float32 in the code.

    ``module.double()`` alone keeps tables that were computed in float32 and casts to float32 in the code: errors of
    2e-6. An epsilon that is that of the dtype, in ``nn.RMSNorm``, stays that of float32: it is a constant of the model.

    16 bits in the code stay: a rounding that is written down is part of the model, and what torch computes with its
    result has torch's dtype. Sums of many numbers in 16 bits, which no other library adds in the same order, raise
    :class:`Refusal`. The weights of a module that is converted as a whole, as by ``module.half()``, are only stored.
    """
    import torch

    sixteen = (torch.float16, torch.bfloat16)
    wide: dict[object, object] = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    wide_storage: dict[object, object] = dict.fromkeys(sixteen, torch.float64)
    # Tensor.type takes a class of tensors or its name as well as a dtype.
    for kind, lifts in (("Float", wide), ("Half", wide_storage), ("BFloat16", wide_storage)):
        lifts[getattr(torch, f"{kind}Tensor")], lifts[f"torch.{kind}Tensor"] = torch.DoubleTensor, "torch.DoubleTensor"
    storing: list[Module] = []
    convert: Callable[..., object] = torch.nn.Module._apply
    enter: Callable[..., object] = torch.autocast.__enter__

    def converting(module: Module, *args: Any, **kwargs: Any) -> object:
        storing.append(module)
        try:
            return convert(module, *args, **kwargs)
        finally:
            storing.pop()

    def entering(autocast: Any) -> object:
        if autocast._enabled and autocast.device == "cpu":
            what = "computes under torch.autocast, whose sums in 16 bits no port can repeat"
            raise Refusal(6, "the reference", what, "let the module use it only if self.training is true")
        return enter(autocast)

    def lift(value: object) -> object:
        # Only these are looked up: arrays and lists cannot be hashed.
        if not isinstance(value, (torch.dtype, type, str)):
            return value
        return wide_storage.get(value, wide.get(value, value)) if storing else wide.get(value, value)

    def in_float64(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        name = getattr(function, "__name__", "")
        # Methods of tensors that state the dtype by their name.
        if name == "float" or (storing and name in ("half", "bfloat16")):
            return args[0].double()
        if name == "rms_norm" and (args[3] if len(args) > 3 else kwargs.get("eps")) is None:
            args, kwargs = args[:3], {**kwargs, "eps": torch.finfo(torch.float32).eps}
        # torch.load makes an empty tensor of the stored dtype and gives it the stored bytes.
        empty = name in ("tensor", "empty") and bool(args) and _is_nothing(args[0])
        if name not in _READING and not empty:
            args, kwargs = tuple(map(lift, args)), {key: lift(value) for key, value in kwargs.items()}
        is_sixth = name == "hardsigmoid" and args[0].dtype is torch.float64 and torch.is_grad_enabled()
        result = _hardsigmoid(*args, **kwargs) if is_sixth else function(*args, **kwargs)
        if name.strip("_") in _SUMS and any(tensor.dtype in sixteen for tensor in tensors_of(result)):
            what = f"computes {name.strip('_')} in 16 bits, and no port can repeat the roundings of its sums"
            raise Refusal(6, "the reference", what, "compute it in float32, and round its result if need be")
        return result

    with _default_dtype(torch.float64), functions(in_float64), ExitStack() as stack:
        stack.enter_context(patch.object(torch.nn.Module, "_apply", converting))
        stack.enter_context(patch.object(torch.autocast, "__enter__", entering))
        yield


def _hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """``hardsigmoid`` with the same values: in float64 as well, torch's own gradient multiplies by the float32 number
    that is nearest to 1 / 6."""
    import torch

    result = torch.nn.functional.relu6(input + 3) / 6
    return input.copy_(result) if inplace else result


def _is_nothing(value: object) -> bool:
    """Whether these are the values, or the shape, of an empty tensor."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(size, int) and size == 0 for size in value[:1]) and len(value) < 2
    return isinstance(value, int) and value == 0


def _default_dtype(dtype: Dtype) -> AbstractContextManager[Dtype]:
    import torch

    return _changed(torch.get_default_dtype, torch.set_default_dtype, dtype)


# --- The user's model, built twice -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensors:
    """One tensor of the state_dict: its shape, its stored dtype, and the SHA-256 of its float32 (or integer) values in
    C order; ``None`` if it was recomputed because it was stored in 16 bits."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str | None


@dataclass
class Subject:
    """A model in float64 and in float32, in evaluation mode, with the same weights; ``notes`` describe changes to its
    tables, and ``shifts`` are those of its random biases."""

    modules: dict[str, Module]
    make_inputs: MakeInputs | None
    tensors: dict[str, Tensors]
    notes: list[str] = field(default_factory=list)
    shifts: Mapping[str, Array] = field(default_factory=dict)

    @property
    def evaluating(self) -> bool:
        """Whether all modules are in evaluation mode."""
        return not any(part.training for module in self.modules.values() for part in module.modules())


def build(
    target: str, checkpoint: str, key: str | None = None, tensors: Mapping[str, Array] | None = None,
    arguments: Mapping[str, object] | None = None, spare: Collection[str] = (),
    carried: Mapping[str, str] = MappingProxyType({}),
) -> Subject:  # fmt: skip
    """Build the model of ``module:factory`` with the checkpoint's weights, in float32 and in float64.

    ``tensors`` are those of the checkpoint, if they were read before; the model need not have the ``spare`` ones.
    ``carried`` are those that the port holds as they are, which are not recomputed: for each name the tensor that the
    port gets, which is another one for a tied tensor. ``arguments`` are the factory's, by name.
    """
    factory = _find_factory(target)
    import torch

    if arguments:
        factory = functools.partial(factory, **arguments)
    state = None if takes_path(factory, target) else _Checkpoint(checkpoint, key, tensors, spare)
    single: Fresh = {}
    double: Fresh = {}
    with _default_dtype(torch.float32), _before_loading(single):
        narrow, make_inputs = _make(factory, target, checkpoint, state)
    with lifted(), _before_loading(double):
        wide, _ = _make(factory, target, checkpoint, state)
    # One without tensors, such as an activation, may be shared by all models.
    own_parts = {id(part) for part in narrow.modules() if part is narrow or named_tensors(part)}
    if not own_parts.isdisjoint(map(id, wide.modules())):
        raise Refusal(4, target, "returns the same module at every call", "build a new module in it")
    # Before the module becomes float32; "torch.float16" without its first six characters.
    stored = {name: str(tensor.dtype)[6:] for name, tensor in (state.tensors if state else narrow.state_dict()).items()}
    narrow.float()
    notes: list[str] = []
    recomputed = _settle(target, narrow, wide, single, double, notes, carried)
    summaries = {
        name: Tensors(tuple(t.shape), stored.get(name, ""), None if name in recomputed else _digest(to_array(t)))
        for name, t in narrow.state_dict().items()
    }
    return Subject({"float64": wide, "float32": narrow}, make_inputs, summaries, notes, bias_shifts(narrow, carried))


def build_alone(
    target: str, checkpoint: str | None = None, arguments: Mapping[str, object] | None = None
) -> tuple[Module, MakeInputs | None]:
    """Build the model of ``module:factory`` in float64 and in evaluation mode, with the factory's own weights; also
    returns ``make_inputs`` if the factory does. ``checkpoint`` is for a factory that takes a path."""
    factory = _find_factory(target)
    if arguments:
        factory = functools.partial(factory, **arguments)
    takes = takes_path(factory, target)
    if takes and checkpoint is None:
        raise Refusal(2, target, "takes the path of a checkpoint", "give the checkpoint as well")
    with lifted():
        module, make_inputs = _make(factory if takes else lambda _: factory(), target, checkpoint or "", None)
    return module.double(), make_inputs


def _find_factory(target: str) -> Factory:
    parted(target)
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise Refusal(5, target, f"recording needs {error.name}, which is not installed", "install torch") from None
    return find_function(target)


def find_function(target: str) -> Factory:
    """The function that ``module:name`` names, in the current folder or the environment; with ``module:name/path``, one
    that returns this part of the model. Raises :class:`Refusal`."""
    name, attributes = parted(target)
    attributes, _, path = attributes.partition("/")
    search(os.getcwd())
    resolved = _imported(name, target)
    try:
        for attribute in attributes.split("."):
            resolved = getattr(resolved, attribute)
    except AttributeError as error:
        near = difflib.get_close_matches(
            attributes, [public for public in dir(sys.modules.get(name)) if public[:1] != "_"], 1
        )
        fix = f"did you mean {name}:{near[0]}?" if near else "name a function of this module"
        raise Refusal(2, target, f"{name} has no {attributes}", fix) from error
    if not callable(resolved):
        raise Refusal(2, target, "is not a function", "name a function that returns the model")
    factory: Factory = resolved
    return _part_of(factory, path, target) if path else factory


class _FromSource(SourceFileLoader):
    """Compiles a module whenever it is imported. Python takes a compiled file for the source's if the source has the
    same time, in seconds, and size, which an edit may keep; and some compiled files without looking at the source."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


_user_finder = FileFinder.path_hook(
    (ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES), (SourcelessFileLoader, BYTECODE_SUFFIXES)
)


def _find_user_modules(folder: str) -> Any:
    """A hook of ``sys.path_hooks`` for folders that hold a user's modules, not installed ones or wdport."""
    installed = [sysconfig.get_path("stdlib"), *getattr(sys.modules.get("wdport"), "__path__", ())]
    inside = any(f"{folder}{os.sep}".startswith(f"{one}{os.sep}") for one in installed)
    if inside or re.search(r"[\\/](site|dist)-packages\b", folder):
        raise ImportError(path=folder)
    return _user_finder(folder)


def search(folder: str) -> None:
    """Look for modules in this folder first, unless Python searches it already, and compile all users' modules from
    their sources."""
    if folder not in sys.path:
        # A console script finds modules in its own folder, not in the current one.
        sys.path.insert(0, folder)
    if _find_user_modules not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_user_modules)
        sys.path_importer_cache.clear()


def _imported(name: str, target: str) -> Any:
    """The module of this name; raises :class:`Refusal`, which names the file and line whose import fails."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A process that runs a port alone refuses PyTorch, and says so.
        _, where, why = str(error).partition(" where ")
        if why:
            what = f"no module named {error.name}{where}{why}"
            raise Refusal(2, target, what, "import it in another module") from error
        if error.name and f"{name}.".startswith(f"{error.name}."):
            fix = "run in your project's folder and environment"
            raise Refusal(2, target, f"no module named {error.name}", fix) from error
        fix = "install it, or run in your project's folder and environment"
        raise Refusal(2, target, f"importing it raises {_at_line(error)}", fix) from error
    except ImportError as error:
        raise Refusal(2, target, f"importing it raises {_at_line(error)}", "correct the import") from error
    except (Exception, SystemExit) as error:  # a script without a main guard reads the command line and exits
        raise Refusal(4, target, f"importing it raises {_at_line(error)}", "correct your module") from error


def _at_line(error: BaseException) -> str:
    """An error's text, with the last line of the user's own files that led to it; a syntax error names its own."""
    library = os.path.dirname(os.__file__)
    lines = [
        f" ({os.path.basename(path)}, line {line})"
        for path, line in ((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))
        if path != __file__ and os.path.isfile(path) and not path.startswith(library) and "site-packages" not in path
    ]
    return one_line(error) + ("" if isinstance(error, SyntaxError) else "".join(lines[-1:]))


def _part_of(factory: Factory, path: str, target: str) -> Factory:
    @functools.wraps(factory)
    def part(*args: Any, **kwargs: Any) -> Any:
        built = factory(*args, **kwargs)
        model = built[0] if isinstance(built, tuple) else built
        try:
            return model.get_submodule(path)
        except AttributeError:
            near = difflib.get_close_matches(path, module_names(model), 1)
            fix = f"did you mean {near[0]}?" if near else "name a module of the model, such as encoder.layers.0"
            raise Refusal(2, target, f"the model has no part {path}", fix) from None

    return part


def parted(target: str) -> tuple[str, str]:
    """The module's name, and what follows the colon; raises :class:`Refusal`."""
    name, _, attributes = target.partition(":")
    is_path = "/" in name or name.endswith(".py")
    if name and attributes and not is_path:
        return name, attributes
    fix = "write for example my_project.model:build"
    module = re.sub(r"\.py$", "", os.path.normpath(name)).replace("/", ".") if name else ""
    if all(map(str.isidentifier, module.split("."))):
        fix = f"write {module}:{attributes or 'NAME, with the name of the function that builds the model'}"
    raise Refusal(2, target, "is not MODULE:FUNCTION", fix)


def takes_path(factory: Factory, target: str) -> bool:
    """Whether a factory requires the checkpoint's path; raises :class:`Refusal` if it requires more arguments."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(needed) > 1 or any(p.kind is p.KEYWORD_ONLY for p in needed):
        names = ", ".join(p.name for p in needed)
        fix = "give a function without required arguments, or with only the path"
        raise Refusal(2, target, f"needs the arguments {names}", fix)
    return bool(needed)


def _make(
    factory: Factory, target: str, checkpoint: str, state: _Checkpoint | None
) -> tuple[Module, MakeInputs | None]:
    """Call the factory, and load the state_dict if the factory does not do so."""
    from torch import nn

    try:
        returned = factory() if state else factory(checkpoint)
    except Refusal:
        raise
    except (Exception, SystemExit) as error:
        raise Refusal(4, target, f"raises {one_line(error)}", "correct your factory") from error
    module, make_inputs = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    module = unwrapped(module)
    if not isinstance(module, nn.Module):
        what = f"gives a {type(module).__name__}, not a torch.nn.Module"
        raise Refusal(4, target, what, "return the module, or the module and make_inputs")
    module = module.to("cpu")
    if state:
        state.load_into(module)
    return module.eval(), make_inputs


def unwrapped(module: Any) -> Any:
    """The module, and those inside it, without the wrappers of torch.compile, of activation checkpointing and of
    training on several devices, which compute the same."""
    inner = getattr(module, "_modules", {})
    parallel = ("module",) if type(module).__name__ in ("DataParallel", "DistributedDataParallel") else ()
    wrapper = next((name for name in ("_orig_mod", "_checkpoint_wrapped_module", *parallel) if name in inner), None)
    if wrapper is not None:
        return unwrapped(inner[wrapper])
    if isinstance(inner, dict):  # that of a module of TorchScript cannot be changed
        inner.update({name: unwrapped(child) for name, child in inner.items()})
    return module


class _Checkpoint:
    """A checkpoint file read by torch without running any code in it."""

    def __init__(
        self, path: str, key: str | None, tensors: Mapping[str, Array] | None = None, spare: Collection[str] = ()
    ) -> None:
        import torch

        self.path = path
        self._spare: set[int] = set()
        self.tensors: dict[str, Tensor] = {}
        if tensors is not None:
            self._state: dict[str, Tensor] = {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}
            self._spare = {id(tensor) for name, tensor in self._state.items() if name in spare}
            return
        fix = "save a plain state_dict, or give a factory that takes the path and loads the file itself"
        try:
            tree: Any = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise Refusal(3, path, f"cannot be read ({error.strerror or error})", "check the path") from None
        except Exception as error:  # for a damaged file, its unpickler raises errors of any kind
            reason = str(error).rpartition("WeightsUnpickler error: ")[2]
            what = f"torch does not load it with weights_only ({type(error).__name__}: {one_line(reason)})"
            raise Refusal(3, path, what, fix) from None
        for part in key.split(".") if key else ():
            tree = tree.get(part) if isinstance(tree, dict) else None
        if not key and not _is_state(tree) and isinstance(tree, dict):
            places = ("state_dict", "model_state_dict", "model")
            tree = next((tree[place] for place in places if _is_state(tree.get(place))), None)
        if not _is_state(tree):
            raise Refusal(3, path, f"has no state_dict{f' under {key}' if key else ''}", fix)
        self._state = dict(tree)

    def load_into(self, module: Module) -> None:
        """Load every tensor; without the wrappers' prefixes, all names except the spare ones must match. Of a tensor
        that the module has under several names, the file may have one."""
        import torch

        places: dict[object, list[str]] = {}
        for name, tensor in module.state_dict(keep_vars=True).items():
            places.setdefault(id(tensor) if isinstance(tensor, torch.Tensor) else name, []).append(name)
        expected = {name for names in places.values() for name in names}
        stripped = _stripped(self._state, expected)
        tensors = {name: t for name, t in stripped.items() if name in expected or id(t) not in self._spare}
        for tied in places.values():
            present = [name for name in tied if name in tensors]
            for name in present[1:]:
                if not _same_values(tensors[present[0]], tensors[name]):
                    what = f"{name} differs from {present[0]}, and the module has one tensor for both"
                    raise Refusal(4, self.path, what, "give the factory of this checkpoint")
            tensors.update({name: tensors[present[0]] for name in tied if present and name not in tensors})
        self.tensors = tensors
        missing, unexpected = sorted(expected - set(tensors)), sorted(set(tensors) - expected)
        fix = "give the factory of this checkpoint"
        if missing and unexpected:
            fix += ", or state the file's older names under `formerly` in the table"
        for names, what in ((missing, "lacks"), (unexpected, "has")):
            if names:
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                rest = "which the module has" if what == "lacks" else "which the module does not have"
                raise Refusal(4, self.path, f"{what} {names[0]}{more}, {rest}", fix)
        try:
            module.load_state_dict(tensors)
        except RuntimeError as error:
            what = one_line(str(error).partition("\n\t")[2] or error)
            raise Refusal(4, self.path, what, "give the factory of this checkpoint") from None


def _same_values(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())  # NaN differs from itself


def _is_state(value: object) -> TypeGuard[dict[str, Tensor]]:
    import torch

    return isinstance(value, dict) and bool(value) and all(isinstance(t, torch.Tensor) for t in value.values())


def _stripped(state: Mapping[str, Tensor], expected: Collection[str]) -> dict[str, Tensor]:
    """The tensors by the module's own names, without the prefixes that wrappers add to all of them."""
    tensors = dict(state)
    while not set(tensors) & set(expected):
        # torch.optim.swa_utils.AveragedModel adds a counter, n_averaged, whose name has no prefix.
        if all(name.startswith("module.") for name in tensors if name != "n_averaged"):
            tensors.pop("n_averaged", None)
        prefixes = ("module.", "model.", *(f"{component}." for component in COMPONENTS))
        prefix = next((p for p in prefixes if all(n.startswith(p) for n in tensors)), None)
        if prefix is None or not tensors:
            break
        tensors = {name[len(prefix) :]: tensor for name, tensor in tensors.items()}
    return {_plain(name): tensor for name, tensor in tensors.items()}


COMPONENTS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_fpw_module")
"""Attributes in which torch.compile, FullyShardedDataParallel and activation checkpointing keep the module that they
wrap: components of the names of its tensors, at any depth."""


def _plain(name: str) -> str:
    *path, last = name.split(".")
    return ".".join([*(part for part in path if part not in COMPONENTS), last])


@contextmanager
def _before_loading(fresh: Fresh) -> Iterator[None]:
    """Keep a copy of every module's buffers from before a state_dict is first loaded into it."""
    from torch import nn

    load: Callable[..., object] = nn.Module.load_state_dict

    def loading(self: Module, *args: object, **kwargs: object) -> object:
        for part in self.modules():
            for name, buffer in part.named_buffers(recurse=False):
                fresh.setdefault((part, name), buffer.detach().clone())
        return load(self, *args, **kwargs)

    with patch.object(nn.Module, "load_state_dict", loading):
        yield


def _settle(
    target: str, narrow: Module, wide: Module, single: Fresh, double: Fresh, notes: list[str],
    carried: Collection[str],
) -> Collection[str]:  # fmt: skip
    """Copy the float32 module's parameters to the float64 module, which keeps its computed tables if the checkpoint's
    equal them up to rounding and they are not ``carried``. Returns the tables that were stored in 16 bits; both modules
    then have them recomputed."""
    import torch

    parameters, wide_parameters = dict(narrow.named_parameters()), dict(wide.named_parameters())
    if set(parameters) != set(wide_parameters):
        raise Refusal(4, target, "builds different parameters in float64", "make its size independent of the dtype")
    for name, parameter in wide_parameters.items():
        parameter.data = parameters[name].data.double() if parameter.is_floating_point() else parameters[name].data
    recomputed = []
    held = _memories(named_tensors(narrow), carried)
    parts = dict(narrow.named_modules())
    for path, part in wide.named_modules():
        for name, buffer in list(part.named_buffers(recurse=False)):
            stored, where = parts[path].get_buffer(name), f"{path}.{name}".lstrip(".")
            exact, rounded = double.get((part, name)), single.get((parts[path], name))
            if not (buffer.is_floating_point() or buffer.is_complex()):
                part._buffers[name] = stored.clone()
            elif _memory(stored) in held:
                part._buffers[name] = _widened(stored)
            elif exact is None or rounded is None:
                part._buffers[name] = _widened(buffer)
                if buffer.dtype not in (torch.float64, torch.complex128):
                    notes.append(f"{where} was not computed in float64: it is the checkpoint's, rounded to float32")
            elif _is_rounding(*(_parts(_widened(values)) for values in (stored, exact, rounded))):
                part._buffers[name] = _widened(exact)
                if not buffer.is_complex() and _unit(stored) > 2.0**-24 and not torch.equal(stored, rounded.float()):
                    parts[path]._buffers[name] = rounded.float()
                    recomputed.append(where)
                    notes.append(f"{where} is stored in 16 bits and was recomputed")
            else:
                part._buffers[name] = _widened(stored)
                if not getattr(part, "track_running_stats", False):  # statistics are learned, as weights are
                    notes.append(f"{where} is the checkpoint's: the code computes other values")
    return recomputed


def _widened(values: Tensor) -> Tensor:
    import torch

    return values.to(torch.complex128) if values.is_complex() else values.double()


def _parts(values: Tensor) -> Tensor:
    """The real and imaginary parts of complex values, on a further axis."""
    import torch

    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


def _is_rounding(stored: Tensor, exact: Tensor, rounded: Tensor) -> bool:
    """Whether a stored table equals the one computed in float64 up to rounding: of its values, of intermediate integers
    up to its length (an angle p * w in float32 is off by p * 2^-24), or of the code's own float32 result."""
    if stored.shape != exact.shape or exact.shape != rounded.shape:
        return False
    rows, size = max(exact.shape, default=1), float(exact.abs().max()) if exact.numel() else 0.0
    error = float((rounded - exact).abs().nan_to_num(posinf=0.0).max()) if exact.numel() else 0.0
    slack = 8.0 * error + 4.0 * 2.0**-24 * rows * size + 4.0 * _unit(stored) * exact.abs()
    # The difference of equal infinities is NaN, so they are compared by ==.
    return bool(((stored == exact) | ((stored - exact).abs() <= slack)).all())


def _unit(values: Tensor) -> float:
    """Unit roundoff of the narrowest dtype that holds these values."""
    import torch

    for dtype, unit in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        if torch.equal(values.to(dtype).double(), values.double()):
            return unit
    return 2.0**-24


def _digest(array: Array) -> str:
    values = array.astype(np.float32) if array.dtype.kind == "f" else array
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


_STYLE = re.compile(r"\x1b\[\d+m")


MOST_LETTERS = 160
"""Letters of the text of an error of others."""


def one_line(error: object) -> str:
    kind = f"{type(error).__name__}: " if isinstance(error, BaseException) else ""
    # Keras prints parts of its messages bold.
    text = f"{kind}{' '.join(_STYLE.sub('', str(error)).split())}"
    words = text[: MOST_LETTERS - 4].rpartition(" ")[0]
    return f"{words} ..." if words and len(text) > MOST_LETTERS else text[:MOST_LETTERS]


# --- The file --------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes arrays and their index to a file that appears when it is complete."""

    def __init__(self, path: str) -> None:
        self.path = path
        folder, name = os.path.split(path)
        _remove_leftovers(folder or os.curdir, name)
        self._temporary, self._file = _new_file(os.path.join(folder, f".{name}."))
        self._archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        self._known: dict[bytes, str] = {}
        self._count = 0

    def put(self, array: ArrayLike) -> str:
        """Write ``array`` unless the file already holds it; returns its reference."""
        array = np.asarray(array)
        reference = self._known.get(_key(array))
        if reference is None:
            reference = str(self._count)
            self._count += 1
            self._add(reference, array)
            self._known[_key(array)] = reference
            for form, derived in _derived(array):
                self._known.setdefault(_key(derived), f"{reference}:{form}")
        return reference

    def close(self, index: Mapping[str, object]) -> None:
        """Write the index and rename the file to its final name."""
        self._add("index", np.frombuffer(json.dumps(index, allow_nan=False).encode(), np.uint8))
        self._archive.close()
        self._file.flush()
        # Otherwise a crash could leave the final name without the contents.
        os.fsync(self._file.fileno())
        # Before it is closed: without the lock, another process would remove it as a leftover.
        os.replace(self._temporary, self.path)
        self._file.close()

    def abandon(self) -> None:
        """Remove the unfinished file."""
        with suppress(OSError):
            os.unlink(self._temporary)
        for stream in (self._archive, self._file):
            with suppress(OSError):  # what is left in their buffers does not fit on the disk either
                stream.close()

    def _add(self, name: str, array: Array) -> None:
        # zipfile does not know the size in advance, and would refuse more than 2 GiB.
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.require(array, requirements="C"), allow_pickle=False)


def _new_file(prefix: str) -> tuple[str, BinaryIO]:
    """Create an empty file with a random name, locked while it is open."""
    while True:
        path = f"{prefix}{secrets.token_hex(8)}.wdport-tmp"
        file = open(path, "x+b")  # noqa: SIM115
        if _hold(file.fileno()) is not False and os.path.exists(path):
            return path, file
        file.close()  # another process removed it as a leftover before it was locked


def _remove_leftovers(folder: str, finished: str) -> None:
    """Remove unlocked temporary files that killed processes left for the file ``finished``."""
    pattern = re.compile(re.escape(f".{finished}.") + r"([0-9a-f]+)\.wdport-tmp", re.DOTALL)
    with suppress(OSError):
        for name in os.listdir(folder):
            match, path = pattern.fullmatch(name), os.path.join(folder, name)
            # Names of older releases have the id of the process, and no lock.
            if not match or not os.path.isfile(path) or os.path.islink(path) or os.path.exists(f"/proc/{match[1]}"):
                continue
            with suppress(OSError), open(path, "rb") as file:
                if _hold(file.fileno()):
                    os.unlink(path)


def _hold(descriptor: int) -> bool | None:
    """Lock the file; returns whether it succeeded, or ``None`` if there are no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _derived(array: Array) -> Iterator[tuple[str, Array]]:
    """Arrays that a reader of the file makes of this one, with the letters for it."""
    forms = {"": array}
    if array.dtype.kind == "f" and (array < 0).any():
        forms["p"] = np.where(array > 0, array, array.dtype.type(0))
        yield "p", forms["p"]
    for form, wide in forms.items() if array.dtype == np.float64 else ():
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float32)
        yield f"{form}s", narrow
        yield f"{form}d", narrow.astype(np.float64)


def _key(array: Array) -> bytes:
    # With dtype and shape, since different arrays may have the same bytes.
    digest = hashlib.blake2b(f"{array.dtype.str}{array.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def _described(
    observation: Observation, moves: Mapping[str, Conditioning], case: Case, put: Callable[[Array], str]
) -> dict[str, object]:
    """One case as JSON; writes its arrays to the file."""

    def refer(value: Any) -> object:
        return [refer(item) for item in value] if isinstance(value, (list, tuple)) else put(value)

    def listed(calls: Calls) -> dict[str, object]:
        return {name: [refer(call.inputs), refer(call.outputs), call.caller, list(call.names)]
                for name, call in calls.items()}  # fmt: skip

    document = {**asdict(case), "inputs": refer(observation.inputs), "outputs": refer(observation.outputs),
                "names": list(observation.names), "calls": listed(observation.calls), "single": None}  # fmt: skip
    document["conditioning"] = {
        dtype: [{name: asdict(spread) for name, spread in measured.taps.items()}, refer(measured.outputs)]
        for dtype, measured in moves.items()
    }
    single = observation.single
    if single:
        # Float64 first: where float32 is exact, it is then found to be its rounding.
        isolated = single.isolated and [[refer(ends), listed(calls)] for ends, calls in reversed(single.isolated)][::-1]
        outputs = [refer(arrays) for arrays in reversed(single.outputs)]
        document["single"] = {"inputs": refer(single.inputs), "outputs": outputs[::-1], "isolated": isolated}
    return document


def record_file(
    target: str,
    checkpoint: str,
    output: str,
    key: str | None = None,
    leave_out: Sequence[str] = (),
    say: Note = _silent,
    inputs: Sequence[Input] = (),
    keep: Sequence[str] = (),
    tensors: Mapping[str, Array] | None = None,
    arguments: Mapping[str, object] | None = None,
    only: Callable[[str], bool] | None = None,
    spare: Collection[str] = (),
    carried: Mapping[str, str] = MappingProxyType({}),
) -> Index:
    """Record ``module:factory`` with this checkpoint to ``output``; returns the file's index without its cases.

    ``key`` is the dotted key of the state_dict if the file holds several; ``leave_out`` are patterns of modules not to
    record, ``only`` selects those to record; ``inputs`` are the model's, unless its factory returns ``make_inputs``;
    ``keep`` are patterns of tensors whose values are stored as well as their hashes; ``tensors``, ``arguments``,
    ``spare`` and ``carried`` are as for :func:`build`. Raises :class:`Refusal`.
    """
    digest = _file_digest(checkpoint)
    say("building the model in float32 and in float64")
    subject = build(target, checkpoint, key, tensors, arguments, spare, carried)
    names = [n for n in module_names(subject.modules["float64"])
             if not any(fnmatchcase(n, p) for p in leave_out) and (only is None or only(n))]  # fmt: skip
    index = {
        "schema": SCHEMA,
        "reference": target,
        "checkpoint": {"name": os.path.basename(checkpoint), "sha256": digest},
        "environment": _environment(),
        "evaluating": subject.evaluating,
        "names": names,
        "tensors": {name: asdict(tensor) for name, tensor in subject.tensors.items()},
    }
    try:
        writer = _Writer(output)
        try:
            contents = _record_cases(subject, inputs, names, target, writer, say)
            state = subject.modules["float32"].state_dict()
            contents["values"] = {name: writer.put(to_array(tensor)) for name, tensor in state.items()
                                  if any(fnmatchcase(name, p) for p in keep)}  # fmt: skip
            writer.close({**index, **contents})
        except BaseException:
            writer.abandon()
            raise
    except OSError as error:
        fix = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the folder and its disk"
        raise Refusal(5, output, f"could not be written ({error.strerror or error})", fix) from error
    return {**index, **{name: value for name, value in contents.items() if name != "cases"}}


def _record_cases(
    subject: Subject, drawn: Sequence[Input], names: list[str], target: str, writer: _Writer, say: Note
) -> Index:
    """Run the battery; returns its entries of the index."""
    make_inputs, double = subject.make_inputs, subject.modules["float64"]
    for module in subject.modules.values() if make_inputs is None else ():
        call_by_name(module, drawn)
    stated = with_ids(drawn, double)
    tried = cases_of(CASES, make_inputs, drawn)
    stated = with_keys(stated, double, tried, lambda case, inputs: checked_inputs(make_inputs, case, target, inputs))
    if make_inputs is None:
        stated = with_numbers(stated, compared_numbers(double, checked_inputs(None, tried[0], target, stated)))
    every = {index: spec.every for index, spec in enumerate(drawn) if spec.every is not None}
    shifts = subject.shifts
    notes, repeats = dict.fromkeys([*subject.notes, *mask_notes(stated)]), True
    cases: list[Index] = []
    sweeps: dict[str, CaseSweep] = {}
    for case in tried:
        case = finite_case(double, case, lambda case: checked_inputs(make_inputs, case, target, stated))
        say(f"running {case.describe()}")
        inputs = checked_inputs(make_inputs, case, target, stated)
        with moved_biases(subject.modules, shifts if case.random_biases else {}):
            try:
                observation = observe(
                    subject.modules, case, inputs, names, note=lambda text: notes.update({text: None})
                )
                repeats = repeats and is_repeatable(subject.modules["float64"], observation, target)
                if not cases and (deviation := fast_path_error(subject.modules["float32"], observation)):
                    notes[f"the reference {FAST} {deviation:.1e}"] = None
                moves = {"float64": conditioning(subject.modules["float64"], case, inputs, names)}
                if case.numerics:
                    moves["float32"] = float32_errors(subject.modules, case, inputs, names)
                for name, index in scalar_fed(inputs, observation.calls).items() if not sweeps else ():
                    if name in names and index in every:
                        sweeps |= sweep(subject.modules, [name], every[index])
            except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
                fix = "return a make_inputs that fits the module"
                raise Refusal(4, target, f"running it raises {one_line(error)}", fix) from error
        cases.append(_described(observation, moves, case, writer.put))
    shifted = {name: writer.put(shift) for name, shift in shifts.items()}
    swept = {name: [writer.put(curve.exact), writer.put(curve.single), writer.put(curve.truth)]
             for name, curve in sweeps.items()}  # fmt: skip
    return {"repeats": repeats, "notes": list(notes), "shifts": shifted, "sweeps": swept, "cases": cases}


def is_repeatable(module: Module, observation: Observation, where: str) -> bool:
    """Whether another run gives bitwise equal outputs; raises :class:`Refusal` if their difference is more than one of
    rounding, since there is then nothing to compare with."""
    before = _random_states()
    with highest_precision(), lifted():
        outputs = run(module, observation.inputs)
    pairs = list(zip(outputs, observation.outputs))
    if all(np.array_equal(again, first, equal_nan=again.dtype.kind == "f") for again, first in pairs):
        return True
    if not all(again.shape == first.shape and np.allclose(again, first, REPEATED, REPEATED, equal_nan=True)
               for again, first in pairs):  # fmt: skip
        if _random_states() != before:
            fix = "let it draw none unless self.training is true"
            raise Refusal(6, where, "draws random numbers in evaluation mode, so no outputs can be compared", fix)
        fix = "let it keep nothing of earlier calls, and draw no random numbers"
        raise Refusal(6, where, "gives other outputs when it runs again on the same inputs", fix)
    return False


REPEATED = 1e-10
"""Largest difference of float64 outputs, absolute and relative, that the order of additions may cause."""


def _random_states() -> list[object]:
    """The states of the generators of random numbers that a module may use."""
    import torch

    state = np.random.get_state(legacy=False)
    return [torch.get_rng_state().tolist(), repr(state), random.getstate()]


FAST = "computes something else on PyTorch's fast path, without gradients: its outputs are off by"


def fast_path_error(module: Module, observation: Observation) -> float:
    """How far the outputs of the float32 module that is called as users call it, without gradients, are from those that
    are compared: ``nn.TransformerEncoder`` then gives zeros at steps of padding. 0 for errors of rounding."""
    if observation.single is None:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nested tensors, which torch makes
        outputs = run(module, observation.single.inputs, fast=True)
    reference = observation.single.outputs[0]
    return _beyond_rounding(outputs, reference)


def _beyond_rounding(outputs: Outputs, reference: Outputs) -> float:
    """The largest relative error of finite outputs of one shape; 0 for errors of rounding."""
    pairs = [(a, b) for a, b in zip(outputs, reference) if a.shape == b.shape and b.dtype.kind == "f"]
    errors = [float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0)) for a, b in pairs if np.isfinite([a, b]).all()]
    return max([error for error in errors if error > 1e-3], default=0.0)


FAST_PADDED = (
    "nn.TransformerEncoder sets padding at the end to zero on PyTorch's fast path, without gradients: outputs off by "
    "{:.1e}; torch.backends.mha.set_fastpath_enabled(False) turns it off"
)


def padded_error(module: Module, observation: Observation) -> float:
    """How far the outputs of the fast path are from those that are compared, if an encoder is given masks of padding at
    the end, as tokenizers make them; 0 for errors of rounding."""
    encoders = any(type(part).__name__ == "TransformerEncoder" for part in module.modules())
    if observation.single is None or not encoders:
        return 0.0
    errors = [0.0]
    for sign in (1, -1):  # either value may be the one of padding
        inputs = [np.ascontiguousarray(np.sort(array, axis=-1)[..., ::sign]) if _is_mask(array) else array
                  for array in observation.single.inputs]  # fmt: skip
        if any(array is not other for array, other in zip(inputs, observation.single.inputs)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fast, slow = (run(module, inputs, fast=fast) for fast in (True, False))
            errors.append(_beyond_rounding(fast, slow))
    return max(errors)


def _is_mask(array: Array) -> bool:
    return array.ndim >= 2 and array.dtype.kind in "biu" and set(np.unique(array).tolist()) == {0, 1}


def cases_of(cases: Sequence[Case], make_inputs: MakeInputs | None, drawn: Sequence[Input] = ()) -> list[Case]:
    """The cases that can be drawn: a user's function draws neither extreme nor unusual values; ``drawn`` inputs without
    a batch axis have one sample."""
    if make_inputs is not None:
        return [replace(case, extremes=()) for case in cases if not case.extreme]
    if not drawn or any("b" in spec.axes for spec in drawn):
        return list(cases)
    return unbatched(cases)


def unbatched(cases: Sequence[Case]) -> list[Case]:
    """The cases for inputs of which none has a batch axis, each kind of extreme values with a seed of its own."""
    apart = []
    for case in cases:
        apart.append(replace(case, batched=False, extremes=case.extremes[:1]))
        for index, kind in enumerate(case.extremes[1:], start=1):
            seed = case.seed + SEEDS // 2 + len(CASES) * index
            apart.append(replace(case, seed=seed, batched=False, extremes=(kind,)))
    return apart


def checked_inputs(
    make_inputs: MakeInputs | None, case: Case, target: str, drawn: Sequence[Input] = ()
) -> tuple[Array, ...]:
    """The inputs of one case as arrays, floating-point ones in float64; those of ``make_inputs``, or else ``drawn``."""
    if make_inputs is None and not drawn:
        fix = "state them, such as --input 'x: b 3 48 48', or return (module, make_inputs)"
        raise Refusal(2, target, "the model's inputs are not known", fix)
    try:
        seed, batch, scale = case.seed, case.batch, case.scale
        called = [spec for spec in drawn if batch > 1 or not spec.optional]
        arrays = ([spec.make(seed, batch, scale, case.extremes) for spec in called] if make_inputs is None
                  else [np.asarray(value) for value in make_inputs(seed, batch, scale)])  # fmt: skip
    except Exception as error:
        raise Refusal(4, target, f"make_inputs raises {one_line(error)}", "correct it") from error
    for index, value in enumerate(arrays):
        axes = drawn[index].axes if index < len(drawn) else ("b",)
        sizes = value.shape[axes.index("b") :][:1] if "b" in axes else (case.batch,)
        if sizes != (case.batch,) or value.dtype.kind not in "fiub":
            what = f"make_inputs gives {value.dtype} {value.shape} for a batch of {case.batch}"
            raise Refusal(4, target, what, "put the batch on axis 0 of every array")
    return cast(tuple(arrays), np.float64)


def _environment() -> dict[str, str]:
    import torch

    with highest_precision() as precision:
        return {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "torch_matmul": precision,
        }


def _file_digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 22), b""):
                digest.update(chunk)
    except OSError as error:
        raise Refusal(3, path, f"cannot be read ({error.strerror or error})", "check the path") from None
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run this file as a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="recorder.py", description="Record a PyTorch model for wdport verify.")
    parser.add_argument("reference", metavar="MODULE:FUNCTION", help="the function that builds your model")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the file with its weights")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the NPZ file to write")
    parser.add_argument("--key", metavar="NAME", help="key of the state_dict, if the file holds several")
    parser.add_argument("--leave-out", metavar="PATTERN", action="append", default=[], help="modules not to record")
    parser.add_argument("--keep", metavar="PATTERN", action="append", default=[], help="tensors whose values to store")
    parser.add_argument("--input", metavar="'NAME: AXES'", action="append", default=[], help="an input, 'x: b 3 48 48'")
    args = parser.parse_args(arguments)
    try:
        inputs = read_inputs(args.input)
        index = record_file(
            args.reference, args.checkpoint, args.output, args.key, args.leave_out, inputs=inputs, keep=args.keep
        )
    except Refusal as refusal:
        sys.stderr.write(f"error: {refusal}\n")
        return refusal.exit_code
    for note in index["notes"]:
        sys.stdout.write(f"note: {note}\n")
    sys.stdout.write(f"wrote {args.output}: {len(index['names'])} modules, torch {index['environment']['torch']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
