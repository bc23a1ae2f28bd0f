"""Error measures of two arrays. NaN and infinity always count as an infinite error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, isfinite
from typing import Final

import numpy as np

from wdport.compare.gate_bounds import UNIT_ROUNDOFF
from wdport.models.interface import Array
from wdport.recording.sample_rows import by_sample

BLOCK = 1 << 18
"""Numbers of which copies are made at a time."""


def like(candidate: Array, reference: Array) -> Array:
    """``candidate`` with its trailing axes merged or split as in ``reference``, such as (B, L, H, K) and (B, L, D).

    Raises ``ValueError`` if the shapes do not correspond.
    """
    if candidate.shape == reference.shape:
        return candidate
    shared = min(candidate.ndim, reference.ndim) - 1
    if candidate.size != reference.size or candidate.shape[:shared] != reference.shape[:shared]:
        raise ValueError(f"shape {candidate.shape} where the reference has {reference.shape}")
    return candidate.reshape(reference.shape)


def relative_l2(candidate: Array, reference: Array) -> float:
    """||c - r|| / ||r|| in float64, without copies of more than a block; where both are the same infinity, as logits of
    what is not allowed are, they are equal."""
    axis = int(np.argmax(reference.shape)) if reference.ndim else 0
    blocks = [[array] if array.size <= BLOCK else np.array_split(array, array.size // BLOCK + 1, axis)
              for array in (candidate, reference)]  # fmt: skip
    difference = size = 0.0
    for c, r in zip(*blocks, strict=True):
        c, r = c.astype(np.float64, copy=False), r.astype(np.float64, copy=False)
        with np.errstate(invalid="ignore", over="ignore"):  # infinity minus infinity is NaN: infinite below
            # hypot of block norms does not overflow, as a sum of squares of values around 1e200 would.
            difference = hypot(difference, float(np.linalg.norm(c - r)))
            size = hypot(size, float(np.linalg.norm(r)))
    if not isfinite(difference) and np.isinf(reference).any():
        pair = without_infinities(candidate, reference)
        return inf if np.isinf(pair[1]).any() else relative_l2(*pair)
    return _quotient(difference, size)


def without_infinities(*arrays: Array) -> tuple[Array, ...]:
    """The arrays with 0 in place of an infinity that all of them have at the same place."""
    infinite = np.isinf(arrays[-1])
    if not infinite.any():
        return arrays
    equal = infinite & np.logical_and.reduce([array == arrays[-1] for array in arrays])
    return tuple(np.where(equal, 0.0, array) for array in arrays)


def _quotient(error: float, size: float) -> float:
    """``error`` relative to ``size``; infinite if either is not finite, or if only ``size`` is 0."""
    if not isfinite(error) or not isfinite(size):
        return inf
    return error / size if size else (0.0 if error == 0.0 else inf)


def sample_errors(candidate: Array, reference: Array, floors: Sequence[float], ordinary: float = 0.0) -> float:
    """The largest relative error of a sample of the batch, axis 0, or of all values if there is one sample.

    ``floors`` is by sample the share of the smallest norm above 0 of an ordinary sample, one of floor 0, that its
    error is at least divided by; ``ordinary`` is that norm if no sample is. Arrays without an axis of samples are
    measured as a whole.
    """
    if by_sample(reference, len(floors)) is None or not np.isfinite(candidate).all():
        return relative_l2(candidate, reference)
    return largest_error(*_norms(candidate, reference, len(floors)), floors, ordinary)


def wrong_samples(candidate: Array, reference: Array, floors: Sequence[float], bound: float) -> set[int]:
    """The samples whose error, as for :func:`sample_errors`, exceeds the bound; empty if that cannot be told."""
    if candidate.shape != reference.shape or by_sample(reference, len(floors)) is None:
        return set()
    if not (np.isfinite(candidate).all() and np.isfinite(reference).all()):
        return set()
    errors = relative_errors(*_norms(candidate, reference, len(floors)), floors)
    return {index for index, error in enumerate(errors) if not error <= bound}


def _norms(candidate: Array, reference: Array, count: int) -> tuple[Array, Array]:
    """By sample, the norms of the difference and of the reference."""
    # NumPy subtracts no booleans, and integers may wrap around.
    with np.errstate(invalid="ignore"):
        difference = np.subtract(candidate, reference, dtype=np.float64 if candidate.dtype.kind in "biu" else None)
    sides = (np.asarray(array, np.float64).reshape(count, -1) for array in (difference, reference))
    differences, sizes = (np.linalg.norm(side, axis=1) for side in sides)
    return differences, sizes


def largest_error(differences: Array, sizes: Array, floors: Sequence[float], ordinary: float = 0.0) -> float:
    """The largest relative error of a sample, as for :func:`sample_errors`, from norms by sample."""
    return max(relative_errors(differences, sizes, floors, ordinary), default=0.0)


def relative_errors(differences: Array, sizes: Array, floors: Sequence[float], ordinary: float = 0.0) -> list[float]:
    """The relative error of every sample, as for :func:`sample_errors`, from norms by sample."""
    ordinary = min((size for size, floor in zip(sizes, floors, strict=True) if size and not floor), default=ordinary)
    scales = np.maximum(sizes, np.asarray(floors) * ordinary)
    pairs = zip(differences.tolist(), scales.tolist(), strict=True)
    return [error / scale if scale else (inf if error else 0.0) for error, scale in pairs]


WHOLE: Final = 2.0**24
"""float32 holds all whole numbers up to this one."""


def float32_share(values: Array, short: bool = False) -> float:
    """Share of the distinct values, other than small whole numbers and those of 16 bits, that float32 holds exactly;
    0.0 if there are none. A bias that a layer outputs unchanged at many steps counts once. Integers have none. With
    ``short``, values of 16 bits count too, as inputs of a layer do, whose results have few more digits."""
    if values.dtype.kind != "f":
        return 0.0
    flat = values.ravel(order="K")
    if not any(
        # The usual answer is none, which this finds block by block; `unique` sorts, and copies the whole array.
        _exact_in_float32(block[_telling(block, short)]).any()
        for block in map(_few_digits, np.array_split(flat, flat.size // BLOCK + 1))
    ):
        return 0.0
    return float(np.mean(_exact_in_float32(np.unique(flat[_telling(flat, short)]))))


def one_magnitude(values: Array) -> bool:
    """Whether there are at least two values, and all are equal but for their signs."""
    flat = values.ravel(order="K")
    blocks = np.array_split(flat, flat.size // BLOCK + 1)
    return flat.size > 1 and all(bool((np.abs(block) == np.abs(flat[0])).all()) for block in blocks)


def _few_digits(values: Array) -> Array:
    """The values but 0 whose binary digits end where those of float32 do: all that it holds exactly, and few others."""
    double: Array = np.asarray(values, np.float64)
    return np.asarray(double[((double.view(np.int64) & (2**29 - 1)) == 0) & (double != 0)])


def _telling(values: Array, short: bool) -> Array:
    """Which values are neither whole numbers that float32 holds all of, which rounding and counting make, nor numbers
    of at most eleven binary digits, to which code may round on purpose."""
    digits = np.asarray(values, np.float64).view(np.int64) & (2**42 - 1)
    return np.asarray(((values != np.rint(values)) | (np.abs(values) > WHOLE)) & (short | (digits != 0)))


def _exact_in_float32(values: Array) -> Array:
    """Which values float32 holds exactly."""
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, another value
        return np.asarray(values.astype(np.float32).astype(np.float64) == values)


class Ranges:
    """The least and the largest value of each output of a layer, over all cases."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[str, int], tuple[float, float]] = {}

    def add(self, name: str, outputs: Sequence[Array]) -> None:
        for index, values in enumerate(outputs):
            if values.size > 1:
                least, largest = self._ranges.get((name, index), (inf, -inf))
                self._ranges[name, index] = min(least, float(np.min(values))), max(largest, float(np.max(values)))

    @property
    def constant(self) -> list[str]:
        """The layers with an output that is one number in all cases, other than 1: a softmax over a single token is
        always 1."""
        same = [name for (name, _), (least, largest) in self._ranges.items() if least == largest != 1.0]
        return list(dict.fromkeys(same))


