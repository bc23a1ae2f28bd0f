"""Initial weights, distributed as in the public training script.

Drawn by numpy, which `keras.utils.set_random_seed` also seeds, or :func:`seeded`: JAX would compile a program for every
shape. Building the model at the released size takes 9.3 s with JAX, and 4.2 s with numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import keras
import numpy as np
from keras import layers

from wdport.models.interface import Array

_BLANK: ContextVar[dict[tuple[tuple[int, ...], str | None], jax.Array] | None] = ContextVar("blank", default=None)


_SEEDED: ContextVar[np.random.Generator | None] = ContextVar("seeded", default=None)


@contextmanager
def _holding(variable: ContextVar[Any], value: object) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def blank() -> AbstractContextManager[None]:
    """Context in which weights are zero instead of random, for models that are filled afterwards.

    Weights of one shape and dtype share one array, so that no memory is allocated for values that are replaced.
    """
    return _holding(_BLANK, {})


def seeded(seed: int) -> AbstractContextManager[None]:
    """Context in which the weights are determined by a seed."""
    return _holding(_SEEDED, np.random.default_rng(seed))


def _zeros(shape: tuple[int, ...], dtype: str | None) -> Array | jax.Array:
    # JAX arrays are immutable, so many variables can share one until they are assigned.
    blanks = _BLANK.get()
    if blanks is None:
        return np.zeros(shape, np.float32)
    if (shape, dtype) not in blanks:
        blanks[shape, dtype] = jax.device_put(np.zeros(shape, dtype or "float32"))
    return blanks[shape, dtype]


def _generator() -> np.random.Generator:
    # One number of the global generator, so that keras.utils.set_random_seed determines the weights.
    return _SEEDED.get() or np.random.default_rng(np.random.randint(2**31))


class Zeros(keras.initializers.Initializer):
    """Zeros, without compiling a program for every shape as Keras's own initializer does."""

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Array | jax.Array:
        return _zeros(tuple(shape), dtype)


class XavierUniform(keras.initializers.Initializer):
    """Uniform within sqrt(6 / fans); ``fans`` is fan-in + fan-out of the matrix that PyTorch holds."""

    def __init__(self, fans: int) -> None:
        self.limit = (6.0 / fans) ** 0.5

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Array | jax.Array:
        if _BLANK.get() is not None:
            return _zeros(tuple(shape), dtype)
        # Not `uniform`, which draws float64.
        return (_generator().random(shape, np.float32) * 2.0 - 1.0) * np.float32(self.limit)


class UnitRows(keras.initializers.Initializer):
    """Rows drawn from N(0, 0.1^2) and scaled to length 1."""

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Array | jax.Array:
        rows = _generator().normal(0.0, 0.1, shape)
        return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def linear(inputs: int, outputs: int, name: str) -> layers.Dense:
    """A Dense layer (..., inputs) -> (..., outputs), Xavier-uniform with zero bias."""
    kernel, bias = XavierUniform(inputs + outputs), Zeros()
    return layers.Dense(outputs, kernel_initializer=kernel, bias_initializer=bias, name=name)
