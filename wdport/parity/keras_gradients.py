"""Gradients of a Keras network: inputs and an output cotangent in; by input, by tap and by variable out.

A tap's gradient is that of a zero added to its outputs, so nothing of the model has to be taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wdport.compile_cache import FAST_COMPILE
from wdport.model import Array
from wdport.parity.calls import leaves
from wdport.parity.keras_probe import intercepted, layers_by_path
from wdport.parity.programs import TRACING, Program


class GradientProbe:
    """One Keras model's gradients, compiled once per batch shape; float64 under JAX x64.

    ``paths`` are the layers whose outputs' gradients are wanted besides those of inputs and variables.
    """

    def __init__(self, model: Any, paths: Collection[str]) -> None:
        layers = layers_by_path(model)
        self.model = model
        self.layers = {path: layers[path] for path in paths}
        self._program = Program(self._traced, FAST_COMPILE)
        self._zeros: dict[Any, Any] = {}

    def __call__(
        self, inputs: tuple[Array, ...], cotangent: Array, trainable: list[Any] | None = None
    ) -> tuple[Array, tuple[Array, ...], dict[str, list[Array]], list[Any]]:
        """Output, and gradients by input, by tap's outputs and, in their order, by trainable variable.

        ``trainable`` are values in place of the variables' own. The last stay JAX arrays.
        """
        weights = [v.value for v in self.model.trainable_variables] if trainable is None else trainable
        fixed = [v.value for v in self.model.non_trainable_variables]
        output, (by_weight, by_input, by_tap) = self._program(
            weights, fixed, inputs, cotangent, self._nothing(weights, fixed, inputs)
        )
        taps = {path: [np.asarray(leaf) for leaf in leaves(value)] for path, value in by_tap.items()}
        return np.asarray(output), tuple(np.asarray(value) for value in by_input), taps, by_weight

    def compile(self, inputs: tuple[Array, ...]) -> None:
        """Make the program for inputs like these, and run nothing."""
        weights = [v.value for v in self.model.trainable_variables]
        fixed = [v.value for v in self.model.non_trainable_variables]
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            self._program.compiled(weights, fixed, inputs, inputs[0], self._nothing(weights, fixed, inputs))

    def _nothing(self, weights: list[Any], fixed: list[Any], inputs: tuple[Array, ...]) -> dict[str, Any]:
        """Zeros in the shapes of the taps' outputs."""
        key = tuple(value.shape for value in inputs)
        if key not in self._zeros:
            with TRACING:
                shapes = jax.eval_shape(self._outputs, weights, fixed, inputs)
            self._zeros[key] = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return self._zeros[key]  # type: ignore[no-any-return]

    def _call(self, weights: list[Any], fixed: list[Any], inputs: Any, handle: Callable[..., Any]) -> Any:
        mode = {"training": False} if self.model._call_has_training_arg else {}
        with intercepted(self.layers, handle):
            output, _ = self.model.stateless_call(weights, fixed, inputs, **mode)
        return output

    def _outputs(self, weights: list[Any], fixed: list[Any], inputs: Any) -> Any:
        found: dict[str, Any] = {}

        def keep(path: str, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            found[path] = compute(*args)
            return found[path]

        self._call(weights, fixed, inputs, keep)
        return found

    def _traced(self, weights: list[Any], fixed: list[Any], inputs: Any, cotangent: Any, nothing: Any) -> Any:
        def product(weights: list[Any], inputs: Any, nothing: Any) -> Any:
            def add(path: str, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
                return jax.tree.map(jnp.add, compute(*args), nothing[path])

            output = self._call(weights, fixed, inputs, add)
            return jnp.sum(output * cotangent), output

        gradients, output = jax.grad(product, argnums=(0, 1, 2), has_aux=True)(weights, inputs, nothing)
        return output, gradients
