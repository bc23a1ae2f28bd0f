"""Find exact relations of a wrong array to the right one and to the reference's other arrays.

A relation is stated only if it holds to the logic bound; nothing is guessed. Needs neither model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

import ml_dtypes
import numpy as np

from wdport.compare.gate_bounds import LOGIC
from wdport.compare.measure import relative_l2
from wdport.models.interface import Array

LONGEST_AXIS = 512
"""Longer axes are not searched for a permutation, since the search compares all pairs."""

MOST_TERMS = 48
"""Maximum number of recorded arrays of which every pair is tried."""

Known = Mapping[str, Array]
"""Other arrays by description, in the order of the computation."""


def relations(wrong: Array, right: Array, recorded: Known) -> list[str]:
    """Sentences without a subject that describe ``wrong``, such as "lacks the output of norm1"."""
    if wrong.shape != right.shape or not np.isfinite([wrong, right]).all() or same(wrong, right):
        return []
    wrong, right = numbers(wrong), numbers(right)
    recorded = {name: numbers(array) for name, array in recorded.items() if np.all(np.isfinite(array))}
    sentences = (step(wrong, right) for step in _BY_ITSELF)
    others = (step(wrong, right, recorded) for step in (_replaced, _added, _mistaken))
    # Recorded arrays come first: "lacks the output of norm1" names a cause, a factor only describes the error.
    return list(next((text for text in chain(others, sentences) if text), []))


def numbers(array: Array) -> Array:
    """The array, or booleans as numbers: NumPy subtracts no booleans."""
    return array.astype(np.float64) if array.dtype == bool else array


def added_relations(wrong: Array, right: Array, inputs: Known) -> list[str]:
    """The same for what a layer adds to one of its ``inputs``."""
    for name, array in inputs.items():
        if array.shape == right.shape and (sentences := relations(wrong - array, right - array, {})):
            return [f"adds to {name} what {sentences[0]}"]
    return []


def variable_relations(wrong: Array, right: Array, others: Known) -> list[str]:
    """The same for a variable of a file; ``others`` are the right values of other variables."""
    if wrong.shape != right.shape or not np.all(np.isfinite(wrong)) or same(wrong, right):
        return []
    others = {name: array for name, array in others.items() if array.shape == right.shape}
    steps = (_zero, _scaled, _transposed, _rounded, _masked, _clipped, _permuted_along_axis, _permuted_along_last_axes,
             _shuffled)  # fmt: skip
    sentences = chain([_replaced(wrong, right, others)], (step(wrong, right) for step in steps))
    return list(next((text for text in sentences if text), []))


def same(first: Array, second: Array) -> bool:
    """Whether two arrays are equal to the logic bound."""
    return first.shape == second.shape and relative_l2(first, second) <= LOGIC


def arrangement(candidate: Array, reference: Array) -> str | None:
    """How ``candidate`` rearranges the values of ``reference``: permuted along one axis, or with an axis of one entry
    if all entries of the reference's are equal. "" if they are equal, ``None`` if it is not a rearrangement."""
    if candidate.shape == reference.shape:
        if same(candidate, reference):
            return ""
        axes = (axis for axis in range(1, reference.ndim) if permutation(candidate, reference, axis) is not None)
        return next((f"another order along axis {axis}" for axis in axes), None)
    if candidate.ndim != reference.ndim:
        return None
    wide, narrow = (candidate, reference) if candidate.size > reference.size else (reference, candidate)
    if not all(n in (1, w) for n, w in zip(narrow.shape, wide.shape, strict=True)):
        return None
    return "before a broadcast" if same(np.broadcast_to(narrow, wide.shape), wide) else None


def _replaced(wrong: Array, right: Array, recorded: Known) -> list[str]:
    return [f"is {name}" for name, other in recorded.items() if same(wrong, other) and not same(right, other)][:1]


