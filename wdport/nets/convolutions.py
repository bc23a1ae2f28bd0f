"""Convolutions with PyTorch's padding, layers that halve or double images (B, H, W, C), and convolutions over the
frames of a video (B, T, H, W, C) that look only into the past."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from keras import layers, ops

from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.composed import wide


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

    def call(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        twice = jnp.broadcast_to(x[:, :, None, :, None], (batch, height, 2, width, 2, channels))
        larger = jnp.reshape(twice, (batch, 2 * height, 2 * width, channels))
        return larger if self.conv is None else self.conv(larger)


class CausalConv3D(layers.Layer):
    """A 3-D convolution whose frame t sees no frame after t: (B, T, H, W, C_in) -> (B, T', H, W, filters).

    Height and width keep their size. In time, ``kernel_size[0]`` - 1 frames come before the first: those of ``past``,
    (B, P, H, W, C_in), the last ones of what came before, and zeros for what is lacking. Without ``causal`` only
    ``past`` does. ``stride`` is that of time.

    The window's frames are convolved one by one and summed, each by a 2-D convolution of all B * T' images: for
    float32 on a CPU, XLA's 3-D convolution of 4 frames of 64 x 64 pixels and 32 channels took nine times as long, and
    PyTorch's 16 times; in float64 XLA's took 60 times as long.
    """

    def __init__(self, filters: int, kernel_size: tuple[int, int, int], stride: int = 1, causal: bool = True,
                 **kwargs: object) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.filters, self.kernel_size, self.causal = filters, kernel_size, causal
        self.strides = (stride, 1, 1)
        # The attributes of a Keras convolution, by which settings are compared with PyTorch's.
        self.dilation_rate, self.groups, self.use_bias = (1, 1, 1), 1, True
        self.padding, self.data_format = "valid", "channels_last"

    @property
    def memory(self) -> int:
        """The number of past frames that an output sees."""
        return self.kernel_size[0] - 1

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        self.kernel = self.add_weight(name="kernel", shape=(*self.kernel_size, x_shape[-1], self.filters))
        self.bias = self.add_weight(name="bias", shape=(self.filters,), initializer="zeros")

    def call(self, x: Tensor, past: Tensor | None = None) -> Tensor:
        if past is not None:
            x = jnp.concatenate([past, x], axis=1)
        past_frames = 0 if past is None else past.shape[1]
        if self.causal and past_frames < self.memory:
            x = jnp.pad(x, ((0, 0), (self.memory - past_frames, 0), (0, 0), (0, 0), (0, 0)))
        return self.convolve(x)

    def convolve(self, x: Tensor) -> Tensor:
        """The convolution of frames (B, T, H, W, C_in), padded only in height and width."""
        batch, frames, height, width, channels = x.shape
        window = self.kernel_size[0]
        stride = self.strides[0]
        count = (frames - window) // stride + 1
        kernel = ops.cast(self.kernel, x.dtype)
        total = None
        for tap in range(window):
            # The frames that this position of the window meets, as one batch of images.
            strided = x[:, tap : tap + stride * (count - 1) + 1 : stride]
            output = _convolved(jnp.reshape(strided, (batch * count, height, width, channels)), kernel[tap])
            total = output if total is None else total + output
        output = ops.cast(total, x.dtype) + self.bias
        return jnp.reshape(output, (batch, count, height, width, self.filters))


def _convolved(images: Tensor, kernel: Tensor) -> Tensor:
    """Images (N, H, W, C_in) and a kernel of odd sizes -> (N, H, W, C), in at least float32."""
    sides = [(size // 2, size // 2) for size in kernel.shape[:2]]
    kind = wide(images[:0]).dtype
    return lax.conv_general_dilated(
        images, kernel, (1, 1), sides, dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=kind
    )
