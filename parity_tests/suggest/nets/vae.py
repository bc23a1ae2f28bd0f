"""A variational encoder and decoder: a dictionary of outputs, two heads of one shape, (c h w) out of a linear layer."""

import torch
from torch import nn
from torch.nn import functional as F


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 4, 2, 1), nn.Conv2d(4, 4, 4, 2, 1)
        self.mean, self.logvar = nn.Linear(64, 6), nn.Linear(64, 6)
        self.expand = nn.Linear(6, 64)
        self.up1, self.up2 = nn.ConvTranspose2d(4, 4, 4, 2, 1), nn.ConvTranspose2d(4, 1, 4, 2, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        x = F.leaky_relu(self.conv2(F.leaky_relu(self.conv1(x), 0.2)), 0.2).flatten(1)
        mean, logvar = self.mean(x), self.logvar(x)
        x = torch.relu(self.expand(mean)).view(-1, 4, 4, 4)
        x = torch.relu(self.norm(self.up1(x)))
        return {"mean": mean, "logvar": logvar, "image": torch.sigmoid(self.up2(x))}


build = Vae
