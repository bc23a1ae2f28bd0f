"""Known bugs of the fixed sinusoids: diffusion time and the positions of a level's coefficients."""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax.numpy as jnp
import numpy as np

from wdport.families.faults import Mutant, attributes, calling
from wdport.families.waveletdiff.canary import POSITION, POSITIONS_OFF, TIME, TIME_UNSCALED, embedded, position_table
from wdport.families.waveletdiff.variables import STEPS_PER_TIME
from wdport.model import KerasLayer, KerasModel, KerasTensor


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
