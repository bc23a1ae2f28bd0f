"""Embeddings of a time, one number per sample."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from keras import layers, ops

from wdport.model import Array
from wdport.model import KerasTensor as Tensor
from wdport.nets.composed import Composed

LONGEST = 10_000
"""The longest period of :func:`frequencies`, in radians per step: "Attention is all you need", section 3.5."""


def frequencies(half: int, shift: float) -> Array:
    """(half,) falling from 1: the exponents are those of ``LONGEST`` by k / (half - shift). Float64."""
    values: Array = np.exp(-math.log(LONGEST) * np.arange(half) / (half - shift))
    return values


class Sinusoid(layers.Layer):
    """Times (B,) -> (B, D): sines, then cosines of times multiplied by fixed frequencies; cosines first with ``flip``.
    A zero is appended where D is odd.

    The angles are computed in at least float32 under any policy: in bfloat16 neighbouring steps are equal.
    """

    def __init__(self, width: int, flip: bool = False, shift: float = 0.0, **kwargs: object) -> None:
        # Keras would otherwise round the times to 16 bits before the call.
        super().__init__(autocast=False, **kwargs)
        self.width, self.flip = width, flip
        self.frequencies = frequencies(width // 2, shift).astype(_angles(self.compute_dtype))

    def call(self, times: Tensor) -> Tensor:
        angles = ops.cast(times, self.frequencies.dtype.name)[:, None] * self.frequencies
        # jnp and not keras.ops, whose sin and cos compute in float32 inside a float64 model.
        waves = [jnp.sin(angles), jnp.cos(angles)]
        embedding = jnp.concatenate(waves[::-1] if self.flip else waves, axis=-1)
        return ops.cast(jnp.pad(embedding, ((0, 0), (0, self.width % 2))), self.compute_dtype)


class Fourier(layers.Layer):
    """Times (B,) above zero -> (B, 2D): sines, then cosines of 2 pi log(t) times ``weight`` (D,), which is fixed."""

    def __init__(self, width: int, **kwargs: object) -> None:
        super().__init__(autocast=False, **kwargs)
        self.width = width

    def build(self, _: object = None) -> None:
        self.weight = self.add_weight(name="weight", shape=(self.width,), initializer="zeros", trainable=False,
                                      autocast=False)  # fmt: skip

    def call(self, times: Tensor) -> Tensor:
        weight = ops.convert_to_tensor(self.weight)
        angles = jnp.log(ops.cast(times, weight.dtype))[:, None] * weight * 2 * np.pi
        return ops.cast(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1), self.compute_dtype)


class TimeMlp(Composed):
    """(B, D) -> Dense, SiLU, Dense -> (B, T)."""

    def __init__(self, inputs: int, width: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.add(layers.Dense(width, name="linear_1"), (None, inputs))
        self.act = layers.Activation("silu", name="act")
        self.add(layers.Dense(width, name="linear_2"), (None, width))

    def call(self, x: Tensor) -> Tensor:
        return self.linear_2(self.act(self.linear_1(x)))


def _angles(dtype: str) -> type[np.floating]:
    return np.float64 if dtype == "float64" else np.float32
