"""Known bugs of the fixed sinusoids: diffusion time and the positions of a level's coefficients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import jax.numpy as jnp
import numpy as np

from wdport.families.mutants import Change, Mutant, attributes, calling
from wdport.families.waveletdiff.layers import STEPS_PER_TIME
from wdport.model import Array, KerasLayer, KerasModel, KerasTensor

Waves = Callable[[KerasTensor], KerasTensor]
"""An angle (B, T / 2) to the embedding (B, T)."""


def time_mutants() -> list[Mutant]:
    """The mutants of the time embedding."""
    site = ("time_embedding",)
    return [
        Mutant("time off by one", site, calling(lambda layer, t: _embedded(layer, t * STEPS_PER_TIME + 1.0))),
        Mutant("time not scaled by 1000", site, calling(_embedded), quick=True),
        Mutant("frequencies divided by half", site, _frequencies),
        Mutant("cosines before sines", site, calling(lambda layer, t: _embedded(layer, t * STEPS_PER_TIME, _cosines))),
        Mutant("sines and cosines interleaved", site,
               calling(lambda layer, t: _embedded(layer, t * STEPS_PER_TIME, _alternating))),
    ]  # fmt: skip


def scale_embedding_mutants() -> list[Mutant]:
    """The mutants of the scale embedding."""
    site = ("scale_embedding",)
    return [
        Mutant("scale's cosines before sines", site, calling(lambda layer, s: _embedded(layer, s, _cosines))),
        Mutant("scale embedded as a time", site, calling(lambda layer, s: _embedded(layer, s * STEPS_PER_TIME))),
    ]


def position_mutants() -> list[Mutant]:
    """The mutants of the position tables."""

    def table(function: Callable[[Array], Array]) -> Change:
        return lambda layer, _: attributes(layer, table=function(layer.table))

    site = ("level_?/position",)
    return [
        Mutant("position sines and cosines concatenated", site,
               table(lambda t: np.concatenate([t[:, 0::2], t[:, 1::2]], axis=1))),
        Mutant("position sines and cosines swapped", site,
               table(lambda t: np.stack([t[:, 1::2], t[:, 0::2]], axis=2).reshape(t.shape))),
        Mutant("positions off by one", site, table(lambda t: np.roll(t, 1, axis=0)), quick=True),
        Mutant("position table missing", site, table(np.zeros_like)),
    ]  # fmt: skip


def _sines(angle: KerasTensor) -> KerasTensor:
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def _cosines(angle: KerasTensor) -> KerasTensor:
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def _alternating(angle: KerasTensor) -> KerasTensor:
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(angle.shape[0], -1)


def _embedded(
    layer: KerasLayer, step: KerasTensor, waves: Callable[[KerasTensor], KerasTensor] = _sines
) -> KerasTensor:
    return layer.mlp(waves(step[:, None] * layer.frequencies))


def _frequencies(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    half = layer.width // 2
    made = np.exp(-np.arange(half) * np.log(10000.0) / half)
    return attributes(layer, frequencies=made.astype(layer.frequencies.dtype))
