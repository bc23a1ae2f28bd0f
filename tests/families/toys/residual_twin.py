"""The residual network in Keras, a subclassed model in either order of axes.

PyTorch pads a convolution with a stride on both sides, where "same" of Keras pads behind alone; so the image is padded
before, and before the pooling with what is less than any value. ``training`` is passed on by hand: the training step of
Keras calls a model so that its layers do not see it.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

ORDER = "channels_last"


def conv(width: int, size: int, stride: int = 1) -> Any:
    return layers.Conv2D(width, size, stride, use_bias=False, data_format=ORDER)


def norm() -> Any:
    return layers.BatchNormalization(axis=-1 if ORDER == "channels_last" else 1, epsilon=1e-5)


def padded(x: Any, value: float = 0.0) -> Any:
    widths = [(0, 0), (1, 1), (1, 1), (0, 0)] if ORDER == "channels_last" else [(0, 0), (0, 0), (1, 1), (1, 1)]
    return ops.pad(x, widths, constant_values=value)


class Block(layers.Layer):
    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(width, 3, stride), conv(width, 3)
        self.bn1, self.bn2 = norm(), norm()
        self.downsample = [conv(width, 1, stride), norm()] if stride > 1 else []

    def call(self, x: Any, training: bool | None = None) -> Any:
        y = ops.relu(self.bn1(self.conv1(padded(x)), training=training))
        y = self.bn2(self.conv2(padded(y)), training=training)
        if self.downsample:
            x = self.downsample[1](self.downsample[0](x), training=training)
        return ops.relu(y + x)


class Residual(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(8, 3), norm()
        self.maxpool = layers.MaxPooling2D(3, 2, data_format=ORDER)
        self.layer1, self.layer2 = [Block(8, 1)], [Block(12, 2)]
        self.fc = layers.Dense(5)

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = self.maxpool(padded(ops.relu(self.bn1(self.conv1(padded(x)), training=training)), -float("inf")))
        for block in (*self.layer1, *self.layer2):
            x = block(x, training=training)
        return self.fc(ops.mean(x, axis=(1, 2) if ORDER == "channels_last" else (2, 3)))


def build() -> Any:
    return Residual()
