"""Normalisation over groups of channels."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from keras import layers, ops

from wdport.model import KerasTensor as Tensor
from wdport.nets.precision import wide


class GroupNorm(layers.Layer):
    """(B, ..., C) to zero mean and unit biased variance in each of ``groups`` groups of channels, times ``gamma`` (C,)
    plus ``beta`` (C,).

    The mean is taken away before squares are summed, so that large means cost no digits.
    """

    def __init__(self, groups: int, epsilon: float = 1e-5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.groups, self.epsilon = groups, epsilon

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        self.gamma = self.add_weight(name="gamma", shape=(x_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(x_shape[-1],), initializer="zeros")
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        batch, *_, channels = x.shape
        grouped = jnp.reshape(wide(x), (batch, -1, self.groups, channels // self.groups))
        centred = grouped - jnp.mean(grouped, axis=(1, 3), keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=(1, 3), keepdims=True)
        normal = jnp.reshape(centred * lax.rsqrt(variance + self.epsilon), x.shape)
        return ops.cast(normal, x.dtype) * self.gamma + self.beta
