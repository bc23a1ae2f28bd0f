"""A toy with the places that faults hide in: norms without weights and with tiny variances, a fused activation."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
from keras import layers
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


def build() -> Any:
    return Tricky()


def twin(plain: float = 1e-5, norm: float = EPSILON, activation: str | None = "relu") -> Any:
    parts = [
        layers.Dense(8, name="inputs"),
        layers.LayerNormalization(epsilon=plain, center=False, scale=False, name="plain"),
        layers.Dense(6, activation=activation, name="hidden"),
        layers.BatchNormalization(epsilon=norm, name="norm"),
        layers.Dense(3, name="head"),
    ]
    return keras.Sequential([keras.Input((5,)), *parts])


wrong_plain = partial(twin, plain=1e-3)
wrong_norm = partial(twin, norm=1e-3)
no_activation = partial(twin, activation=None)
