"""What our models need from a running Keras: the JAX backend, one dtype policy per model, variables to fill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import keras
import numpy as np

from wdport.errors import UsageError
from wdport.model import Array


def require_backend(dtype: str) -> None:
    """Raise :class:`UsageError` unless Keras runs on JAX and JAX can hold ``dtype``."""
    if (backend := keras.backend.backend()) != "jax":
        fix = "set KERAS_BACKEND=jax before keras is first imported"
        raise UsageError("keras", f"it runs on the {backend} backend", fix)
    if dtype == "float64" and not getattr(jax.config, "jax_enable_x64"):
        fix = 'call jax.config.update("jax_enable_x64", True) first, or set JAX_ENABLE_X64=1'
        raise UsageError("jax", "float64 is switched off", fix)


@contextmanager
def layer_dtype(policy: keras.DTypePolicy) -> Iterator[None]:
    """Layers created inside have ``policy``: Keras would give them the global one, not the model's."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def set_variable(variable: Any, array: Array) -> None:
    """Give a Keras variable an array's values, in the variable's own dtype.

    The array must not change afterwards: on a CPU the variable may keep the very memory that it is given.
    Handing the array itself to Keras compiles a program for every new shape (JAX 0.10), 30 ms each.
    """
    variable.assign(jax.device_put(np.asarray(array, dtype=variable.dtype)))
