"""Image to image: reflection padding, instance norms, a style that scales them, pixel shuffle, bilinear upsampling."""

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv1, self.conv2 = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)
        self.norm1, self.norm2 = nn.InstanceNorm2d(8, affine=True), nn.InstanceNorm2d(8)
        self.style = nn.Linear(5, 16)

    def forward(self, x, code):
        out = torch.relu(self.norm1(self.conv1(self.pad(x))))
        gamma, beta = self.style(code)[:, :, None, None].chunk(2, 1)
        return x + self.norm2(self.conv2(self.pad(out))) * (1 + gamma) + beta


class Style(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, padding=2, padding_mode="reflect")
        self.residuals = nn.ModuleList([Residual() for _ in range(2)])
        self.shuffle = nn.Conv2d(8, 16, 3, padding=1)
        self.refine = nn.Conv2d(4, 8, 3, padding=1)
        self.image = nn.Conv2d(8, 3, 1)

    def forward(self, image, code):
        x = F.leaky_relu(self.stem(image), 0.1)
        for residual in self.residuals:
            x = residual(x, code)
        x = F.pixel_shuffle(self.shuffle(x), 2)
        x = F.interpolate(F.elu(self.refine(x)), scale_factor=2, mode="bilinear", align_corners=False)
        return torch.tanh(self.image(x))


build = Style
