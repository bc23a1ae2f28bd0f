"""Windows of the training data whose statistics samples get: which ones, and how samples become series with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from numbers import Real

import numpy as np

from wdport.data.transforms import OHLC_ATR, Transform, transform_of
from wdport.diffusion.schedules import Array
from wdport.errors import UsageError
from wdport.model import Condition, Decoding, Diffused
from wdport.sampling.request import Request
from wdport.sampling.samples import Samples

ANCHORS = "anchors"
STREAM = 1
"""Of the random numbers of a seed that choose windows; those of noise are JAX's."""


def drawn_windows(about: Diffused, request: Request, count: int) -> Array | None:
    """Numbers (count,) of windows of the training data, drawn with replacement from the seed; None if the model does
    not hold the statistics of windows. A sample's window depends only on the seed and its index."""
    windowed = about.windowed
    if windowed is None:
        return None
    return np.random.default_rng([request.seed, STREAM]).integers(0, windowed.count, count)


@dataclass(frozen=True, eq=False)
class Restoring:
    """Converts decoded samples to the units of the data: the transform, the statistics of every sample, and those that
    all share."""

    transform: Transform
    name: str
    statistics: Mapping[str, Array]
    shared: Mapping[str, Array]

    def __call__(self, samples: Samples, indices: Array) -> Samples:
        """The samples with these indices (B,), converted."""
        if samples.decoded is None:
            return samples
        return replace(samples, decoded=self.values(samples.decoded, indices))

    def values(self, windows: Array, indices: Array) -> Array:
        """Windows (B, N, F) in standard units as series (B, N, F) in the units of the data, in float32 or float64."""
        own = {name: array[indices] for name, array in self.statistics.items()}
        made = np.asarray(self.transform.inverse(windows, {**self.shared, **own}))
        if made.ndim != 3 or made.shape[:2] != windows.shape[:2] or made.dtype.kind != "f":
            what = f"inverse returns {made.dtype} {made.shape} for windows {windows.shape}"
            raise UsageError(self.name, what, "return as many series of as many steps")
        return made.astype(windows.dtype)


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
    shared = {name: array for name, array in windowed.statistics.items() if len(array) != windowed.count}
    own: dict[str, Array] = {name: array[drawn] for name, array in windowed.statistics.items() if name not in shared}
    own |= _anchored(request.anchor, own, len(drawn))
    own |= _conditioned(about.condition, condition, own)
    return Restoring(transform_of(windowed.transform, length), windowed.transform, own, shared)


def _anchored(anchor: float | None, statistics: Mapping[str, Array], count: int) -> dict[str, Array]:
    if anchor is None:
        return {}
    if ANCHORS not in statistics:
        _no_anchor(anchor)
    if not isinstance(anchor, Real) or isinstance(anchor, bool) or not (isfinite(anchor) and anchor > 0):
        raise UsageError("--anchor", f"{anchor!r} is not a positive number", "give the price that samples begin at")
    return {ANCHORS: np.full(count, float(anchor))}


def _no_anchor(anchor: float | None) -> None:
    if anchor is not None:
        raise UsageError("--anchor", "the model's windows have no first price", "leave it out")


def _conditioned(declared: Condition | None, condition: Array | None, known: Mapping[str, Array]) -> dict[str, Array]:
    name = None if declared is None else declared.statistic
    return {} if name is None or condition is None or name not in known else {name: np.asarray(condition, np.float64)}
