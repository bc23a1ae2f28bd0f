"""The two scores that need a trained judge: how well real and generated series are distinguished, and how well a
predictor that is trained on generated series predicts real ones.

Initial weights are those of `torch.nn.GRU` and `torch.nn.Linear`; the equations are the same, that of the new gate with
the reset after the product (`reset_after`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
            # The activation is JAX's tanh: in float64, Keras's computes in float32.
            self._gru = keras.layers.GRU(
                width, jnp.tanh, recurrent_initializer="zeros", return_sequences=True, seed=0, **options
            )
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

        # A scan: thousands of small steps are one call, where each would cost more to dispatch than to compute.
        (trained, _), _ = jax.lax.scan(step, (weights, start), jnp.arange(steps))
        return trained


BATCH: Final = 128
DISCRIMINATIVE_STEPS: Final = 2000
PREDICTIVE_STEPS: Final = 5000
AHEAD: Final = 20
"""Steps ahead that a series of one feature is predicted."""


def width_of(features: int) -> int:
    """The width of the judges' state."""
    return max(features // 2, 2)


@partial(jax.jit, static_argnames="steps")
def discriminative_scores(keys: Tensor, real: Tensor, generated: Tensor, steps: int = DISCRIMINATIVE_STEPS) -> Tensor:
    """Return |accuracy - 0.5| of judges that distinguish real from generated series (n, N, F), one for each key (R,).

    A judge is trained on four fifths of each and tested on the rest; splits, batches and weights follow from its key.
    0 is best.
    """
    # One after the other: judges side by side would multiply the memory of a training.
    scores: Tensor = jax.lax.map(lambda key: _discriminative(key, real, generated, steps), keys)
    return scores


def _discriminative(key: Tensor, real: Tensor, generated: Tensor, steps: int) -> Tensor:
    first, second, weights_key, steps_key = jax.random.split(key, 4)
    (real, real_test), (generated, generated_test) = _split(first, real), _split(second, generated)
    judge = Judge(real.shape[-1], width_of(real.shape[-1]), real.dtype)

    def loss(weights: Weights, key: Tensor) -> Tensor:
        one, other = jax.random.split(key)
        true = judge.outputs(weights, _batch(one, real))[:, -1]
        false = judge.outputs(weights, _batch(other, generated))[:, -1]
        # The two binary cross-entropies, from logits.
        return jax.nn.softplus(-true).mean() + jax.nn.softplus(false).mean()

    trained = judge.fit(steps_key, judge.begin(weights_key), loss, steps)
    right = jnp.concatenate([judge.outputs(trained, real_test)[:, -1] > 0.0,
                             judge.outputs(trained, generated_test)[:, -1] <= 0.0])  # fmt: skip
    return jnp.abs(2 * right.sum() - right.size) / (2 * right.size)  # exactly 0 if half of them are


@partial(jax.jit, static_argnames="steps")
def predictive_scores(keys: Tensor, real: Tensor, generated: Tensor, steps: int = PREDICTIVE_STEPS) -> Tensor:
    """Return the mean absolute error on all real series (n, N, F) of judges that were trained on generated ones, one
    for each key (R,).

    The last feature is predicted one step ahead from the others, or a single feature 20 steps ahead from itself. The
    error has a floor, that of judges which were trained on real series.
    """
    errors: Tensor = jax.lax.map(lambda key: _predictive(key, real, generated, steps), keys)
    return errors


def _predictive(key: Tensor, real: Tensor, generated: Tensor, steps: int) -> Tensor:
    weights_key, steps_key = jax.random.split(key)
    features = max(real.shape[-1] - 1, 1)
    judge = Judge(features, width_of(real.shape[-1]), real.dtype)

    def loss(weights: Weights, key: Tensor) -> Tensor:
        return _error(judge, weights, _batch(key, generated))

    trained = judge.fit(steps_key, judge.begin(weights_key), loss, steps)
    return _error(judge, trained, real)


def _error(judge: Judge, weights: Weights, series: Tensor) -> Tensor:
    ahead, inputs = (1, series[..., :-1]) if series.shape[-1] > 1 else (AHEAD, series)
    # Scaled real values are in [0, 1], as the sigmoid's are.
    predicted = jax.nn.sigmoid(judge.outputs(weights, inputs[:, :-ahead]))
    return jnp.abs(predicted - series[:, ahead:, -1]).mean()


def _split(key: Tensor, series: Tensor) -> tuple[Tensor, Tensor]:
    """Four fifths of the series, at random, and the rest."""
    mixed = jax.random.permutation(key, series)
    # In whole numbers, so that no rounding decides where the split is.
    count = len(series) * 4 // 5
    return mixed[:count], mixed[count:]


def _batch(key: Tensor, series: Tensor) -> Tensor:
    """128 different series, or all if there are fewer."""
    # The places of the largest random numbers are a sample without replacement; a permutation would sort all series.
    _, chosen = jax.lax.top_k(jax.random.uniform(key, (len(series),)), min(BATCH, len(series)))
    return series[chosen]