def ulps(values: Array, exact: Array) -> float:
    """Largest distance from ``exact`` in float32 units in the last place of ``exact``; infinite if shapes differ."""
    if values.shape != exact.shape:
        return inf
    spacing = np.spacing(np.maximum(np.abs(exact), np.finfo(np.float32).tiny).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(values.astype(np.float64) - exact) / spacing, initial=0.0))


@dataclass
class ErrorPair:
    """Rounding errors of the candidate and of the reference relative to one float64 truth, over the arrays of a
    run."""

    candidate_square: float = 0.0
    reference_square: float = 0.0
    truth_square: float = 0.0
    candidate_max: float = 0.0
    reference_max: float = 0.0
    truth_max: float = 0.0
    bias_sum: float = 0.0
    count: int = 0
    unit: float = UNIT_ROUNDOFF
    """Unit roundoff of the dtype that both compute in."""
    spread_square: float = 0.0
    spread_max: float = 0.0

    def add(self, candidate: Array, reference: Array, truth: Array) -> None:
        candidate, reference, truth = without_infinities(candidate, reference, truth)
        if np.isnan(truth).any():  # amplified values may be beyond a 16-bit dtype in the code, on all sides alike
            undefined = np.isnan(candidate) & np.isnan(reference) & np.isnan(truth)
            candidate, reference, truth = (np.where(undefined, 0.0, side) for side in (candidate, reference, truth))
        with np.errstate(invalid="ignore"):
            c, r = candidate.astype(np.float64) - truth, reference.astype(np.float64) - truth
        self.candidate_square += float(np.sum(c * c))
        self.reference_square += float(np.sum(r * r))
        self.truth_square += float(np.sum(truth * truth))
        self.candidate_max = _largest(self.candidate_max, c)
        self.reference_max = _largest(self.reference_max, r)
        self.truth_max = _largest(self.truth_max, truth)
        with np.errstate(invalid="ignore"):  # infinities of both signs
            self.bias_sum += float(np.sum(c))
        self.count += c.size

    def allow(self, square: float, largest: float) -> None:
        """Compare with this error as well: a sum of squares, and the largest value."""
        self.spread_square = max(self.spread_square, square)
        self.spread_max = max(self.spread_max, largest)

    def allow_values(self, errors: Array) -> None:
        """The same for errors (absolute) of single values."""
        self.allow(float(np.sum(errors**2)), float(np.max(errors, initial=0.0)))

    @property
    def rms_ratio(self) -> float:
        """The candidate's RMS error over the reference's, which counts as at least the rounding error of the result
        and, if they were measured, its errors in further runs."""
        # A reference that happens to be exact must not make a correctly rounded port infinitely worse.
        least = max(self.unit * self.truth_square**0.5, self.spread_square**0.5)
        return _quotient(self.candidate_square**0.5, max(self.reference_square**0.5, least))

    @property
    def max_ratio(self) -> float:
        """The same for the largest error."""
        return _quotient(self.candidate_max, max(self.reference_max, self.unit * self.truth_max, self.spread_max))

    @property
    def ratio(self) -> float:
        """The larger of both."""
        return max(self.rms_ratio, self.max_ratio)

    @property
    def bias(self) -> float:
        """Mean signed error of the candidate, relative to the truth's RMS."""
        size = (self.truth_square / self.count) ** 0.5 if self.count else 0.0
        return self.bias_sum / self.count / size if size else 0.0


