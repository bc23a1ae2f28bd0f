"""Changes of weights, of layers and of precision that several families' mutants have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import jax.numpy as jnp
import keras
import numpy as np

from wdport.families.faults import Change, array_of, attributes, calling, holding
from wdport.models.interface import Array, KerasLayer, KerasModel, KerasTensor


def swapped(first: str, second: str) -> Change:
    """Swap the weights of two layers of one shape."""

    def change(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
        pairs = list(zip(getattr(layer, first).weights, getattr(layer, second).weights, strict=True))
        return holding(*((into, array_of(source)) for pair in pairs for into, source in (pair, pair[::-1])))

    return change


def copied(into: KerasLayer, source: KerasLayer) -> AbstractContextManager[object]:
    """Give a layer the weights of another."""
    pairs = zip(into.weights, source.weights, strict=True)
    return holding(*((variable, array_of(other)) for variable, other in pairs))


def kernel(function: Callable[[Array], Array]) -> Change:
    """Give the layer a function of its kernel."""
    return lambda layer, _: holding((layer.kernel, function(array_of(layer.kernel))))


def nonlinearity(function: Callable[[KerasTensor], KerasTensor]) -> Change:
    """Give the block another activation."""
    return lambda layer, _: attributes(layer.nonlinearity, activation=function)


def frequencies(values: Array) -> Change:
    """Give the embedding of times or positions other frequencies."""
    return lambda layer, _: attributes(layer, frequencies=np.ascontiguousarray(values, layer.frequencies.dtype))


def _dropout(_: KerasLayer, x: KerasTensor, **__: object) -> KerasTensor:
    keep = np.random.default_rng(0).random(tuple(x.shape)) < 0.9
    return x * keras.ops.cast(keep, keras.backend.standardize_dtype(x.dtype)) / 0.9


DROPOUT = calling(_dropout)
"""Dropout as in training."""


def without_bias(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    """Set the bias to zero."""
    return holding((layer.bias, np.zeros_like(array_of(layer.bias))))


def transposed(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    """Transpose a square kernel."""
    return holding((layer.kernel, array_of(layer.kernel).T))


def rounded(dtype: str) -> Change:
    """Round all trainable variables to this dtype."""

    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        arrays = ((variable, array_of(variable)) for variable in model.trainable_variables)
        return holding(*((variable, array.astype(jnp.dtype(dtype)).astype(array.dtype)) for variable, array in arrays))

    return change


def in_float32(change: Change) -> Change:
    """``change`` in a float32 model, nothing in a float64 one."""

    def chosen(layer: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        return change(layer, model) if layer.compute_dtype == "float32" else nullcontext()

    return chosen
