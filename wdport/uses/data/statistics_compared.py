"""Compare the statistics in a converted file with those that plain loops compute from the data: the conversion and the
derivation of the configuration share one code, in which a fault would be on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from wdport.compare.findings import Finding, fact, notice
from wdport.uses.data.plain_formulas import plain_statistics, plain_window_statistics
from wdport.uses.data.series import Series
from wdport.uses.data.table import columns_of
from wdport.uses.data.transforms import LOG_VOLUME, OHLC_ATR, OHLCV, VOLUME, WindowStatistics, by_window

EXACT: Final = 1e-9
"""Largest difference of a mean or a deviation, relative to their sum; both are computed in float64."""

ROUNDING: Final = 1e-5
"""The share of a mean that is added to a deviation for the bound on it: a small deviation of large numbers has the
rounding errors of these."""

SINGLE: Final = 1e-6
"""Largest relative difference of the statistics of windows, which are stored in float32."""


def other_statistics(series: Series | None, name: str | None, config: Mapping[str, object]) -> Iterator[Finding]:
    """Findings on statistics of the configuration of a converted file that are not those of the ``series`` under the
    transform ``name``; none without data."""
    if series is None:
        return
    packed = config.get("window_statistics")
    if name != OHLC_ATR and by_window(name):
        yield notice(f"the statistics are compared with what {name} computes, which has also made them")
    elif name == OHLC_ATR and isinstance(packed, str):
        prices = series.values[:, [series.names.index(column) for column in columns_of(OHLCV, series.names, "data")]]
        stored = WindowStatistics.unpack(packed).arrays
        for statistic, values in plain_window_statistics(prices, stored["vol_smas"].shape[1]).items():
            if not _near(stored.get(statistic, ()), values, np.abs(values), SINGLE):
                yield _of_data("window_statistics", f", {statistic},")
    elif config.get("norm_mean") is not None:
        means, deviations = map(np.array, plain_statistics(series.values, VOLUME if name == LOG_VOLUME else None))
        for statistic, values, scale in (
            ("norm_mean", means, deviations + np.abs(means)),
            ("norm_std", deviations, deviations + ROUNDING * np.abs(means)),
        ):
            if not _near(config[statistic], values, scale, EXACT):
                yield _of_data(statistic)


def _near(stored: object, values: ArrayLike, scale: ArrayLike, bound: float) -> bool:
    array, right = np.asarray(stored, np.float64), np.asarray(values)
    return array.shape == right.shape and bool((np.abs(array - right) <= bound * np.asarray(scale)).all())


def _of_data(name: str, part: str = "") -> Finding:
    text = f"{name}{part} in the converted file is not what the formula gives for the data; report this to wdport"
    return fact(text, name, "contradicted")
