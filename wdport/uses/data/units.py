"""Statistics that convert windows to the units of the data and back, computed from a series or read from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from wdport.base.errors import InputError, UsageError
from wdport.base.options import PathText
from wdport.checkpoint.faults import Fault
from wdport.compare.findings import Finding
from wdport.models.interface import Array
from wdport.uses.data.arrays import opened_npz
from wdport.uses.data.series import Series, read_series
from wdport.uses.data.statistics import Statistics, read_document, read_statistics
from wdport.uses.data.statistics_compared import other_statistics
from wdport.uses.data.table import data_file
from wdport.uses.data.transforms import (
    LOG_VOLUME,
    MOST_BYTES,
    NAMES,
    OHLC_ATR,
    OHLCV,
    VOLUME,
    WindowStatistics,
    by_window,
    checked_name,
    windows_of,
)

_WINDOWED: Final = ("anchors", "atr_pcts", "vol_smas")
"""The statistics of ``ohlc-atr``, as the public training script names them."""


@dataclass(frozen=True, eq=False)
class Units:
    """What a model's windows are in the units of the data: ``transform`` by name, None if it was not stated, with the
    ``statistics`` of all windows, or those of every window: ``windows``, or what the ``series`` gives for windows of
    the model's length. The ``series`` is the data, if there are any."""

    transform: str | None
    statistics: Statistics | None = None
    series: Series | None = None
    windows: WindowStatistics | None = None

    def flags(self) -> dict[str, Any]:
        """As settings of a family's configuration; the statistics of a series are a function of the length."""
        settings: dict[str, Any] = {} if self.transform is None else {"transform": self.transform}
        if self.statistics is not None:
            settings |= {"norm_mean": tuple(self.statistics.mean), "norm_std": tuple(self.statistics.std)}
            settings |= {} if self.statistics.names is None else {"feature_names": self.statistics.names}
            return settings
        settings |= {"feature_names": OHLCV} if self.transform == OHLC_ATR else {}
        return {**settings, "window_statistics": self._packed}

    def fresh_flags(self) -> dict[str, Any]:
        """The same for a new model, whose number of features they also give."""
        if self.statistics is not None:
            return self.flags()
        of_length = cache(self.of_length)  # a family needs the statistics and the features of the same windows
        return {
            **self.flags(),
            "window_statistics": lambda length: of_length(length)[1].pack(),
            "features": lambda length: int(of_length(length)[0].shape[2]),
        }

    def differences(self, config: Mapping[str, object]) -> Iterator[Finding]:
        """The statistics in a converted file's configuration that are not those of the data, computed a second way."""
        return other_statistics(self.series, self.transform, config)

    def of_length(self, length: int) -> tuple[Array, WindowStatistics]:
        """The windows (n, length, F) of the series, and their statistics."""
        name, series = str(self.transform), self.series
        assert series is not None
        return windows_of(name, length, series)

    def _packed(self, length: int) -> str:
        return (self.windows or self.of_length(length)[1]).pack()


def read_units(norm_stats: PathText | None, data: PathText | None, transform: str | None = None) -> Units | None:
    """The units from a file of statistics or from data, whichever is given; None if neither is.

    Raises:
        UsageError: both are given, or a transform without them.
        InputError: the file cannot be read or does not fit the transform.
    """
    if transform is not None:
        checked_name(transform)
    if norm_stats and data:
        raise UsageError("norm_stats", "cannot be combined with data, from which it is computed", "give one of the two")
    if norm_stats:
        return _read(norm_stats, transform)
    if data:
        return units_of(read_series(data), transform, data)
    if transform is not None:
        raise UsageError("--transform", "needs data or their statistics", "add `--data FILE` or `--norm-stats FILE`")
    return None


def units_of(series: Series, transform: str | None = None, where: PathText = "data") -> Units:
    """The units of the windows of ``series`` under a transform; z-scores if it is not stated."""
    if by_window(transform):
        return Units(transform, series=series)
    try:
        values = logarithmic(series.values) if transform == LOG_VOLUME else series.values
        return Units(transform, Statistics.of(values, series.names if series.named else None), series)
    except UsageError as error:
        raise InputError(where, error.what, error.fix) from None


def logarithmic(values: Array) -> Array:
    """``values`` (..., 5) with log1p of the volume; raises :class:`UsageError` for other features, or a negative
    volume."""
    if values.shape[-1] != len(OHLCV):
        what = f"{LOG_VOLUME} takes {len(OHLCV)} features, and this has {values.shape[-1]}"
        raise UsageError("data", what, f"give {', '.join(OHLCV)}")
    if np.nanmin(values[..., VOLUME], initial=0.0) < 0:
        raise UsageError("data", "a volume is negative", f"give {', '.join(OHLCV)}")
    logged = np.array(values, np.float64)
    logged[..., VOLUME] = np.log1p(logged[..., VOLUME])
    return logged


def _read(path: PathText, transform: str | None) -> Units:
    """A file of statistics: mean and std, which may state a ``transform``, or the statistics of every window."""
    with data_file(path) as file:
        if file.suffix.lower() == ".npz":
            with opened_npz(file, MOST_BYTES) as archive:
                if set(_WINDOWED) <= set(archive.files):
                    return Units(_agreed(OHLC_ATR, transform), windows=_windows(archive))
        stated: object = read_document(file).get("transform") if file.suffix.lower() == ".json" else None
        if stated is not None and (stated not in NAMES or by_window(str(stated))):
            raise Fault(f"states the transform {str(stated)[:40]!r}", f"give {NAMES[0]} or {LOG_VOLUME}")
        named = None if stated is None else str(stated)
        if by_window(transform):
            raise Fault(f"holds no statistics of windows, which {transform} has", "give the data, with `--data FILE`")
    return Units(_agreed(named, transform), read_statistics(path))


def _agreed(stated: str | None, transform: str | None) -> str | None:
    if stated is not None and transform not in (None, stated):
        raise Fault(f"is of the transform {stated}, not {transform}", "leave out `--transform`")
    return stated or transform


def _windows(archive: Any) -> WindowStatistics:
    arrays: Mapping[str, Array] = {name: np.asarray(archive[name]) for name in _WINDOWED}
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise Fault(f"has statistics of different numbers of windows: {listing}", "give those of the same windows")
    if any(array.dtype.kind not in "fiu" or not np.isfinite(array).all() for array in arrays.values()):
        raise Fault("has statistics that are not finite numbers", "give anchors, atr_pcts and vol_smas")
    if [array.ndim for array in arrays.values()] != [1, 1, 2] or not counts["anchors"]:
        raise Fault("has statistics of other shapes", "give anchors (n,), atr_pcts (n,) and vol_smas (n, steps)")
    if min(arrays["anchors"].min(), arrays["atr_pcts"].min()) <= 0:
        raise Fault("has anchors or atr_pcts that are not positive", "give those of prices")
    return WindowStatistics({name: array.astype(np.float32) for name, array in arrays.items()}, counts["anchors"])
