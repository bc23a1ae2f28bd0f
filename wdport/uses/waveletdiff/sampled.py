"""What sampling needs to know about a WaveletDiff configuration: coefficients are diffused, and decoded to series."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from wdport.models.interface import Array, ArrayNames, Condition, Decoding, Diffused, NotDecoded, Windowed
from wdport.uses.data.transforms import LOG_VOLUME, OHLC_ATR, OhlcAtr
from wdport.uses.data.units import logarithmic
from wdport.uses.diffusion.diffusion import Diffusion
from wdport.uses.diffusion.process import Run
from wdport.uses.diffusion.reference_samplers import ddim_states, ddim_step_list, ddpm_states
from wdport.uses.diffusion.schedules import NoiseSchedule, per_mille, step_list
from wdport.uses.waveletdiff.config import Config

if TYPE_CHECKING:
    from wdport.uses.wavelets.transform import WaveletTransform

COEFFICIENTS = ArrayNames("coefficients", "coefficient", "coefficient")
SERIES = ArrayNames("series", "step", "time step")
UNKNOWN = NotDecoded(
    "the wavelet is not known",
    "the model does not know its wavelet",
    "convert with `--set wavelet=NAME --set seq_len=N` or `--config FILE`",
)


def diffused(config: Config) -> Diffused:
    """Coefficients (C, F) as the state, series (N, F) as the decoded form."""
    sizes = {
        "coefficients": config.coefficients,
        "features": config.features,
        "length": config.seq_len if config.wavelet else None,
    }
    shape = (config.coefficients, config.features)
    features = config.feature_names or ()
    trained = {"scale": True, "none": False}.get(config.conditioning or "")
    statistics = config.statistics
    windowed = None
    if statistics is not None:
        windowed = Windowed(str(config.transform), statistics.arrays, statistics.count)
    statistic = OhlcAtr.condition if config.transform == OHLC_ATR else None
    scale = Condition("scale", "positive", optional=True, trained=trained, statistic=statistic)
    condition = scale if config.scale_embedding else None
    return Diffused(shape, COEFFICIENTS, SERIES, _decoding(config), _numbers(config), sizes, condition=condition,
                    features=features, windowed=windowed)  # fmt: skip


def process(config: Config, table: Callable[[str], Array]) -> Diffusion:
    """The checkpoint's own schedule, target and samplers, and the samplers of :mod:`wdport.uses.diffusion`."""
    held = (np.asarray(table(f"noise_schedule.{name}")).astype(np.float64) for name in NoiseSchedule._fields)
    schedule = NoiseSchedule(*held)
    return Diffusion(
        schedule,
        "noise" if config.prediction_target == "noise" else "sample",
        per_mille(len(schedule.beta) - 1),
        step_list,
        # The public code's DDPM takes every step.
        unthinned=frozenset({"ddpm"}),
        loops={
            "ddpm": lambda network, run, *rest: ddpm_states(network, schedule, run.target, *rest),
            "ddim": lambda network, run, steps, init, *rest: ddim_states(
                network, schedule, run.target, steps, init, run.eta, *rest
            ),
        },
        listed=ddim_step_list,
        runs=RUNS,
        first=0,
    )


RUNS = tuple(
    Run(sampler, eta, target)
    for target in ("noise", "sample")
    for sampler, eta in (("ddpm", 0.0), ("ddim", 0.0), ("ddim", 0.5))
)
"""DDPM runs over the steps of DDIM, with the single step's beta and alpha, and with alpha_bar of the next step in the
list for the previous one's."""


def _decoding(config: Config) -> Decoding | NotDecoded:
    if config.wavelet is None or config.seq_len is None:
        return UNKNOWN
    mean, std = config.norm_mean or (0.0,) * config.features, config.norm_std or (1.0,) * config.features
    units = "in standard units" if config.scale_embedding else "in z-score units"
    if config.norm_mean is not None:
        units = "in the units of the data"
    if config.window_statistics is not None:
        units = f"in the units of the windows of {config.transform}"
    return Decoding(
        (config.seq_len, config.features),
        lambda series: _transform(config).decompose(series),
        lambda coefficients: _transform(config).reconstruct(coefficients),
        mean,
        std,
        units,
        logarithmic if config.transform == LOG_VOLUME else None,
    )


def _transform(config: Config) -> WaveletTransform:
    from wdport.uses.waveletdiff.series import transform_of  # imports jax

    return transform_of(config)


def _numbers(config: Config) -> int:
    """Upper estimate: every token's widest activations and the attention weights of the longest level."""
    lengths, widths = config.level_lengths, config.widths
    tokens: int = 16 * sum(length * width for length, width in zip(lengths, widths, strict=True))
    # Attention needs a number for every pair of tokens and every head.
    weights: int = 3 * config.num_heads * max(lengths) ** 2
    return tokens + weights
