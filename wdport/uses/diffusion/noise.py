"""Noise: drawn from a seed and sample indices or laid out from a recorded tape for the scan, and how much of it a noisy
state of training has.

Every sample has its own key, made from the seed and the sample's index, and every step folds its number into that. So a
sample does not depend on its batch, chunk or device, and no key is used twice.

A clean state x_0 and noise e make the state a x_0 + s e at time t, and the network shall predict c x_0 + d e. For a
diffusion the five numbers are rows of a table, for a flow and for noise levels functions of a uniform number; each
sample draws its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from jax.scipy.special import ndtri

from wdport.base.errors import UsageError
from wdport.base.options import require_number
from wdport.models.interface import Array
from wdport.nets.random_bits import one_loop

FIRST = 0
"""Folded in for x_T; steps fold in their number, from 1 on."""

MAX_SEED = 2**32 - 1


def check_seed(seed: int) -> int:
    """``seed`` as an int; raises :class:`UsageError` outside 32 bits."""
    require_number((0, MAX_SEED), seed=seed)
    return int(seed)


def sample_keys(seed: Tensor, indices: Tensor) -> Tensor:
    """(B,) keys of the samples with these indices (uint32), independent of the generator and offset that jax is set
    to."""
    # The two words that jax.random.key makes of a 32-bit seed; the upper one is zero.
    words = jnp.stack([jnp.zeros((), jnp.uint32), jnp.asarray(seed, jnp.uint32)])
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    return jax.vmap(lambda index: jax.random.fold_in(key, index))(indices)


def step_noise(keys: Tensor, step: Tensor | int, shape: tuple[int, ...], dtype: str) -> Tensor:
    """(B, *shape) standard normal noise of one step (or row, see ``Plan.draws``); ``FIRST`` gives x_T.

    Drawn in float32 for every ``dtype``, so that float64 and float32 models get the same noise.
    """

    def one(key: Tensor) -> Tensor:
        # fold_in and not split: the noise of a step does not depend on how many steps the plan has.
        return jax.random.normal(one_loop(jax.random.fold_in(key, step)), shape, jnp.float32)

    # The bits depend on this setting, which is JAX's default but can be changed by the user.
    with jax.threefry_partitionable(True):
        return jax.vmap(one)(keys).astype(dtype)


def lay_out(tape: Array, noisy: Array) -> Array:
    """A tape with one slot per noisy row, (slots, B, C, F), as one with a slot for every row, (S, B, C, F).

    Slots beyond those needed are left out. Raises :class:`UsageError` if there are too few.
    """
    needed = int(np.sum(noisy))
    if len(tape) < needed:
        raise UsageError("noise", f"has {len(tape)} slots, the sampler takes {needed}", "record one per noisy step")
    laid = np.zeros((len(noisy), *tape.shape[1:]), tape.dtype)
    laid[noisy] = tape[:needed]
    return laid


class NoiseLevel(NamedTuple):
    """One number (B,) for each sample: the time passed to the network, the factors of signal and noise in its state,
    and those in its target. ``weight``, if given, multiplies the squared error."""

    time: Tensor
    signal: Tensor
    noise: Tensor
    target_signal: Tensor
    target_noise: Tensor
    weight: Tensor | None = None


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


@dataclass(frozen=True, eq=False)
class ScoreNoising:
    """Of a network that predicts the score of data + level * noise, -noise / level, at levels that are evenly
    distributed in their logarithm (arXiv 2011.13456, eq. 7 and app. C). The squared error has the weight level^2."""

    sigma_min: float
    sigma_max: float
    least: float

    def at(self, uniform: Tensor) -> NoiseLevel:
        """The levels of uniform numbers (B,) in [0, 1), in their dtype."""
        share = self.least + (1.0 - self.least) * uniform
        level = self.sigma_min * (self.sigma_max / self.sigma_min) ** share
        one = jnp.ones_like(level)
        return NoiseLevel(level, one, level, jnp.zeros_like(level), -one / level, level**2)


@dataclass(frozen=True, eq=False)
class EdmNoising:
    """Of a network that predicts F, or its negative for a ``velocity``, of arXiv 2206.00364, eq. 7, at levels with a
    log-normal distribution (table 1) between the two of the scheduler; ``unit`` is the deviation of the data, by which
    clean states are divided."""

    sigma_min: float
    sigma_max: float
    unit: float
    velocity: bool

    def at(self, uniform: Tensor) -> NoiseLevel:
        """The levels of uniform numbers (B,) in [0, 1), in their dtype."""
        # The quantile of 0 is infinite, and so may be that of a number that rounds to 1.
        share = jnp.clip(uniform, 1e-6, 1.0 - 1e-6)
        level = jnp.clip(jnp.exp(_MEAN + _DEVIATION * ndtri(share)), self.sigma_min, self.sigma_max)
        signal = 1.0 / jnp.sqrt(1.0 + (level / self.unit) ** 2)
        noise = level / self.unit * signal
        sign = -1.0 if self.velocity else 1.0
        return NoiseLevel(jnp.log(level) / 4.0, signal, noise, sign * noise, -sign * signal)


_MEAN: Final = -1.2
_DEVIATION: Final = 1.2
"""Of the logarithm of the level."""

Noising = StepNoising | FlowNoising | ScoreNoising | EdmNoising
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
