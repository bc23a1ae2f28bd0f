"""A small CREPE: (k, 1) convolutions, ReLU before batch normalisation, a permute before the flatten."""

import torch
from torch import nn
from torch.nn import functional as F

EPS = 0.0010000000474974513


class Crepe(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = [1, 16, 4, 4, 4, 8, 16]
        for n in range(1, 7):
            first = n == 1
            conv = nn.Conv2d(widths[n - 1], widths[n], (64 if first else 16, 1), (4 if first else 1, 1))
            setattr(self, f"conv{n}", conv)
            setattr(self, f"conv{n}_BN", nn.BatchNorm2d(widths[n], eps=EPS, momentum=0.0))
        self.classifier = nn.Linear(32, 24)

    def layer(self, x, conv, norm, padding):
        x = norm(F.relu(conv(F.pad(x, padding))))
        return F.max_pool2d(x, (2, 1), (2, 1))

    def forward(self, x):
        x = x[:, None, :, None]
        x = self.layer(x, self.conv1, self.conv1_BN, (0, 0, 30, 30))
        x = self.layer(x, self.conv2, self.conv2_BN, (0, 0, 7, 8))
        x = self.layer(x, self.conv3, self.conv3_BN, (0, 0, 7, 8))
        x = self.layer(x, self.conv4, self.conv4_BN, (0, 0, 7, 8))
        x = self.layer(x, self.conv5, self.conv5_BN, (0, 0, 7, 8))
        x = self.layer(x, self.conv6, self.conv6_BN, (0, 0, 7, 8))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 32)))


build = Crepe
