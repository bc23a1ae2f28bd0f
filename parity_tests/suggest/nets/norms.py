"""Norms over groups, over roots of means, over features after a flatten; grouped convolutions; a head unused."""

import torch
from torch import nn
from torch.nn import functional as F


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, groups=2)
        self.group1 = nn.GroupNorm(4, 8, eps=1e-4)
        self.conv2 = nn.Conv2d(8, 8, 3, groups=4, padding=2, dilation=2)
        self.group2 = nn.GroupNorm(2, 8, eps=1e-4)
        self.pool = nn.AvgPool2d(2)
        self.flat_norm = nn.BatchNorm1d(72)
        self.fc1 = nn.Linear(72, 10)
        self.rms1 = nn.RMSNorm(10, eps=1e-5)
        self.fc2 = nn.Linear(10, 10)
        self.rms2 = nn.RMSNorm(10, eps=1e-5)
        self.fc3 = nn.Linear(10, 4)
        self.plain = nn.LayerNorm(4, elementwise_affine=False)
        self.auxiliary = nn.Linear(72, 4)

    def forward(self, x):
        x = torch.relu(self.group1(self.conv1(x)))
        x = self.pool(torch.relu(self.group2(self.conv2(x))))
        x = self.flat_norm(x.flatten(1))
        x = F.mish(self.rms1(self.fc1(x)))
        x = F.selu(self.rms2(self.fc2(x)))
        return self.plain(self.fc3(x))


build = Norms
