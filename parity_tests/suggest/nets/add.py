"""Two branches of one shape that are added: either order is the same function."""

import torch
from torch import nn


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 10), nn.Linear(10, 6)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.beta = Branch(), Branch()
        self.norm = nn.LayerNorm(6)
        self.out = nn.Linear(6, 6)

    def forward(self, x):
        x = self.norm(x)
        return self.out(torch.relu(self.alpha(x) + self.beta(x)))


build = Branches
