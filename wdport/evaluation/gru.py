"""The judge of two scores: Keras's GRU with a linear layer, trained by Keras's Adam in one compiled program.

Initial weights are those of `torch.nn.GRU` and `torch.nn.Linear`; the equations are the same, that of the new gate with
the reset after the product (`reset_after`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
from jax import Array as Tensor

RATE: Final = 1e-3

Weights = list[Tensor]
"""The GRU's three variables and the linear layer's two, in Keras's layouts."""


class Judge:
    """A GRU of a state of ``width`` for inputs of F features, and a linear layer to one output, without weights."""

    def __init__(self, features: int, width: int, dtype: Any = jnp.float32) -> None:
        options: dict[str, Any] = {"dtype": jnp.dtype(dtype).name, "kernel_initializer": "zeros"}
        with jax.ensure_compile_time_eval():  # also if a program is being traced
            self._gru = keras.layers.GRU(
                width, jnp.tanh, recurrent_initializer="zeros", return_sequences=True, seed=0, **options
            )  # in float64, Keras's tanh computes in float32
            self._linear = keras.layers.Dense(1, **options)
            self._gru.build((None, None, features))
            self._linear.build((None, None, width))
            self._state = [variable.value for variable in self._gru.non_trainable_variables]

    @property
    def _variables(self) -> list[Any]:
        return [*self._gru.trainable_variables, *self._linear.trainable_variables]

    def begin(self, key: Tensor) -> Weights:
        """Initial weights, uniform within 1 / sqrt(width), as PyTorch's."""
        limit = self._gru.units**-0.5
        keys = jax.random.split(key, len(self._variables))
        return [
            jax.random.uniform(one, variable.shape, variable.dtype, -limit, limit)
            for one, variable in zip(keys, self._variables, strict=True)
        ]

    def outputs(self, weights: Weights, series: Tensor) -> Tensor:
        """The linear layer's output at every step (B, N) for series (B, N, F); the first state is zero."""
        states, _ = self._gru.stateless_call(weights[:3], self._state, series)
        projected, _ = self._linear.stateless_call(weights[3:], [], states)
        last: Tensor = projected[..., 0]
        return last

    def fit(self, key: Tensor, weights: Weights, loss: Callable[[Weights, Tensor], Tensor], steps: int) -> Weights:
        """Weights after Adam's steps at a rate of 1e-3; ``loss`` gets weights and the key of a step."""
        with jax.ensure_compile_time_eval():
            adam = keras.optimizers.Adam(RATE)
            adam.build(self._variables)
            start = [variable.value for variable in adam.variables]

        def step(state: Any, step_number: Tensor) -> tuple[Any, None]:
            held, moments = state
            slopes = jax.grad(loss)(held, jax.random.fold_in(key, step_number))
            return adam.stateless_apply(moments, slopes, held), None

        (trained, _), _ = jax.lax.scan(step, (weights, start), jnp.arange(steps))
        return trained
