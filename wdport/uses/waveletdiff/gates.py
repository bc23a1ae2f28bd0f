"""What WaveletDiff's own gate, F, measures besides the wavelet transform: series in the units of the data."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import jax
import numpy as np

from wdport.compare.measure import relative_l2
from wdport.models.interface import Array
from wdport.uses.data.plain_formulas import plain_prices
from wdport.uses.data.transforms import LOG_VOLUME, OHLC_ATR, OHLCV, VOLUME, transform_of
from wdport.uses.waveletdiff.config import Config
from wdport.uses.wavelets.check import BATCH

Way = Callable[[Array], object]
"""From coefficients (B, C, F) to series (B, N, F)."""


def series_errors(config: Config, decode: Callable[[Array], Array], sampled: Way) -> dict[str, float]:
    """Relative float64 errors of series in the units of the data, to which ``sampled`` decodes, by feature, against
    PyWavelets' inverse ``decode`` times the deviation plus the mean."""
    c = np.random.default_rng(1).standard_normal((BATCH, config.coefficients, config.features))
    with jax.enable_x64(True):
        series = np.asarray(sampled(c))
    normalised = config.norm_mean is not None and config.norm_std is not None
    mean, deviation = (config.norm_mean, config.norm_std) if normalised else (0.0, 1.0)
    right = decode(c) * np.asarray(deviation) + np.asarray(mean)
    if config.transform == LOG_VOLUME:
        # By the definition: `expm1`, which the port uses, differs only by rounding.
        right[..., VOLUME] = np.maximum(np.exp(right[..., VOLUME]) - 1.0, 0.0)
    if series.shape != right.shape:
        return {"series": inf}
    errors = {f"series, feature {i}": relative_l2(series[..., i], right[..., i]) for i in range(config.features)}
    return errors | _price_errors(config, right)


def _price_errors(config: Config, windows: Array) -> dict[str, float]:
    """Relative errors of prices and volumes of windows (B, N, 5) with the statistics of the model's first windows,
    against the formulas of ``ohlc-atr``, a step at a time."""
    statistics = config.statistics
    if statistics is None or config.transform != OHLC_ATR:
        return {}
    rows = {name: array.astype(np.float64) for name, array in
            statistics.rows(np.arange(len(windows)) % statistics.count).items()}  # fmt: skip
    prices = transform_of(OHLC_ATR, windows.shape[1]).inverse(windows, rows)
    right = plain_prices(windows, rows)
    return {f"prices, {name}": relative_l2(prices[..., i], right[..., i]) for i, name in enumerate(OHLCV)}
