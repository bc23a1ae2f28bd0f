"""The port's variables without building it, {path: shape} of a configuration in creation order, and its sinusoid
tables in float64.

The two tables differ: positions interleave sines and cosines; time has all sines first, and its frequencies divide by
one less. Both bases are 10,000 (Vaswani et al., arXiv 1706.03762, sec. 3.5).

The variables are listed rather than read from a model: importing keras and building one takes 1.4 s at the released
size, about as long as the whole conversion, and would delay every error. A test compares this list
with the real model over many configurations. (A user's own model is built, since its variables are not known
otherwise.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from wdport.base.limits import require_model_size
from wdport.uses.diffusion.schedules import STEPS
from wdport.uses.waveletdiff.config import Config

STEPS_PER_TIME = 1000.0
"""The network's time is step / 1000; this factor converts it to steps."""

_BASE = 10_000.0


def position_table(length: int, width: int) -> NDArray[np.float64]:
    """(length, width): [p, 2k] = sin(p w_k), [p, 2k+1] = cos(p w_k), w_k = 10000^(-2k/width)."""
    frequency = np.exp(-np.arange(0, width, 2) * np.log(_BASE) / width)
    angle = np.arange(length)[:, None] * frequency
    table = np.empty((length, width))
    table[:, 0::2] = np.sin(angle)
    # An odd width has one sine more than cosines.
    table[:, 1::2] = np.cos(angle)[:, : width // 2]
    return table


def time_frequencies(width: int) -> NDArray[np.float64]:
    """(width/2,): 10000^(-k / (width/2 - 1)), in radians per diffusion step."""
    half = width // 2
    # Divided by half - 1, not half as in the positions; so the width is at least 4.
    return np.exp(-np.arange(half) * np.log(_BASE) / (half - 1))


Shape = tuple[int, ...]


def variables(config: Config) -> dict[str, Shape]:
    """Path and shape of every variable of :class:`wdport.uses.waveletdiff.port.WaveletDiff`."""
    return dict(_all(config, config.depths))


def sizes(config: Config) -> tuple[int, int]:
    """The number of variables and of their values, computed without building the model, for any numbers in the
    configuration."""
    # One block of each group is counted `depth` times: a configuration from a file may state billions of blocks.
    parts = [(shape, 1) for _, shape in _all(config, (0,) * config.groups)]
    for width, depth in zip(config.widths, config.depths, strict=True):
        parts += [(shape, depth) for _, shape in _block("", width, config)]
    return sum(times for _, times in parts), sum(times * prod(shape) for shape, times in parts)


def require_sizes(config: Config) -> Config:
    """The configuration; raises ``ValueError`` if its model, with its tables, exceeds the size limits."""
    variables, values = sizes(config)
    values += sum(length * width for length, width in zip(config.level_lengths, config.widths, strict=True))
    require_model_size(variables, values)
    return config


def _all(config: Config, depths: Sequence[int]) -> Iterator[tuple[str, Shape]]:
    time = config.time_embed_dim
    for name in ("beta", "alpha", "alpha_bar"):
        yield f"noise_schedule/{name}", (STEPS + 1,)
    yield from _mlp("time_embedding/mlp", time, 4 * time, time)
    if config.scale_embedding:
        yield from _mlp("scale_embedding/mlp", time, 4 * time, time)
    for level, (width, depth) in enumerate(zip(config.widths, depths, strict=True)):
        yield from _dense(f"level_{level}/input_proj", config.features, width)
        for block in range(depth):
            yield from _block(f"level_{level}/block_{block}", width, config)
        yield from _dense(f"level_{level}/output_proj", width, config.features)
    if config.cross_level_attention:
        yield from _cross_level(config)


def _block(path: str, width: int, config: Config) -> Iterator[tuple[str, Shape]]:
    yield from _dense(f"{path}/norm1/ada_lin", config.time_embed_dim, 2 * width)
    yield from _attention(f"{path}/attention", width, config)
    yield from _dense(f"{path}/norm2/ada_lin", config.time_embed_dim, 2 * width)
    yield from _mlp(f"{path}/mlp", width, 4 * width, width)


def _cross_level(config: Config) -> Iterator[tuple[str, Shape]]:
    cross, time = config.cross_width, config.time_embed_dim
    yield "cross_level/level_position_embeddings", (config.groups, cross)
    for level, width in enumerate(config.widths):
        yield from _mlp(f"cross_level/aggregator_{level}", width, width // 2, 1)
        yield from _dense(f"cross_level/projection_{level}", width, cross)
        yield from _attention(f"cross_level/attention_{level}", cross, config)
        yield from _dense(f"cross_level/expander_{level}", cross, width)
        yield from _dense(f"cross_level/norm_{level}/ada_lin", time, 2 * width)
        yield from _dense(f"cross_level/gate_{level}/linear", width + time, width)


def _attention(path: str, width: int, config: Config) -> Iterator[tuple[str, Shape]]:
    heads, head = config.heads(width)
    for part in ("query", "key", "value"):
        yield f"{path}/{part}/kernel", (width, heads, head)
        yield f"{path}/{part}/bias", (heads, head)
    if config.qk_norm:
        yield f"{path}/query_norm/scale", (head,)
        yield f"{path}/key_norm/scale", (head,)
    yield f"{path}/out/kernel", (heads, head, width)
    yield f"{path}/out/bias", (width,)


def _mlp(path: str, inputs: int, hidden: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    yield from _dense(f"{path}/hidden", inputs, hidden)
    yield from _dense(f"{path}/out", hidden, outputs)


def _dense(path: str, inputs: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{path}/kernel", (inputs, outputs)
    yield f"{path}/bias", (outputs,)
