"""Known bugs of the network as a whole, its routing and state, and of its sinusoids: times and positions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from keras import ops

from parity_tests.faults.changes import DROPOUT, copied
from wdport.families.faults import Change, Mutant, attributes, calling
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.waveletdiff.canary import (
    BFLOAT16_WEIGHTS,
    LEVELS_SWAPPED,
    NETWORK,
    POSITION,
    POSITIONS_OFF,
    TIME,
    TIME_UNSCALED,
    TOO_SHALLOW,
    embedded,
    network,
    position_table,
    rounded,
)
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.layers import SCALE_GAIN
from wdport.uses.waveletdiff.variables import STEPS_PER_TIME

CLIP = 30.0
"""Tokens of the examples stay below it for inputs of unit size, and exceed it for inputs fifty times as large."""


def level_mutants(config: Config) -> list[Mutant]:
    """The mutants of levels: their order, boundaries, depth and time."""
    slices = config.level_slices
    equal = slices[0].stop - slices[0].start == slices[1].stop - slices[1].start
    found = [
        Mutant("one level reversed in time", NETWORK,
               network(lambda parts: [parts[0], parts[1][:, ::-1], *parts[2:]])),
        Mutant("levels start one coefficient early", NETWORK, network(_early)),
        Mutant("outputs concatenated in reverse", NETWORK, network(outputs=lambda parts: parts[::-1])),
        TOO_SHALLOW,
        Mutant("time of the first sample for all", NETWORK,
               network(time=lambda t: ops.broadcast_to(t[:1], t.shape))),
    ]  # fmt: skip
    if equal:
        found.append(LEVELS_SWAPPED)
    if config.num_layers > 1:
        found.append(Mutant("block 1 with block 0's weights", ("level_1",),
                            lambda layer, _: copied(layer.block_1, layer.block_0), shares=True))  # fmt: skip
    return found


def scale_mutants() -> list[Mutant]:
    """The mutants of the condition."""

    def scaled(change: Callable[[KerasTensor], KerasTensor]) -> Change:
        def embedding(model: KerasModel, time: KerasTensor, *scale: KerasTensor) -> KerasTensor:
            embedded = model.time_embedding(time)
            return embedded + model.scale_embedding(change(scale[0])) if scale else embedded

        return network(embedding=embedding)

    return [
        Mutant("logarithm of the scale left out", NETWORK, scaled(lambda s: SCALE_GAIN * s)),
        Mutant("scale not multiplied by 10", NETWORK, scaled(ops.log1p)),
        Mutant("logarithm of the scale without one added", NETWORK, scaled(lambda s: ops.log(SCALE_GAIN * s))),
        Mutant("scale of the first sample for all", NETWORK,
               scaled(lambda s: ops.log1p(SCALE_GAIN * ops.broadcast_to(s[:1], s.shape)))),
        Mutant("condition ignored", NETWORK,
               network(embedding=lambda model, time, *_: model.time_embedding(time)), gate="0"),
    ]  # fmt: skip


def state_mutants() -> list[Mutant]:
    """The mutants not visible in the network's code: stored precision, dropout, a guard against large values."""
    clipped = calling(lambda layer, x: ops.clip(x + ops.cast(layer.table, x.dtype), -CLIP, CLIP))
    return [
        BFLOAT16_WEIGHTS,
        Mutant("float16 weights", NETWORK, rounded("float16"), shares=True),
        Mutant("dropout on", ("*/dropout",), DROPOUT),
        Mutant("tokens clipped at 30", ("level_?/position",), clipped),
    ]


def _early(parts: list[KerasTensor]) -> list[KerasTensor]:
    """Every level but the first begins with the last coefficient of the one before."""
    return [parts[0], *(ops.concatenate([a[:, -1:], b[:, :-1]], axis=1) for a, b in pairwise(parts))]


def time_mutants() -> list[Mutant]:
    """The mutants of the time embedding."""
    site = TIME
    return [
        Mutant("time off by one", site, calling(lambda layer, t: embedded(layer, t * STEPS_PER_TIME + 1.0))),
        TIME_UNSCALED,
        Mutant("frequencies divided by half", site, _frequencies),
        Mutant("cosines before sines", site, calling(lambda layer, t: embedded(layer, t * STEPS_PER_TIME, _cosines))),
        Mutant("sines and cosines interleaved", site,
               calling(lambda layer, t: embedded(layer, t * STEPS_PER_TIME, _alternating))),
    ]  # fmt: skip


def scale_embedding_mutants() -> list[Mutant]:
    """The mutants of the scale embedding."""
    site = ("scale_embedding",)
    return [
        Mutant("scale's cosines before sines", site, calling(lambda layer, s: embedded(layer, s, _cosines))),
        Mutant("scale embedded as a time", site, calling(lambda layer, s: embedded(layer, s * STEPS_PER_TIME))),
    ]


def position_mutants() -> list[Mutant]:
    """The mutants of the position tables."""

    site = POSITION
    return [
        Mutant("position sines and cosines concatenated", site,
               position_table(lambda t: np.concatenate([t[:, 0::2], t[:, 1::2]], axis=1))),
        Mutant("position sines and cosines swapped", site,
               position_table(lambda t: np.stack([t[:, 1::2], t[:, 0::2]], axis=2).reshape(t.shape))),
        POSITIONS_OFF,
        Mutant("position table missing", site, position_table(np.zeros_like)),
    ]  # fmt: skip


def _cosines(angle: KerasTensor) -> KerasTensor:
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def _alternating(angle: KerasTensor) -> KerasTensor:
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(angle.shape[0], -1)


def _frequencies(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    half = len(layer.frequencies)
    made = np.exp(-np.arange(half) * np.log(10000.0) / half)
    return attributes(layer, frequencies=made.astype(layer.frequencies.dtype))
