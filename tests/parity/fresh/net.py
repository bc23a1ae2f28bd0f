"""The reference of the cheating ports: two linear layers, once for every output that a port claims."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Returns the same values under each name."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.hidden, self.head, self.names = nn.Linear(6, 8), nn.Linear(8, 3), names

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.head(torch.tanh(self.hidden(x)))
        return {name: y.clone() for name in self.names}


def build(names: list[str], folder: str) -> Net:
    return Net(names)
