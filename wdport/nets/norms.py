"""Normalization over groups of channels, and of each position's channels by their root mean square or length."""

from __future__ import annotations

import math

import jax.numpy as jnp
import keras
from jax import lax
from keras import layers, ops

from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.composed import wide


class GroupNorm(layers.Layer):
    """Normalise (B, ..., C) to zero mean and unit biased variance in each of ``groups`` groups of channels, times
    ``gamma`` (C,) plus ``beta`` (C,).

    The mean is subtracted before squares are summed, so that large means cost no digits. Sums are computed axis by
    axis: over 64 x 64 pixels and 8 channels at once, the error of XLA's float32 sum on a CPU is 12 times that of
    PyTorch's; axis by axis it is 1.3 times. The channels come last: with channels first, a CPU took 2.5 times as long
    for 16 images of 32 x 32 pixels.
    """

    def __init__(self, groups: int, epsilon: float = 1e-5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.groups, self.epsilon = groups, epsilon

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        self.gamma = self.add_weight(name="gamma", shape=(x_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(x_shape[-1],), initializer="zeros")

    def call(self, x: Tensor) -> Tensor:
        summed = wide(x)
        centred = summed - self._mean(summed)
        variance = self._mean(jnp.square(centred))
        normal = centred * lax.rsqrt(variance + self.epsilon)
        return ops.cast(normal, x.dtype) * self.gamma + self.beta

    def _mean(self, x: Tensor) -> Tensor:
        """Mean (B, ..., C) -> (B, 1, ..., C) over all positions and the channels of each group."""
        batch, *places, channels = x.shape
        width = channels // self.groups
        # Partial sums per axis, for accuracy; see the class.
        for axis in range(len(places), 0, -1):
            x = jnp.sum(x, axis=axis)
        means = jnp.sum(jnp.reshape(x, (batch, self.groups, width)), axis=-1) / (math.prod(places) * width)
        return jnp.reshape(jnp.repeat(means, width, axis=-1), (batch, *[1] * len(places), channels))


class RMSNorm(layers.Layer):
    """Divide (..., C) by the root mean square over the channels, times ``scale`` (C,).

    The root is computed in at least float32; the quotient is rounded to the compute dtype before it is scaled.
    """

    def __init__(self, epsilon: float = 1e-5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        self.scale = self.add_weight(name="scale", shape=(x_shape[-1],), initializer="ones")

    def call(self, hidden_states: Tensor) -> Tensor:
        x = wide(hidden_states)
        normal = x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + self.epsilon)
        return ops.cast(normal, hidden_states.dtype) * self.scale


@keras.saving.register_keras_serializable("wdport")
class UnbiasedBatchNormalization(layers.BatchNormalization):
    """Keras's BatchNormalization, with the moving variance updated as ``torch.nn.BatchNorm1d``, 2d and 3d do: with the
    unbiased variance of the batch. Keras uses the biased one. Its ``momentum`` is one minus PyTorch's."""

    def call(self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None) -> Tensor:
        decayed = self.momentum * ops.convert_to_tensor(self.moving_variance)
        outputs = super().call(inputs, training=training, mask=mask)
        if training and self.trainable:
            channels = self.axis % len(inputs.shape)
            count = math.prod(size for axis, size in enumerate(inputs.shape) if axis != channels)
            self.moving_variance.assign(decayed + (self.moving_variance - decayed) * (count / max(count - 1, 1)))
        return outputs


class LengthNorm(RMSNorm):
    """Divide the C channels of each position of (B, ..., C) by their Euclidean norm, times the root of C and ``scale``
    (C,): the RMS norm of video autoencoders. A norm below ``epsilon`` is replaced by it, as in PyTorch's
    ``functional.normalize``, so zeros stay zeros."""

    def __init__(self, epsilon: float = 1e-12, **kwargs: object) -> None:
        super().__init__(epsilon, **kwargs)

    def call(self, x: Tensor) -> Tensor:
        summed = wide(x)
        length = jnp.sqrt(jnp.sum(jnp.square(summed), axis=-1, keepdims=True))
        normal = ops.cast(summed / jnp.maximum(length, self.epsilon), x.dtype)
        return normal * math.sqrt(x.shape[-1]) * self.scale
