"""Depthwise blocks: expand, depthwise, project, with a squeeze and a residual where sizes allow it."""

import torch
from torch import nn


class Squeeze(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(width, 4, 1)
        self.fc2 = nn.Conv2d(4, width, 1)

    def forward(self, x):
        scale = self.fc2(torch.relu(self.fc1(x.mean((2, 3), keepdim=True))))
        return x * nn.functional.hardsigmoid(scale)


class Inverted(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        hidden = 2 * before
        self.residual = stride == 1 and before == width
        self.expand = nn.Sequential(nn.Conv2d(before, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6())
        conv = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        self.depthwise = nn.Sequential(conv, nn.BatchNorm2d(hidden), nn.ReLU6())
        self.squeeze = Squeeze(hidden)
        self.project = nn.Sequential(nn.Conv2d(hidden, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        out = self.project(self.squeeze(self.depthwise(self.expand(x))))
        return x + out if self.residual else out


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        sizes = [(8, 8, 1), (8, 8, 2), (8, 8, 1), (8, 12, 2)]
        self.blocks = nn.ModuleList([Inverted(*each) for each in sizes])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


build = MobileNet
