"""A family's Keras model as the network for sampling: the model itself, called with weights that are arguments.

Its own layers compute, so it is as fast as they are. Everything that depends only on time is computed once per plan if
the model has the methods ``embed(times, condition)`` and ``denoise(state, embedding)``, whose composition is its call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax import Array as Tensor

from wdport.compare.probe import model_arguments
from wdport.errors import UsageError
from wdport.keras_runtime import exact_float64, variables_by_path
from wdport.model import KerasModel

POLICIES = {"bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
"""Keras dtype policy by its compute dtype, where they differ."""

Weights = dict[str, Any]


class KerasDenoiser:
    """See :class:`wdport.families.roles.Denoiser`.

    ``build(policy)`` makes the model, whose own values are not used. Its inputs are the state, the time and,
    with ``conditioned``, a condition.
    """

    def __init__(
        self,
        build: Callable[[str], KerasModel],
        dtype: str,
        pad_widths: int = 1,
        conditioned: bool = False,
    ) -> None:
        if pad_widths != 1:
            raise UsageError("pad_widths", "this model's widths cannot be padded", "leave it out")
        self._exact = dtype == "float64"
        # Built at once: Keras's dtype policy is global, and other threads may build models later.
        with jax.enable_x64(True) if dtype == "float64" else nullcontext():
            self._model = build(POLICIES.get(dtype, dtype))
        # Found by name: the user's class need not know wdport.
        self._embeds = hasattr(self._model, "embed") and hasattr(self._model, "denoise")
        self._conditioned = conditioned
        self._paths = {id(variable): path for path, variable in variables_by_path(self._model).items()}

    def arrange(self, variables: Mapping[str, Tensor], by_outputs: bool = True) -> Weights:
        return dict(variables)

    def lay_out(self, weights: Weights, by_outputs: bool) -> Weights:
        return weights

    def by_outputs(self, batch: int | None) -> bool:
        return True

    def embed(self, weights: Weights, times: Tensor) -> Tensor:
        """The embedding (S, T) of the times (S,), if it does not depend on a condition; otherwise the times."""
        # The condition is not known before `predict`.
        if not self._embeds or self._conditioned:
            return times
        with self._holding(weights):
            embedding: Tensor = self._model.embed(times)
        return embedding

    def predict(self, weights: Weights, state: Tensor, embedded: Tensor, condition: Tensor | None = None) -> Tensor:
        if self._embeds:
            with self._holding(weights):
                # All samples are at the same step.
                every = jnp.broadcast_to(embedded, (*state.shape[:1], *embedded.shape))
                embedding = self._model.embed(every, condition) if self._conditioned else every
                prediction: Tensor = self._model.denoise(state, embedding)
            return prediction.astype(state.dtype)
        every = jnp.broadcast_to(embedded, state.shape[:1])
        result = self._call(weights, [state, every] if condition is None else [state, every, condition])
        output: Tensor = result[0] if isinstance(result, (list, tuple)) else result
        return output.astype(state.dtype)

    @contextmanager
    def _holding(self, weights: Weights) -> Iterator[None]:
        """Context in which the model has these values."""
        # Keras reads a variable's value from the innermost scope, so the weights stay arguments of the compiled
        # program.
        held = [(variable, self._value(variable, weights)) for variable in self._model.variables]
        with exact_float64() if self._exact else nullcontext(), keras.StatelessScope(state_mapping=held):
            yield

    def _call(self, weights: Weights, inputs: Any) -> Any:
        model = self._model
        held = model.trainable_variables, model.non_trainable_variables
        trained, others = ([self._value(variable, weights) for variable in variables] for variables in held)
        with exact_float64() if self._exact else nullcontext():
            return model.stateless_call(trained, others, *model_arguments(model, inputs), training=False)[0]

    def _value(self, variable: Any, weights: Weights) -> Any:
        """The value of a variable; seeds of random generators, which nothing reads here, are not weights."""
        path = self._paths.get(id(variable), "")
        return weights[path] if path in weights else np.asarray(variable.value)
