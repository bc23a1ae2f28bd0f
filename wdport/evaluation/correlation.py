"""The correlational score: how far the features' correlations of two sets of series are apart."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp
from jax import Array as Tensor

DIVISOR: Final = 10.0
"""Of the sum over pairs, in the public evaluation."""


@jax.jit
def correlations(series: Tensor) -> Tensor:
    """The correlations (F, F) of series (n, N, F): features standardised over windows and time, with the deviation of
    n N - 1 degrees of freedom."""
    flat = series.reshape(-1, series.shape[-1])
    centred = flat - flat.mean(0)
    deviation = jnp.sqrt((centred**2).sum(0) / (len(flat) - 1))
    standard = centred / jnp.where(deviation > 0.0, deviation, 1.0)
    return standard.T @ standard / len(flat)


@jax.jit
def correlational_score(real: Tensor, generated: Tensor) -> Tensor:
    """The sum over pairs of features i >= j of the absolute differences of their correlations, divided by 10."""
    apart = jnp.abs(correlations(real) - correlations(generated))
    return jnp.tril(apart).sum() / DIVISOR
