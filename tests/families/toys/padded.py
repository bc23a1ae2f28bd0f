"""A network that pads by reflection and attends to itself, and its ports: right, and one that pads with zeros."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Net(nn.Module):
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


def build() -> Net:
    return Net()


def twin() -> Any:
    return _twin("reflect")


def zeros() -> Any:
    return _twin("constant")


def _twin(mode: str) -> Any:
    import keras
    from keras import layers, ops

    class Attention(layers.Layer):  # type: ignore[misc]
        """Takes once what PyTorch's takes three times."""

        def __init__(self, **words: Any) -> None:
            super().__init__(**words)
            self.query, self.key, self.value, self.out = (layers.Dense(6) for _ in range(4))

        def call(self, x: Any) -> Any:
            q, k, v = (ops.reshape(layer(x), (-1, 12, 2, 3)) for layer in (self.query, self.key, self.value))
            weights = ops.softmax(ops.einsum("bqhd,bkhd->bhqk", q, k) * 3**-0.5, -1)
            return self.out(ops.reshape(ops.einsum("bhqk,bkhd->bqhd", weights, v), (-1, 12, 6)))

    given = keras.Input((12, 3))
    x = ops.pad(given, [[0, 0], [1, 1], [0, 0]], mode=mode)
    x = Attention(name="attn")(layers.Conv1D(6, 3, name="conv")(x))
    return keras.Model(given, layers.Dense(1, name="head")(x))
