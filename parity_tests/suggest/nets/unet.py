"""A U-Net: two levels down and up, skip connections, one transposed convolution and one nearest upsampling."""

import torch
from torch import nn
from torch.nn import functional as F


class Double(nn.Module):
    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.conv_a = nn.Conv2d(before, width, 3, padding=1)
        self.norm_a = nn.GroupNorm(2, width)
        self.conv_b = nn.Conv2d(width, width, 3, padding=1)
        self.norm_b = nn.GroupNorm(2, width)

    def forward(self, x):
        x = F.silu(self.norm_a(self.conv_a(x)))
        return F.silu(self.norm_b(self.conv_b(x)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inc = Double(1, 8)
        self.down1 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.enc1 = Double(8, 8)
        self.down2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.mid = Double(8, 8)
        self.up2 = nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1)
        self.dec2 = Double(16, 8)
        self.up1 = nn.Conv2d(8, 8, 3, padding=1)
        self.dec1 = Double(16, 8)
        self.outc = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.enc1(self.down1(a))
        x = self.mid(self.down2(b))
        x = self.dec2(torch.cat([b, self.up2(x)], 1))
        x = self.up1(F.interpolate(x, scale_factor=2, mode="nearest"))
        return self.outc(self.dec1(torch.cat([a, x], 1)))


build = UNet
