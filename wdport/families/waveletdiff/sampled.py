"""What sampling has to know of a WaveletDiff configuration: coefficients are diffused, series are decoded of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from wdport.families.waveletdiff.config import Config
from wdport.model import Array, Decoding, Diffused, Named, NotDecoded

if TYPE_CHECKING:
    from jax import Array as Tensor

    from wdport.wavelets.transform import WaveletTransform

COEFFICIENTS = Named("coefficients", "coefficient", "coefficient")
SERIES = Named("series", "step", "time step")
UNKNOWN = NotDecoded(
    "the wavelet is not known",
    "the model does not know its wavelet",
    "convert with --set wavelet=NAME --set seq_len=N or --config FILE",
)


def diffused(config: Config) -> Diffused:
    """Coefficients (C, F) as the state, series (N, F) as what they stand for."""
    sizes = {
        "coefficients": config.coefficients,
        "features": config.features,
        "length": config.seq_len if config.wavelet else None,
    }
    shape, target = (config.coefficients, config.features), _target(config)
    return Diffused(shape, target, COEFFICIENTS, SERIES, _decoding(config), _numbers(config), sizes)


def _target(config: Config) -> str:
    """What :mod:`wdport.diffusion` calls what the network predicts."""
    return "noise" if config.prediction_target == "noise" else "sample"


def _decoding(config: Config) -> Decoding | NotDecoded:
    if config.wavelet is None or config.seq_len is None:
        return UNKNOWN
    mean, std = config.norm_mean or (0.0,) * config.features, config.norm_std or (1.0,) * config.features
    units = "in the units of the data" if config.norm_mean else "in z-score units"
    shape, encode, decode = (config.seq_len, config.features), partial(_encode, config), partial(_decode, config)
    return Decoding(shape, encode, decode, mean, std, units)


def _encode(config: Config, series: Array | Tensor) -> Tensor:
    return _transform(config).decompose(series)


def _decode(config: Config, coefficients: Array | Tensor) -> Tensor:
    return _transform(config).reconstruct(coefficients)


def _transform(config: Config) -> WaveletTransform:
    from wdport.families.waveletdiff.series import transform_of  # brings in jax

    return transform_of(config)


def _numbers(config: Config) -> int:
    """Every token's widest activations and the attention weights of the longest level, generously."""
    lengths, widths = config.level_lengths, config.widths
    tokens: int = 16 * sum(length * width for length, width in zip(lengths, widths, strict=True))
    weights: int = 3 * config.num_heads * max(lengths) ** 2
    return tokens + weights
