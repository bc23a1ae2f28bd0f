"""Convolutions with PyTorch's padding, and layers that halve or double images; images are (B, H, W, C)."""

from __future__ import annotations

import jax.numpy as jnp
from keras import layers

from wdport.model import KerasTensor as Tensor


def conv(channels: int, window: int = 3, *, name: str) -> layers.Conv2D:
    """A convolution with a stride of one that keeps the size of the image."""
    return layers.Conv2D(channels, window, padding="same", name=name)


class Halve(layers.Layer):
    """Halve height and width of images (B, H, W, C), by a 3 x 3 convolution ``conv`` with a stride of two, or without
    ``channels`` by the mean of 2 x 2 pixels.

    ``padding`` 1 pads zeros on all sides, 0 only below and on the right. Keras's "same" is the first for odd sizes and
    the second for even ones.
    """

    def __init__(self, channels: int | None = None, padding: int = 1, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.before, self.pads = padding, channels is not None
        if channels is None:
            self.conv = layers.AveragePooling2D(2, name="conv")
        else:
            self.conv = layers.Conv2D(channels, 3, strides=2, padding="valid", name="conv")

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        self.conv.build((None, None, None, x_shape[-1]))
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        # Always one row and column at the end: PyTorch's padding of 1 is on both sides, and that of 0 is made up by
        # diffusers with (0, 1, 0, 1).
        side = (self.before, 1)
        return self.conv(jnp.pad(x, ((0, 0), side, side, (0, 0))) if self.pads else x)


class Double(layers.Layer):
    """Double height and width: (B, H, W, C) -> (B, 2H, 2W, C) by nearest neighbour, then a 3 x 3 convolution ``conv``
    if ``channels``."""

    def __init__(self, channels: int | None = None, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.conv = None if channels is None else conv(channels, name="conv")

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        if self.conv is not None:
            self.conv.build((None, None, None, x_shape[-1]))
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        twice = jnp.broadcast_to(x[:, :, None, :, None], (batch, height, 2, width, 2, channels))
        larger = jnp.reshape(twice, (batch, 2 * height, 2 * width, channels))
        return larger if self.conv is None else self.conv(larger)
