"""WaveletDiff's own gate, F: the wavelet transform and the series in the units of the data."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import jax
import numpy as np

from wdport.compare.findings import Gate
from wdport.compare.measure import relative_l2
from wdport.families.waveletdiff.config import Config
from wdport.model import Array
from wdport.wavelets.check import BATCH, wavelet_gate
from wdport.wavelets.transform import WaveletTransform

Way = Callable[[Array], object]
"""From coefficients (B, C, F) to series (B, N, F)."""


def gates(config: Config, transform: WaveletTransform, decode: Callable[[Array], Array], sampled: Way) -> list[Gate]:
    """Gate wavelet (F); ``decode`` is PyWavelets' inverse, ``sampled`` the decoding of samples to the units of the
    data."""
    return [wavelet_gate(transform, series_errors(config, decode, sampled))]


def series_errors(config: Config, decode: Callable[[Array], Array], sampled: Way) -> dict[str, float]:
    """Relative float64 errors of the model's series in the units of the data, by feature, against PyWavelets' inverse
    times the deviation plus the mean."""
    c = np.random.default_rng(1).standard_normal((BATCH, config.coefficients, config.features))
    with jax.enable_x64(True):
        made = np.asarray(sampled(c))
    known = config.norm_mean is not None and config.norm_std is not None
    mean, deviation = (config.norm_mean, config.norm_std) if known else (0.0, 1.0)
    right = decode(c) * np.asarray(deviation) + np.asarray(mean)
    if made.shape != right.shape:
        return {"series": inf}
    return {f"series, feature {at}": relative_l2(made[..., at], right[..., at]) for at in range(config.features)}