def _added(wrong: Array, right: Array, recorded: Known) -> list[str]:
    """A recorded array, or a multiple of it, is missing or added."""
    difference = wrong - right
    for name, other in recorded.items():
        factor = _factor(difference, other)
        # If `wrong` is itself a multiple of the recorded array, nothing was added to the right one.
        if factor is None or same(wrong, factor * other):
            continue
        if abs(factor + 1) < 1e-8:
            return [f"lacks {name}"]
        if abs(factor - 1) < 1e-8:
            return [f"has {name} in it once too often"]
        return [f"has {factor:.6g} times {name} too much" if factor > 0 else f"lacks {-factor:.6g} times {name}"]
    return []


def _mistaken(wrong: Array, right: Array, recorded: Known) -> list[str]:
    """One recorded array takes the place of another one in a sum."""
    fitting = [(name, other) for name, other in recorded.items() if other.shape == right.shape][:MOST_TERMS]
    difference = wrong - right
    for name, other in fitting:
        for instead, term in fitting:
            if name != instead and same(difference + term, other) and not same(other, term):
                return [f"has {name} in it in place of {instead}"]
    return []


def _factor(array: Array, other: Array) -> float | None:
    """The factor from ``other`` to ``array``; ``None`` if there is none."""
    if other.shape != array.shape:
        return None
    square = float(np.vdot(other, other))
    factor = float(np.vdot(other, array)) / square if square else 0.0
    return factor if factor and same(factor * other, array) else None


def _masked(wrong: Array, right: Array) -> list[str]:
    """Some values are dropped, and the others are scaled equally."""
    nonzero = wrong != 0
    factor = _factor(wrong, np.where(nonzero, right, 0.0)) if 0 < np.count_nonzero(nonzero) < nonzero.size else None
    lost = np.count_nonzero(~nonzero & (right != 0))
    if not factor or not lost:
        return []
    elsewhere = "right" if abs(factor - 1) < 1e-8 else f"{factor:.6g} times what it should be"
    return [f"is zero at {lost} of {nonzero.size} places and {elsewhere} elsewhere"]


def _zero(wrong: Array, _: Array) -> list[str]:
    return [] if np.any(wrong) else ["is all zeros"]


def _scaled(wrong: Array, right: Array) -> list[str]:
    factor = _factor(wrong, right)
    if factor:
        negated = abs(factor + 1) < 1e-8
        return ["has the opposite sign" if negated else f"is {_near_one(factor)} times what it should be"]
    centred = right - right.mean()
    slope = _factor(wrong - wrong.mean(), centred)
    if slope is None or not same(slope * centred + wrong.mean(), wrong):
        return []
    start = float(wrong.mean() - slope * right.mean())
    if abs(slope - 1) < 1e-8:
        return [f"is {abs(start):.6g} {'more' if start > 0 else 'less'} than it should be"]
    if abs(slope + 1) < 1e-8:
        return [f"is {start:.6g} minus what it should be"]
    return [f"is {slope:.6g} times what it should be, {'plus' if start > 0 else 'minus'} {abs(start):.6g}"]


def _near_one(factor: float) -> str:
    """A factor with enough digits to tell it from one."""
    return f"{factor:.6g}" if abs(factor - 1) > 1e-5 else f"{factor:.12g}"


