"""How training makes noisy states: signal, noise and target as a table over the steps that it draws.

A clean state x_0 and noise e make the state a x_0 + s e at time t, and the network shall predict c x_0 + d e. For a
diffusion the five numbers are rows of a table, for a flow functions of the time; each sample draws its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.diffusion.schedules import Array


class NoiseLevel(NamedTuple):
    """One number (B,) for each sample: the time passed to the network, the factors of signal and noise in its state,
    and those in its target."""

    time: Tensor
    signal: Tensor
    noise: Tensor
    target_signal: Tensor
    target_noise: Tensor


@dataclass(frozen=True, eq=False)
class StepNoising:
    """Of a diffusion: ``times`` (S,) and ``alpha_bar`` (S,), float64, of the steps that are drawn, with equal
    probability or those of ``law`` (S,). A velocity is a e - s x_0 (Salimans and Ho, arXiv 2202.00512)."""

    target: str
    times: Array
    alpha_bar: Array
    law: Array | None = None

    def at(self, uniform: Tensor) -> NoiseLevel:
        """The levels of uniform numbers u (B,) in [0, 1), in their dtype: the step is floor(S u), or the first whose
        cumulative probability is above u."""
        # In float64 on the host; each row is rounded once, to the dtype of the batch.
        signal, noise = np.sqrt(self.alpha_bar), np.sqrt(1.0 - self.alpha_bar)
        one, none = np.ones_like(signal), np.zeros_like(signal)
        target_factors = {"noise": (none, one), "sample": (one, none), "velocity": (-noise, signal)}[self.target]
        if self.law is None:
            place = jnp.floor(uniform * len(self.times))
        else:
            place = jnp.searchsorted(jnp.asarray(np.cumsum(self.law), uniform.dtype), uniform, side="right")
        # The last cumulative probability may round to below 1, and the search then returns S.
        step = jnp.clip(place, 0, len(self.times) - 1).astype(int)
        rows = (self.times, signal, noise, *target_factors)
        return NoiseLevel(*(jnp.asarray(row, uniform.dtype)[step] for row in rows))


@dataclass(frozen=True, eq=False)
class FlowNoising:
    """Of a flow along the path "linear" or "cosine": time 0 is noise and 1 data; a velocity is the path's derivative.
    ``network_time`` maps the time to the network's."""

    target: str
    path: str = "linear"
    network_time: Callable[[Tensor], Tensor] = lambda time: time

    def at(self, uniform: Tensor) -> NoiseLevel:
        """The levels of uniform numbers (B,) in [0, 1), the times, in their dtype."""
        if self.path == "linear":
            signal, noise = uniform, 1.0 - uniform
            slopes = jnp.ones_like(uniform), -jnp.ones_like(uniform)
        else:
            angle = jnp.asarray(np.pi / 2.0, uniform.dtype) * uniform
            signal, noise = jnp.sin(angle), jnp.cos(angle)
            slopes = np.pi / 2.0 * noise, -np.pi / 2.0 * signal
        one, none = jnp.ones_like(uniform), jnp.zeros_like(uniform)
        target_factors = {"noise": (none, one), "sample": (one, none), "velocity": slopes}[self.target]
        return NoiseLevel(self.network_time(uniform), signal, noise, *target_factors)


Noising = StepNoising | FlowNoising
"""The levels that training draws."""

MIN_SNR_GAMMA: Final = 5.0
"""Of the law of Min-SNR."""

# Added to both denominators, as the public training does; alpha_bar is 1 at its dummy index 0.
_LEAST: Final = 1e-8


def min_snr_law(alpha_bar: Array) -> Array:
    """Probabilities (S,) of steps, proportional to min(snr, 5) / snr, where snr is their signal-to-noise ratio: steps
    of much signal are rare."""
    snr = alpha_bar / (1.0 - alpha_bar + _LEAST)
    weights = np.minimum(snr, MIN_SNR_GAMMA) / (snr + _LEAST)
    law: Array = weights / weights.sum()
    return law


def step_noising(target: str, times: Array, alpha_bar: Array, steps: Sequence[int]) -> StepNoising:
    """Return the noising of a diffusion that is trained on ``steps``, indices of the two tables."""
    chosen = np.asarray(steps)
    return StepNoising(target, np.asarray(times, np.float64)[chosen], np.asarray(alpha_bar, np.float64)[chosen])
