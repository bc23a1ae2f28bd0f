"""Convolution over the frames of a video that looks only into the past; videos are (B, T, H, W, C)."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from keras import layers, ops

from wdport.model import KerasTensor as Tensor
from wdport.nets.precision import wide


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
        self.built = True

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
