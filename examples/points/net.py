"""A network for points in a plane, in PyTorch, with the layers and names of ``torchcfm.models.MLP``."""

from __future__ import annotations

import torch
from torch import nn


class MLP(nn.Module):
    """Points (B, 2) and times (B,) to velocities, or noise, (B, 2)."""

    def __init__(self, dim: int = 2, width: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, width),
            nn.SELU(),
            nn.Linear(width, width),
            nn.SELU(),
            nn.Linear(width, width),
            nn.SELU(),
            nn.Linear(width, dim),
        )

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([x, t[:, None]], dim=1))


def build() -> MLP:
    return MLP()
