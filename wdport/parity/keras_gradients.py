"""Gradients of a Keras network by input, by tap and by variable, for given output cotangents.

A tap's gradient is that of a zero added to its outputs, so the model need not be split.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from wdport.base.jax_settings import FAST_COMPILE
from wdport.compare.calls import Outputs
from wdport.compare.probe import CallArguments, Compute, Handle, Tensor, intercepted, stateless, tensor_names, tensors
from wdport.compare.programs import TRACING, CompiledProgram
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_runtime import exact_float64, layers_by_path, variable_values

Shapes = tuple[tuple[int, ...], ...]

Named = dict[str, Tensor]
"""Inputs by position."""

ByTap = dict[str, list[jax.Array]]
"""The differentiable outputs of a tap, or zeros in their place."""


class GradientProbe:
    """Gradients of one Keras model, compiled once per batch shape; float64 under JAX x64.

    ``paths`` are the layers whose output gradients are computed besides those of inputs and variables.
    """

    def __init__(self, model: KerasModel, paths: Collection[str]) -> None:
        layers = layers_by_path(model)
        self.model = model
        self.layers = {path: layers[path] for path in paths}
        self._program = CompiledProgram(self._traced, FAST_COMPILE)
        self._zeros: dict[Shapes, ByTap] = {}
        self._shapes: dict[Shapes, list[tuple[int, ...]]] = {}
        self.output_names: tuple[str, ...] = ()

    def __call__(
        self, inputs: tuple[Array, ...], cotangents: Sequence[Array], trainable: list[jax.Array] | None = None
    ) -> tuple[Outputs, tuple[Array | None, ...], dict[str, list[Array]], list[jax.Array]]:
        """Outputs, and gradients of their inner product with ``cotangents``: by input (``None`` for integers), by
        tap's outputs and, in order, by trainable variable.

        ``trainable`` are values to use in place of the variables' own. The gradients by variable stay JAX arrays.
        """
        weights, fixed = variable_values(self.model)
        weights = weights if trainable is None else trainable
        outputs, (by_weight, by_input, by_tap) = self._program(
            weights, fixed, *_parted(inputs), list(cotangents), self._nothing(weights, fixed, inputs)
        )
        taps = {path: [np.asarray(leaf) for leaf in value] for path, value in by_tap.items()}
        ordered = (by_input.get(str(index)) for index in range(len(inputs)))
        slopes = tuple(None if slope is None else np.asarray(slope) for slope in ordered)
        return tuple(map(np.asarray, outputs)), slopes, taps, by_weight

    def optimize(self) -> bool:
        """See :meth:`CompiledProgram.optimize`."""
        return self._program.optimize()

    def compile(self, inputs: tuple[Array, ...]) -> None:
        """Compile the program for inputs of these shapes without running it."""
        weights, fixed = variable_values(self.model)
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            nothing = self._nothing(weights, fixed, inputs)
            self._program.compiled(weights, fixed, *_parted(inputs), self.cotangents(inputs), nothing)

    def cotangents(self, inputs: tuple[Array, ...], seed: int = 0) -> list[Array]:
        """Random cotangents in the shapes of the outputs for inputs like these."""
        self._nothing(*variable_values(self.model), inputs)
        rng = np.random.default_rng([seed, 1])
        return [rng.standard_normal(shape) for shape in self._shapes[_shapes_of(inputs)]]

    def _nothing(self, weights: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Array, ...]) -> ByTap:
        key = _shapes_of(inputs)
        if key not in self._zeros:
            with TRACING:
                outputs, shapes = jax.eval_shape(self._outputs, weights, fixed, inputs)
            self._shapes[key] = [leaf.shape for leaf in outputs]
            self._zeros[key] = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return self._zeros[key]

    def _call(
        self, weights: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Tensor, ...], handle: Handle
    ) -> list[jax.Array]:
        with intercepted(self.layers, handle), exact_float64():
            output = stateless(self.model, weights, fixed, inputs)
        self.output_names = tensor_names(output)
        return tensors(output)

    def _outputs(
        self, weights: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Tensor, ...]
    ) -> tuple[list[jax.Array], ByTap]:
        by_call: ByTap = {}

        def keep(call: str, compute: Compute, arguments: CallArguments) -> object:
            output = compute(arguments.tensors)
            by_call[call] = [leaf for leaf in tensors(output) if _is_float(leaf)]
            return output

        outputs = self._call(weights, fixed, inputs, keep)
        return outputs, by_call

    def _traced(
        self, weights: list[jax.Array], fixed: list[jax.Array], inputs: Named, integers: Named,
        cotangents: Sequence[Tensor], nothing: ByTap,
    ) -> tuple[list[jax.Array], tuple[list[jax.Array], Named, ByTap]]:  # fmt: skip
        def product(weights: list[jax.Array], inputs: Named, nothing: ByTap) -> tuple[jax.Array | int, list[jax.Array]]:
            def add(call: str, compute: Compute, arguments: CallArguments) -> object:
                flat, tree = jax.tree.flatten(compute(arguments.tensors))
                rest = iter(nothing[call])
                # The gradient by the added zero is that by the layer's output.
                return jax.tree.unflatten(tree, [leaf + next(rest) if _is_float(leaf) else leaf for leaf in flat])

            named_inputs = {**inputs, **integers}
            ordered = tuple(named_inputs[str(index)] for index in range(len(named_inputs)))
            outputs = self._call(weights, fixed, ordered, add)
            pairs = zip(outputs, cotangents, strict=True)
            return sum(jnp.sum(output * slope) for output, slope in pairs if _is_float(output)), outputs

        gradients, outputs = jax.grad(product, argnums=(0, 1, 2), has_aux=True)(weights, inputs, nothing)
        return outputs, gradients


def _parted(inputs: Sequence[Array]) -> tuple[Named, Named]:
    """Differentiable inputs, and the others, by position."""
    named: Named = {str(index): array for index, array in enumerate(inputs)}
    # jax.grad refuses integers among the arguments that it differentiates by.
    slopes = {index: array for index, array in named.items() if _is_float(array)}
    return slopes, {index: array for index, array in named.items() if index not in slopes}


def _shapes_of(inputs: Sequence[Array]) -> Shapes:
    return tuple(value.shape for value in inputs)


def _is_float(value: object) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)
