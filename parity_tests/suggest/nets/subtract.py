"""Two branches of one shape that are subtracted: which is which matters."""

import torch

from .add import Branches


class Difference(Branches):
    def forward(self, x):
        x = self.norm(x)
        return self.out(torch.relu(self.alpha(x) - self.beta(x)))


build = Difference
