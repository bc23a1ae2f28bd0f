"""A small vocoder: weight norm in both forms, dilated and transposed convolutions, leaky ReLU, gates."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations


def old(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(module)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList([old(nn.Conv1d(8, 8, 3, padding=d, dilation=d)) for d in (1, 3)])
        self.convs2 = nn.ModuleList([old(nn.Conv1d(8, 8, 3, padding=1)) for _ in range(2)])

    def forward(self, x):
        for first, second in zip(self.convs1, self.convs2, strict=True):
            x = x + second(F.leaky_relu(first(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Vocoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_pre = parametrizations.weight_norm(nn.Conv1d(10, 8, 7, padding=3))
        self.up = old(nn.ConvTranspose1d(8, 8, 4, stride=2, padding=1))
        self.residual = Residual()
        self.gate = parametrizations.weight_norm(nn.Linear(8, 8))
        self.value = parametrizations.weight_norm(nn.Linear(8, 8))
        self.conv_post = old(nn.Conv1d(8, 1, 7, padding=3))

    def forward(self, mel):
        x = self.residual(self.up(F.leaky_relu(self.conv_pre(mel), 0.1))).transpose(1, 2)
        x = torch.tanh(self.value(x)) * torch.sigmoid(self.gate(x))
        return torch.tanh(self.conv_post(F.leaky_relu(x).transpose(1, 2)))


build = Vocoder
