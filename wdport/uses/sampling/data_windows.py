"""Windows of the training data whose statistics samples get: which ones, and how samples become series with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from wdport.base.errors import UsageError
from wdport.models.interface import Array, Condition, Decoding, Diffused
from wdport.uses.data.transforms import OHLC_ATR, OhlcAtr, SeriesTransform, transform_of
from wdport.uses.sampling.condition import checked_known
from wdport.uses.sampling.request import Request
from wdport.uses.sampling.sampler import Samples

ANCHORS = "anchors"
LARGEST = 1e12
"""Largest anchor; its inverse is the smallest."""

STREAM = 1
"""Stream of a seed's random numbers that chooses windows; noise comes from JAX's generator."""


def drawn_windows(about: Diffused, request: Request, count: int) -> Array | None:
    """Numbers (count,) of windows of the training data, drawn with replacement from the seed; None if the model does
    not hold the statistics of windows. A sample's window depends only on the seed and its index.

    With known values, which are in the units of one window, it is the same for all: of prices, the one whose volumes
    are nearest.
    """
    windowed = about.windowed
    if windowed is None:
        return None
    different, nearest = count, None
    if request.known is not None and isinstance(about.decoding, Decoding):
        different, shape = 1, about.decoding.shape
        known_values = checked_known(request.known, shape)
        if windowed.transform == OHLC_ATR:
            nearest = OhlcAtr(shape[0]).nearest(known_values, windowed.statistics)
    # NumPy draws in order, so the first windows are the same for every number of samples.
    drawn = np.random.default_rng([request.seed, STREAM]).integers(0, windowed.count, different)
    return np.resize(drawn if nearest is None else nearest, count)


@dataclass(frozen=True, eq=False)
class Restoring:
    """Converts decoded samples to the units of the data: the transform, the statistics of every sample, those that all
    share, and the ``known_values`` (N, F) of the samples, if any, NaN where unknown."""

    transform: SeriesTransform
    name: str
    statistics: Mapping[str, Array]
    shared: Mapping[str, Array]
    known_values: Array | None = None

    def __call__(self, samples: Samples, indices: Array) -> Samples:
        """The samples with these indices (B,), converted."""
        if samples.decoded is None:
            return samples
        return replace(samples, decoded=self.values(samples.decoded, indices))

    def values(self, windows: Array, indices: Array) -> Array:
        """Windows (B, N, F) in standard units as series (B, N, F) in the units of the data, in float32 or float64."""
        series = np.asarray(self.transform.inverse(windows, self._of(indices)))
        if series.ndim != 3 or series.shape[:2] != windows.shape[:2] or series.dtype.kind != "f":
            what = f"inverse returns {series.dtype} {series.shape} for windows {windows.shape}"
            raise UsageError(self.name, what, "return as many series of as many steps")
        if self.known_values is not None:
            series = np.where(np.isfinite(self.known_values), self.known_values, series)
        return series.astype(windows.dtype)

    def normalized(self) -> Array | None:
        """The known values in standard units (N, F), NaN where unknown; raises :class:`UsageError` for those that the
        transform does not convert."""
        if self.known_values is None:
            return None
        normalize = getattr(self.transform, "normalize", None)
        if normalize is None:
            raise UsageError(self.name, "has no method normalize, which known values need", "leave them out, or add it")
        standard: Array = np.asarray(normalize(self.known_values[None], self._of(np.zeros(1, np.intp))), np.float64)
        if standard.shape != (1, *self.known_values.shape):
            raise UsageError(self.name, f"normalize returns {standard.shape}", "return windows (B, N, F)")
        # A value of a window may need several of the series: the body of a candle needs its open and its close.
        counts, held = (np.isfinite(array).sum(axis=-1) for array in (standard[0], self.known_values))
        if (counts != held).any():
            step = int(np.argmax(counts != held))
            what = f"{held[step]} values of step {step} determine {counts[step]} of its window's"
            raise UsageError("known", what, f"give all of the step, or those that {self.name} takes together")
        window: Array = standard[0]
        return window

    def _of(self, indices: Array) -> dict[str, Array]:
        """The statistics of the samples with these indices."""
        return {**self.shared, **{name: array[indices] for name, array in self.statistics.items()}}


def restoring(about: Diffused, request: Request, drawn: Array | None, condition: Array | None) -> Restoring | None:
    """What converts the samples of a request to the units of the data; None if decoding does it.

    A given condition replaces the statistic that it is, and ``anchor`` the first price.

    Raises:
        UsageError: the transform is another one, or not needed.
    """
    windowed = about.windowed
    if windowed is None or drawn is None or not isinstance(about.decoding, Decoding):
        for option, value in (("--anchor", request.anchor), ("--transform", request.transform)):
            if value is not None:
                raise UsageError(option, "the model holds no statistics of windows", "leave it out")
        return None
    if request.transform not in (None, windowed.transform):
        raise UsageError("--transform", f"the model's is {windowed.transform}", "give this one, or leave it out")
    if windowed.transform != OHLC_ATR and request.transform is None:  # code is not run because a file names it
        _no_anchor(request.anchor)
        return None
    length = about.decoding.shape[0]
    # By the protocol of transforms, an array of another length than the number of windows holds for all of them.
    shared = {name: array for name, array in windowed.statistics.items() if len(array) != windowed.count}
    statistics: dict[str, Array] = {
        name: array[drawn] for name, array in windowed.statistics.items() if name not in shared
    }
    statistics |= _anchored(request.anchor, statistics, len(drawn))
    statistics |= _conditioned(about.condition, condition, statistics)
    known_values = None if request.known is None else checked_known(request.known, about.decoding.shape)
    if known_values is not None:
        statistics |= _begun(known_values, request.anchor, len(drawn)) if windowed.transform == OHLC_ATR else {}
        _require_one(about.condition, condition)
    return Restoring(transform_of(windowed.transform, length), windowed.transform, statistics, shared, known_values)


def _anchored(anchor: float | None, statistics: Mapping[str, Array], count: int) -> dict[str, Array]:
    if anchor is None:
        return {}
    if ANCHORS not in statistics:
        _no_anchor(anchor)
    if not isinstance(anchor, Real) or isinstance(anchor, bool) or not 1 / LARGEST <= anchor <= LARGEST:
        fix = f"give a positive price of at most {LARGEST:g}"
        raise UsageError("--anchor", f"{anchor!r} is not a price that samples begin near", fix)
    return {ANCHORS: np.full(count, float(anchor))}


def _begun(known_values: Array, anchor: float | None, count: int) -> dict[str, Array]:
    """The first price of samples whose first price is known."""
    first = float(known_values[0, 0])
    if np.isnan(first):
        return {}
    if anchor not in (None, first):
        raise UsageError("--anchor", f"the known values begin at {first:g}", "leave it out")
    if first <= 0:
        raise UsageError("known", f"the first price, {first:g}, is not positive", "give prices")
    return {ANCHORS: np.full(count, first)}


def _require_one(declared: Condition | None, condition: Array | None) -> None:
    """Raise :class:`UsageError` for several values of a condition that is a statistic of windows."""
    if declared is not None and declared.statistic is not None and condition is not None and np.ptp(condition):
        raise UsageError(declared.name, "has several values, and the known values are in the units of one", "give one")


def _no_anchor(anchor: float | None) -> None:
    if anchor is not None:
        raise UsageError("--anchor", "the model's windows have no first price", "leave it out")


def _conditioned(
    declared: Condition | None, condition: Array | None, statistics: Mapping[str, Array]
) -> dict[str, Array]:
    name = None if declared is None else declared.statistic
    return (
        {} if name is None or condition is None or name not in statistics else {name: np.asarray(condition, np.float64)}
    )
