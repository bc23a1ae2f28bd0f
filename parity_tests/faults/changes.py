"""Changes of weights and of precision that several families' mutants have."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax.numpy as jnp
import numpy as np

from wdport.families.faults import Change, array_of, holding
from wdport.model import KerasLayer, KerasModel


def swapped(first: str, second: str) -> Change:
    """Swap the weights of two layers of one shape."""

    def change(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
        pairs = list(zip(getattr(layer, first).weights, getattr(layer, second).weights, strict=True))
        return holding(*((into, array_of(source)) for pair in pairs for into, source in (pair, pair[::-1])))

    return change


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
