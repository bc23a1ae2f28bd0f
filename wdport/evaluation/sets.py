"""Sets of series to score, and the real windows that they are compared with: the floor of every score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from wdport.data.samples_reader import SeriesSet, has_windows, read_samples
from wdport.data.series import Series, read_series, sliding_windows
from wdport.errors import UsageError
from wdport.evaluation.distances import LARGEST, Scaling
from wdport.model import Array
from wdport.sampling.samples import Samples

Given = ArrayLike | SeriesSet | Samples | str | PathLike[str]
"""A set of series: an array (n, N, F), what :func:`wdport.sample` returns, or a file of either."""


def set_of(name: str, samples: Given) -> SeriesSet:
    """The set that is given under this name; raises :class:`UsageError`, or :class:`InputError` for a file."""
    if isinstance(samples, SeriesSet):
        return samples
    if isinstance(samples, (str, PathLike)):
        return read_samples(samples)
    if isinstance(samples, Samples):
        if samples.decoded is None:
            raise UsageError(name, "are not decoded to series", "convert the model with its transform's settings")
        return SeriesSet(require_series(name, samples.decoded), samples.features, name)
    return SeriesSet(require_series(name, samples), (), name)


def array_of(name: str, values: object) -> Array:
    """Numbers as an array, masked ones as NaN; raises :class:`UsageError` for what is not an array of real numbers."""
    try:
        array = (
            np.ma.filled(values.astype(float), np.nan) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        )
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths, a tensor that requires a gradient
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise UsageError(name, "are not an array of real numbers", "give series (n, length, features)")
    return array


def require_series(name: str, values: object) -> Array:
    """Return the series (n, N, F); raises :class:`UsageError` for anything else, or values that are not finite."""
    series = array_of(name, values)
    if series.ndim != 3 or 0 in series.shape:
        raise UsageError(name, f"have shape {series.shape}", "give series (n, length, features)")
    if not np.isfinite(series).all():
        count = int((~np.isfinite(series)).any((1, 2)).sum())
        raise UsageError(name, f"have NaN or infinite values in {count} of {len(series)}", "leave these series out")
    return np.ascontiguousarray(series)  # sums over another layout have other last bits


def require_scale(series_set: SeriesSet, scale: Scaling) -> None:
    """Raise :class:`UsageError` for values that are too far from the real ones to compute with."""
    if (furthest := float(np.abs(scale(series_set.values)).max())) > LARGEST:
        what = f"have values of {furthest:.3g} times the range of the data"
        raise UsageError(series_set.where, what, "leave these series out")


def alike(sets: Mapping[str, SeriesSet]) -> dict[str, SeriesSet]:
    """The sets with their features in one order, that of the first set with names; raises :class:`UsageError` for sets
    of different sizes or features."""
    shape = next(iter(sets.values())).shape
    names = next((series_set.features for series_set in sets.values() if series_set.features), ())
    ordered = {}
    for name, series_set in sets.items():
        if series_set.shape != shape:
            what = f"have length and features {series_set.shape}, others {shape}"
            raise UsageError(series_set.where, what, "give series of one shape")
        if series_set.features and series_set.features != names:
            places = [series_set.features.index(feature) for feature in names if feature in series_set.features]
            if len(places) < len(names):
                what = f"have the features {_listed(series_set.features)}, others {_listed(names)}"
                raise UsageError(series_set.where, what, "give series of the same features")
            series_set = replace(
                series_set, values=np.ascontiguousarray(series_set.values[..., places]), features=names
            )
        ordered[name] = series_set
    return ordered


def _listed(names: Sequence[str]) -> str:
    return ", ".join(str(name)[:40] for name in names)


BLOCK: Final = 4
"""Length of a block, in windows."""


@dataclass(frozen=True, eq=False)
class Real:
    """All windows (n, N, F) of a series, one a step, and two sets of them that share no step, for the floor.

    The series is cut into blocks of four times the length of a window. The first set has the windows inside every
    other block, the second those inside the blocks between. Halves of a series would differ by its drift, and random
    windows overlap, so they are too much alike. A set is empty if the series is too short.
    """

    windows: Array
    floor: tuple[Array, Array]
    names: tuple[str, ...] = ()


Data = ArrayLike | Series | str | PathLike[str]
"""Real data: a file, a series, an array (T, F), or windows (n, N, F)."""


def real_windows(data: Data, length: int, features: int, names: Sequence[str] = ()) -> Real:
    """Return the windows of ``length`` steps of a series with so many features, or of windows (n, length, F), which
    should be in the order of time.

    ``names`` are those of the features, if known: columns with these names are chosen from named ones. Raises
    :class:`UsageError` if the data have other sizes or columns, :class:`InputError` if the file cannot be read.
    """
    where = Path(data) if isinstance(data, (str, PathLike)) else "data"
    series = opened(data)
    if not isinstance(series, Series):
        return _of_windows(series, length, features)
    series = series.fitted(names, features, where)
    if len(series.values) < length:
        raise UsageError(where, f"has {len(series.values)} steps, and a sample {length}", "give a longer series")
    windows = sliding_windows(np.ascontiguousarray(series.values), length)
    return Real(windows, _blocks(windows, length), series.names if series.named else ())


def _blocks(windows: Array, length: int) -> tuple[Array, Array]:
    """The windows of every other block of consecutive ones, and those of the blocks between."""
    starts = np.arange(len(windows))
    # Windows that cross the border of a block belong to neither set, so the two share no step of a series of which
    # every window is there.
    inside = starts % (BLOCK * length) <= (BLOCK - 1) * length
    first = starts // (BLOCK * length) % 2 == 0
    return windows[inside & first], windows[inside & ~first]


def opened(data: Data) -> Array | Series:
    """Windows (n, N, F) of an array or an ``.npy`` file, otherwise a series; raises :class:`UsageError`, or
    :class:`InputError` for a file."""
    if isinstance(data, Series):
        return data
    if isinstance(data, (str, PathLike)):
        return read_samples(data).values if has_windows(data) else read_series(data)
    array = array_of("data", data)
    if array.ndim == 3:
        return array
    if array.ndim not in (1, 2) or not np.isfinite(array).all():
        what = f"have shape {array.shape}" if array.ndim not in (1, 2) else "have NaN or infinite values"
        raise UsageError("data", what, "give a finite series (T, F), or windows (n, N, F)")
    return Series.of(array)


def _of_windows(windows: Array, length: int, features: int) -> Real:
    if windows.shape[1:] != (length, features) or not len(windows):
        what = f"have shape {windows.shape}, and the samples (n, {length}, {features})"
        raise UsageError("data", what, "give windows of this shape, or a series (T, F)")
    if not np.isfinite(windows).all():
        raise UsageError("data", "have NaN or infinite values", "give finite ones")
    return Real(windows, _blocks(windows, length))
