"""A GRU with a linear layer, trained by Adam in one compiled program: the judge of two scores.

Equations and initial weights are those of `torch.nn.GRU` and `torch.nn.Linear` (Cho et al., arXiv 1406.1078).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array as Tensor

from wdport.optimisers.adamw import AdamW

RATE: Final = 1e-3
_ADAM: Final = AdamW(weight_decay=0.0)


class Gru(NamedTuple):
    """Weights for inputs of F features and a state of H: three gates side by side (reset, update, new), and a linear
    layer to one output."""

    inputs: Tensor
    """(F, 3 H)."""
    states: Tensor
    """(H, 3 H)."""
    input_bias: Tensor
    """(3 H,)."""
    state_bias: Tensor
    """(3 H,)."""
    linear: Tensor
    """(H,)."""
    bias: Tensor
    """()."""


def begin(key: Tensor, features: int, width: int, dtype: Any = jnp.float32) -> Gru:
    """Initial weights, uniform within 1 / sqrt(H), as PyTorch's."""
    shapes = ((features, 3 * width), (width, 3 * width), (3 * width,), (3 * width,), (width,), ())
    limit = width**-0.5
    keys = jax.random.split(key, len(shapes))
    return Gru(*(jax.random.uniform(one, shape, dtype, -limit, limit) for one, shape in zip(keys, shapes, strict=True)))


def outputs(weights: Gru, series: Tensor) -> Tensor:
    """The linear layer's output at every step (B, N) for series (B, N, F); the first state is zero."""
    width = weights.states.shape[0]
    given = series @ weights.inputs + weights.input_bias

    def step(state: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        held = state @ weights.states + weights.state_bias
        reset, update = (
            jax.nn.sigmoid(at[:, part] + held[:, part]) for part in (slice(width), slice(width, 2 * width))
        )
        new = jnp.tanh(at[:, 2 * width :] + reset * held[:, 2 * width :])
        state = (1.0 - update) * new + update * state
        return state, state @ weights.linear + weights.bias

    zero = jnp.zeros((series.shape[0], width), given.dtype)
    _, found = jax.lax.scan(step, zero, jnp.moveaxis(given, 1, 0))
    return found.T


def fit(key: Tensor, weights: Gru, loss: Callable[[Gru, Tensor], Tensor], steps: int) -> Gru:
    """Weights after Adam's steps at a rate of 1e-3; ``loss`` gets weights and the key of a step."""
    leaves, tree = jax.tree.flatten(weights)
    zeros = [(jnp.zeros_like(leaf), jnp.zeros_like(leaf)) for leaf in leaves]

    def step(state: Any, at: Tensor) -> tuple[Any, None]:
        held, moments = state
        slopes = jax.tree.leaves(jax.grad(loss)(jax.tree.unflatten(tree, held), jax.random.fold_in(key, at)))
        number: Any = (at + 1).astype(leaves[0].dtype)
        moved = [_ADAM.update(*each, number, RATE, 0.9) for each in zip(held, slopes, moments, strict=True)]
        return ([one for one, _ in moved], [two for _, two in moved]), None

    (found, _), _ = jax.lax.scan(step, (leaves, zeros), jnp.arange(steps))
    made: Gru = jax.tree.unflatten(tree, found)
    return made