def _rounded(wrong: Array, right: Array) -> list[str]:
    for name, dtype in (("float32", np.float32), ("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)):
        with np.errstate(over="ignore"):
            if np.array_equal(wrong, right.astype(dtype).astype(wrong.dtype)):
                return [f"is rounded to {name}"]
    return []


def _clipped(wrong: Array, right: Array) -> list[str]:
    high, low = float(wrong.max()), float(wrong.min())
    if low == high or not same(wrong, np.clip(right, low, high)):
        return []
    # One value that is replaced by the next one is no limit, and a limit that no value exceeds is not seen.
    below, above = (len(np.unique(right[beyond])) > 1 for beyond in (right < low, right > high))
    if below and above:
        return [f"is limited to {low:.6g} .. {high:.6g}"]
    if below and not np.any(right > high):
        return [f"is limited to {low:.6g} or more"]
    return [f"is limited to {high:.6g} or less"] if above and not np.any(right < low) else []


def _rounded_or_absolute(wrong: Array, right: Array) -> list[str]:
    steps: dict[str, Callable[[Array], Array]] = {
        "its absolute value": np.abs, "rounded down": np.floor, "rounded to whole numbers": np.round,
    }  # fmt: skip
    return [f"is {name}" for name, step in steps.items() if same(wrong, step(right))][:1]


def _coupled(wrong: Array, right: Array) -> list[str]:
    """Samples of a batch are mixed up."""
    if len(right) < 2:
        return []
    if same(wrong, np.broadcast_to(right[:1], right.shape)):
        return ["is the first sample's for every sample"]
    return ["is the batch's mean for every sample"] if same(wrong, np.broadcast_to(right.mean(0), right.shape)) else []


def _shifted(wrong: Array, right: Array) -> list[str]:
    """The same vector is added everywhere."""
    difference = (wrong - right).reshape(-1, wrong.shape[-1]) if wrong.ndim else np.zeros((0, 1))
    if len(difference) < 2 or not same(difference, np.broadcast_to(difference[:1], difference.shape)):
        return []
    return ["is off by one vector, the same at every sample and position"]


def _permuted_along_axis(wrong: Array, right: Array) -> list[str]:
    for axis in range(right.ndim):
        if (order := permutation(wrong, right, axis)) is not None:
            return [f"is {_describe(order)} along axis {axis}"]
    return []


def _shuffled(wrong: Array, right: Array) -> list[str]:
    if wrong.size and same(np.sort(wrong, axis=None), np.sort(right, axis=None)):
        return ["has the right values in another order"]
    return []


def _transposed(wrong: Array, right: Array) -> list[str]:
    """A kernel was read as its transpose: as a matrix, some of its axes are the rows."""
    sizes = [int(np.prod(right.shape[:axis])) for axis in range(1, right.ndim)]
    turned = (right.reshape(rows, -1).T.reshape(right.shape) for rows in sizes)
    return ["is not transposed"] if any(same(wrong, array) for array in turned) else []


def _permuted_along_last_axes(wrong: Array, right: Array) -> list[str]:
    """Along several axes taken together, such as heads and their widths."""
    for axis in range(1, right.ndim - 1):
        flat = (*right.shape[:axis], -1)
        if permutation(wrong.reshape(flat), right.reshape(flat), axis) is not None:
            return [f"is in another order along axes {axis} to {right.ndim - 1}"]
    return []


def permutation(wrong: Array, right: Array, axis: int) -> Array | None:
    """The order of ``right`` along ``axis`` that gives ``wrong``, other than the identity; ``None`` if there is
    none."""
    count = right.shape[axis]
    if wrong.shape != right.shape or not 2 <= count <= LONGEST_AXIS:
        return None
    rows, right_rows = (np.moveaxis(array, axis, 0).reshape(count, -1) for array in (wrong, right))
    # One number per row, by irrational weights, sorts both sides in the same order; the final comparison proves it.
    weights = np.cos(np.arange(1.0, rows.shape[1] + 1.0))
    sums = [np.array([float(row @ weights) for row in side]) for side in (rows, right_rows)]
    order = np.empty(count, dtype=np.int64)
    order[np.argsort(sums[0], kind="stable")] = np.argsort(sums[1], kind="stable")
    if np.array_equal(order, np.arange(count)) or not same(rows, right_rows[order]):
        return None
    return order


def _describe(order: Array) -> str:
    count, plain = len(order), np.arange(len(order))
    if np.array_equal(order, plain[::-1]):
        return "reversed"
    for shift in range(1, count):
        if np.array_equal(order, np.roll(plain, shift)):
            return f"rolled by {shift if shift <= count // 2 else shift - count}"
    moved = np.flatnonzero(order != plain)
    if len(moved) == 2:
        return f"exchanged at {moved[0]} and {moved[1]}"
    return "in another order"


_BY_ITSELF = (_zero, _scaled, _masked, _rounded, _coupled, _clipped, _rounded_or_absolute, _permuted_along_axis,
              _shuffled, _shifted)  # fmt: skip
