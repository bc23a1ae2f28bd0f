"""Numbers that the code of a network compares sizes, positions and values with, and inputs on both sides of them."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Sequence, Tuple

import numpy as np

from .calls import MASKING
from .float64 import lifted
from .inputs import EDGES, FEW, Input
from .nested import tensors_of, to_array
from .runs import run
from .torch_functions import functions, highest_precision

if TYPE_CHECKING:
    from torch.nn import Module

    from .shared_types import Array, Nested


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
