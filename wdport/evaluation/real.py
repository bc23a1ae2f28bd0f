"""Real windows to compare with, and two sets of them that share no step: the floor of every score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from wdport.data.samples import has_windows, read_samples
from wdport.data.series import Series, read_series
from wdport.data.windows import sliding_windows
from wdport.errors import UsageError
from wdport.evaluation.sets import array_of
from wdport.model import Array

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
    starts = np.arange(len(windows))
    inside = starts % (BLOCK * length) <= (BLOCK - 1) * length
    first = starts // (BLOCK * length) % 2 == 0
    return Real(windows, (windows[inside & first], windows[inside & ~first]), series.names if series.named else ())


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
    first = np.arange(len(windows)) // (BLOCK * length) % 2 == 0
    return Real(windows, (windows[first], windows[~first]))
