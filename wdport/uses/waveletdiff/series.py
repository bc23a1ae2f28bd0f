"""Reconstruct series from coefficients, as a configuration describes."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array as Tensor

from wdport.base.errors import UsageError
from wdport.models.interface import Array
from wdport.uses.data.transforms import LOG_VOLUME, VOLUME
from wdport.uses.waveletdiff.config import Config
from wdport.uses.wavelets.transform import WaveletTransform


def to_series(config: Config, coefficients: Array | Tensor) -> Tensor:
    """Transform coefficients (B, C, F) to series (B, N, F), in the units of the data if the statistics are known,
    except for those that differ between windows.

    At full precision. Raises :class:`UsageError` if the wavelet is unknown.
    """
    series = transform_of(config).reconstruct(coefficients)
    if config.norm_mean is None or config.norm_std is None:
        return series
    scaled = _scaled(config, series)
    if config.transform != LOG_VOLUME:
        return scaled
    # The data's volume v is stored as log(1 + v); a sample may be below zero.
    volume = jnp.maximum(jnp.expm1(scaled[..., VOLUME]), 0.0)
    return scaled.at[..., VOLUME].set(volume)


def _scaled(config: Config, series: Tensor) -> Tensor:
    """Z-scores in the units that the statistics are in."""
    return series * jnp.array(config.norm_std, series.dtype) + jnp.array(config.norm_mean, series.dtype)


def transform_of(config: Config) -> WaveletTransform:
    """The transform that made the coefficients; raises :class:`UsageError` if the wavelet is unknown."""
    if config.wavelet is None or config.seq_len is None:
        fix = "convert with `--set wavelet=NAME --set seq_len=N` or `--config FILE`"
        raise UsageError("to_series", "the model does not know its wavelet", fix)
    return WaveletTransform(config.seq_len, config.wavelet, config.mode, config.groups - 1)
