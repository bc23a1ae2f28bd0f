"""Networks and twins with a difficulty each: tiny variances, a pooling that rounds up, padding, a missing layer."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

import keras
import torch
from keras import layers, ops
from torch import Tensor, nn

EPSILON = 0.0010000000474974513
"""0.001 as float32 has it, which is what some converted networks state."""


class Tricky(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.plain = nn.Linear(5, 8), nn.LayerNorm(8, elementwise_affine=False)
        self.hidden, self.norm, self.head = nn.Linear(8, 6), nn.BatchNorm1d(6, eps=EPSILON), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.hidden(self.plain(self.inputs(x))).relu()))


def tricky_twin(plain: float = 1e-5, norm: float = EPSILON, activation: str | None = "relu") -> Any:
    parts = [
        layers.Dense(8, name="inputs"),
        layers.LayerNormalization(epsilon=plain, center=False, scale=False, name="plain"),
        layers.Dense(6, activation=activation, name="hidden"),
        layers.BatchNormalization(epsilon=norm, name="norm"),
        layers.Dense(3, name="head"),
    ]
    return keras.Sequential([keras.Input((5,)), *parts])


tricky = Tricky
wrong_plain = partial(tricky_twin, plain=1e-3)
wrong_norm = partial(tricky_twin, norm=1e-3)
no_activation = partial(tricky_twin, activation=None)


def pooled() -> nn.Module:
    conv, pool = nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(OrderedDict(conv=conv, pool=pool, flat=nn.Flatten(), head=nn.Linear(256, 3)))


def _pooled_twin(pool: str, apart: bool = False, before: int = 0, units: int = 3) -> Any:
    start = keras.Input((16, 16, 1))
    x = layers.Activation("linear")(layers.ZeroPadding2D(1)(start)) if apart else start
    x = layers.Conv2D(4, 3, padding="valid" if apart else "same", name="conv")(x)
    x = layers.ZeroPadding2D(((0, before), (0, before)))(x) if before else x
    x = layers.MaxPooling2D(3, 2, pool, name="pool")(keras.ops.relu(x))
    return keras.Model(start, layers.Dense(units, name="head")(layers.Flatten()(x)))


valid = partial(_pooled_twin, "valid")
padded_apart = partial(_pooled_twin, "valid", apart=True)
"""The convolution's padding is right and stands before it; the pooling is not."""
strict = partial(_pooled_twin, "valid", before=1)
"""Right in all sizes, though told otherwise."""
padded_pool = partial(_pooled_twin, "valid", before=1, units=4)
"""The pooling is right; the head is of another size."""


class Subclassed(keras.Model):
    """The convolution is right and its input not known beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.pad, self.conv = layers.ZeroPadding2D(1), layers.Conv2D(4, 3)
        self.pool, self.flat, self.head = layers.MaxPooling2D(3, 2, "same"), layers.Flatten(), layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(self.flat(self.pool(self.conv(self.pad(x)))))


class Padded(nn.Module):
    """Twelve steps of three channels in, one number out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3, padding=1, padding_mode="reflect")
        self.attn = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).transpose(1, 2)
        found: torch.Tensor = self.head(self.attn(x, x, x)[0])
        return found


class Attention(layers.Layer):
    """Takes once what PyTorch's takes three times."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        self.query, self.key, self.value, self.out = (layers.Dense(6) for _ in range(4))

    def call(self, x: Any) -> Any:
        q, k, v = (ops.reshape(layer(x), (-1, 12, 2, 3)) for layer in (self.query, self.key, self.value))
        weights = ops.softmax(ops.einsum("bqhd,bkhd->bhqk", q, k) * 3**-0.5, -1)
        return self.out(ops.reshape(ops.einsum("bhqk,bkhd->bqhd", weights, v), (-1, 12, 6)))


def _padded_twin(mode: str) -> Any:
    given = keras.Input((12, 3))
    x = ops.pad(given, [[0, 0], [1, 1], [0, 0]], mode=mode)
    x = Attention(name="attn")(layers.Conv1D(6, 3, name="conv")(x))
    return keras.Model(given, layers.Dense(1, name="head")(x))


subclassed, padded = Subclassed, Padded
padded_twin, padded_zeros = partial(_padded_twin, "reflect"), partial(_padded_twin, "constant")


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.main = nn.Linear(before, after)
        self.skip = nn.Linear(before, after) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.main(x)) + self.skip(x)


def skipping() -> nn.Module:
    return nn.Sequential(Block(5, 5), Block(5, 7))


def skipping_twin() -> Any:
    start = keras.Input((5,))
    x = keras.ops.tanh(layers.Dense(5, name="main0")(start)) + start
    return keras.Model(start, keras.ops.tanh(layers.Dense(7, name="main1")(x)) + layers.Dense(7, name="skip1")(x))