def _largest(so_far: float, values: Array) -> float:
    """The largest absolute value so far; NaN takes precedence."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return inf if not isfinite(largest) else max(so_far, largest)


FLOOR = 1e-3
"""Share of the common scale: the error of a smaller reference is relative to this share instead."""


class ScaledErrors:
    """Root-mean-square errors of many arrays, each relative to the size of its reference.

    If a reference is below ``FLOOR`` times the root mean square of all of them together, its error is relative to
    that: some gradients are mathematically zero, and rounding noise agrees with nothing.
    """

    def __init__(self) -> None:
        self._errors: dict[str, tuple[float, float]] = {}
        self._squares, self._count = 0.0, 0

    def add(self, name: str, candidate: Array, reference: Array) -> None:
        """Add one pair; the error is infinite if shapes differ."""
        reference = np.asarray(reference, order="C")  # the difference to a transposed view takes twice as long
        count, square = max(reference.size, 1), float(np.linalg.norm(reference)) ** 2
        error = inf
        if candidate.shape == reference.shape:
            with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN: infinite below
                error = float(np.linalg.norm(np.subtract(candidate, reference, dtype=np.float64)))
        self._errors[name] = (error / count**0.5, (square / count) ** 0.5)
        self._squares, self._count = self._squares + square, self._count + reference.size

    def relative(self) -> dict[str, float]:
        floor = FLOOR * (self._squares / max(self._count, 1)) ** 0.5
        return {name: _quotient(error, max(size, floor)) for name, (error, size) in self._errors.items()}


def same_bits(first: Array, second: Array) -> bool:
    """Whether two arrays are bitwise equal; zero and minus zero are not."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    bits = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second)]
    return np.array_equal(bits[0], bits[1])
