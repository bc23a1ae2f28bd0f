"""What our models need from a running Keras: the JAX backend, and one dtype policy per model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import keras

from wdport.errors import UsageError


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
