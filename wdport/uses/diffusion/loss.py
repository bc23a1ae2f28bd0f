"""The training loss of a network that undoes noise: what a step draws, and the errors of every sample.

One loss for diffusions and flows of every family: the noising is the process's own, the parts of the state and their
weights are the family's. A sample's error is a weighted sum over parts of the mean square of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.models.interface import Array, LossPart
from wdport.nets.random_bits import one_loop
from wdport.uses.diffusion.noise import NoiseLevel, Noising


class RandomBatch(NamedTuple):
    """The random numbers of a batch: noise (B, *shape), and uniform numbers (B,) that become steps."""

    noise: Tensor
    uniform: Tensor


class Errors(NamedTuple):
    """Of every sample: mean squares by part (B, P), and by part and feature the differences of energy (B,)."""

    parts: Tensor
    energy: Tensor
    weight: Tensor


@dataclass(frozen=True, eq=False)
class DiffusionLoss:
    """The loss of one batch.

    Args:
        noising: the levels that training draws.
        parts: the parts of the state's first axis; one for a state that has none.
        energy: weight of the energy term, the mean over parts and features of the absolute difference of the sums of
            squares.
        min_snr: gamma of Min-SNR weighting (Hang et al., arXiv 2303.09556); None for none.
    """

    noising: Noising
    parts: tuple[LossPart, ...]
    energy: float = 0.0
    min_snr: float | None = None

    def draw(self, key: Tensor, clean: Tensor) -> RandomBatch:
        """Random numbers for clean states, in their dtype."""
        first, second = (one_loop(part) for part in jax.random.split(key))
        noise = jax.random.normal(first, clean.shape, clean.dtype)
        return RandomBatch(noise, jax.random.uniform(second, clean.shape[:1], clean.dtype))

    def noisy(self, clean: Tensor, drawn: RandomBatch) -> tuple[Tensor, Tensor]:
        """The network's inputs: noisy states (B, *shape) and times (B,)."""
        level = self.noising.at(drawn.uniform)
        signal, noise = (_wide(factor, clean.ndim) for factor in (level.signal, level.noise))
        return signal * clean + noise * drawn.noise, level.time

    def target(self, clean: Tensor, drawn: RandomBatch) -> Tensor:
        """What the network should predict (B, *shape)."""
        level = self.noising.at(drawn.uniform)
        signal, noise = (_wide(factor, clean.ndim) for factor in (level.target_signal, level.target_noise))
        return signal * clean + noise * drawn.noise

    def errors(self, prediction: Tensor, clean: Tensor, drawn: RandomBatch) -> Errors:
        """The errors of a prediction (B, *shape)."""
        expected = self.target(clean, drawn)
        squares = jnp.square(prediction - expected)
        # (B, C): the parts divide the first axis of the state; everything after it is averaged.
        squares = squares.reshape(*squares.shape[:2], -1).mean(-1) if clean.ndim > 2 else squares
        has_parts = len(self.parts) > 1
        parts = squares @ jnp.asarray(self._means, clean.dtype) if has_parts else squares.mean(-1)[:, None]
        return Errors(parts, self._energy(prediction, expected), self._weights(self.noising.at(drawn.uniform), clean))

    def total(self, errors: Errors, counted: Tensor | None = None) -> Tensor:
        """The loss, a scalar; ``counted`` (B,) are weights of the samples, 0 for those that only fill the batch."""
        weights = jnp.asarray([part.weight for part in self.parts], errors.parts.dtype)
        sample_losses = (errors.parts @ weights) * errors.weight
        if self.energy:
            sample_losses = sample_losses + self.energy * errors.energy
        return mean(sample_losses, counted)

    def by_part(self, errors: Errors, counted: Tensor | None = None) -> dict[str, Tensor]:
        """The mean square of every part, scalars by name."""
        return {part.name: mean(errors.parts[:, index], counted) for index, part in enumerate(self.parts)}

    @cached_property
    def _means(self) -> Array:
        """The matrix (C, P) that takes the mean of each part."""
        # The part of each of the C values along the first axis.
        columns = np.repeat(np.arange(len(self.parts)), [part.length for part in self.parts])
        lengths = np.array([part.length for part in self.parts], np.float64)
        return np.asarray(np.eye(len(self.parts))[columns] / lengths)

    def _energy(self, prediction: Tensor, expected: Tensor) -> Tensor:
        if not self.energy:
            return jnp.zeros(prediction.shape[:1], prediction.dtype)
        sums = jnp.asarray(self._means > 0.0, prediction.dtype)
        difference = jnp.square(expected) - jnp.square(prediction)  # (B, C, F)
        energies = jnp.abs(jnp.einsum("bcf,cp->bpf", difference, sums))
        return energies.mean((1, 2))

    def _weights(self, level: NoiseLevel, clean: Tensor) -> Tensor:
        if self.min_snr is None:
            return jnp.ones(clean.shape[:1], clean.dtype) if level.weight is None else level.weight
        # The squared error in the clean state has the weight min(snr, gamma). If the state a x + s e is given, this
        # error is s / |c s - d a| times the error in the target c x + d e. At pure noise, the weight is a limit.
        signal, noise = (jnp.maximum(factor, 1e-15) for factor in (level.signal, level.noise))
        by = level.target_signal * noise - level.target_noise * signal
        return jnp.minimum(jnp.square(signal), self.min_snr * jnp.square(noise)) / jnp.square(by)


def _wide(numbers: Tensor, rank: int) -> Tensor:
    return numbers.reshape(-1, *(1,) * (rank - 1))


def mean(values: Tensor, counted: Tensor | None) -> Tensor:
    """The mean of (B,), weighted by ``counted`` (B,) if given."""
    if counted is None:
        return values.mean()
    counted = counted.astype(values.dtype)
    # At least 1, so that a batch of nothing but filling has a loss of 0 and not NaN.
    return jnp.sum(values * counted) / jnp.maximum(jnp.sum(counted), 1.0)
