"""A network with a pooling that rounds up, and Keras models of which some leave another size."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import keras
from keras import layers
from torch import nn


def net() -> nn.Module:
    conv, pool = nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(OrderedDict(conv=conv, pool=pool, flat=nn.Flatten(), head=nn.Linear(256, 3)))


def _twin(pool: str, apart: bool = False, before: int = 0, units: int = 3) -> Any:
    start = keras.Input((16, 16, 1))
    x = layers.Activation("linear")(layers.ZeroPadding2D(1)(start)) if apart else start
    x = layers.Conv2D(4, 3, padding="valid" if apart else "same", name="conv")(x)
    x = layers.ZeroPadding2D(((0, before), (0, before)))(x) if before else x
    x = layers.MaxPooling2D(3, 2, pool, name="pool")(keras.ops.relu(x))
    return keras.Model(start, layers.Dense(units, name="head")(layers.Flatten()(x)))


def valid() -> Any:
    return _twin("valid")


def padded_apart() -> Any:
    """The convolution's padding is right and stands before it; the pooling is not."""
    return _twin("valid", apart=True)


def strict() -> Any:
    """Right in all sizes, though told otherwise."""
    return _twin("valid", before=1)


def padded_pool() -> Any:
    """The pooling is right; the head is of another size."""
    return _twin("valid", before=1, units=4)


class _Head(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.pad, self.conv = layers.ZeroPadding2D(1), layers.Conv2D(4, 3)
        self.pool, self.flat, self.head = layers.MaxPooling2D(3, 2, "same"), layers.Flatten(), layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(self.flat(self.pool(self.conv(self.pad(x)))))


def subclassed() -> Any:
    """The convolution is right and its input not known beforehand."""
    return _Head()
