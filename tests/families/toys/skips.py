"""Two blocks, of which only the second needs a layer on its shortcut."""

from __future__ import annotations

from typing import Any

import keras
import torch
from keras import layers
from torch import nn


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.main = nn.Linear(before, after)
        self.skip = nn.Linear(before, after) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.main(x)) + self.skip(x)


def net() -> nn.Module:
    return nn.Sequential(Block(5, 5), Block(5, 7))


def twin() -> Any:
    start = keras.Input((5,))
    x = keras.ops.tanh(layers.Dense(5, name="main0")(start)) + start
    return keras.Model(start, keras.ops.tanh(layers.Dense(7, name="main1")(x)) + layers.Dense(7, name="skip1")(x))
