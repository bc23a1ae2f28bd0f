"""The diffusion training objective: network inputs, target and loss from clean coefficients, noise and steps.

Source: arXiv 2510.11839. A level's weight is a_i / d_i, normalised to sum 1, where d_i are its coefficients,
a_0 = 2 for the approximation and a_i = 1 for details; a level's loss is a mean over batch, coefficients, features.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from wdport.diffusion.schedules import STEPS
from wdport.model import Array


def draw_steps(uniform: Array) -> Array:
    """Map uniform numbers in [0, 1) to training steps 0, ..., 999 (sampling uses 1000, ..., 1), int64."""
    return np.asarray(np.floor(np.asarray(uniform) * STEPS), dtype=np.int64)


def add_noise(clean: Array, noise: Array, alpha_bar: Array) -> Array:
    """Clean coefficients (B, C, F) and noise at ``alpha_bar`` (B,): sqrt(a) x_0 + sqrt(1 - a) eps."""
    level = np.asarray(alpha_bar)[:, None, None]
    return np.asarray(np.sqrt(level) * clean + np.sqrt(1.0 - level) * noise)


def level_weights(level_lengths: Sequence[int]) -> Array:
    """The weight of each level's mean, (levels,), float64, summing to 1; the approximation comes first."""
    weights = np.array([(2.0 if i == 0 else 1.0) / length for i, length in enumerate(level_lengths)])
    return np.asarray(weights / weights.sum())


def diffusion_loss(
    prediction: jax.Array, target: Array | jax.Array, level_lengths: Sequence[int], energy_weight: float = 0.0
) -> jax.Array:
    """The loss of a prediction (B, C, F), a scalar in its dtype.

    ``energy_weight`` times the mean over batch, levels and features of |sum target^2 - sum prediction^2| is added;
    every released configuration has it at 0.
    """
    ends = np.cumsum(level_lengths)[:-1]
    pairs = zip(jnp.split(prediction, ends, axis=1), jnp.split(target, ends, axis=1), strict=True)
    loss, energy = jnp.zeros((), prediction.dtype), []
    for weight, (ours, theirs) in zip(level_weights(level_lengths), pairs, strict=True):
        loss = loss + float(weight) * jnp.mean((ours - theirs) ** 2)
        energy.append(jnp.abs(jnp.sum(theirs**2, axis=1) - jnp.sum(ours**2, axis=1)))
    return loss + energy_weight * jnp.mean(jnp.stack(energy)) if energy_weight else loss
