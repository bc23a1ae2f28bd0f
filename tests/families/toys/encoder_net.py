"""The encoder of a variational autoencoder for images: two outputs by name, one of them bounded."""

from __future__ import annotations

from torch import Tensor, nn


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 4, 2, padding=1), nn.Conv2d(8, 6, 4, 2, padding=1)
        self.act, self.norm = nn.LeakyReLU(0.2), nn.GroupNorm(2, 6)
        self.hidden = nn.Linear(6 * 3 * 2, 10)
        self.mean, self.logvar = nn.Linear(10, 4), nn.Linear(10, 4)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        x = self.act(self.norm(self.conv2(self.act(self.conv1(image)))))
        x = self.hidden(x.flatten(1)).tanh()
        return {"mean": self.mean(x), "logvar": self.logvar(x).clamp(-1.0, 1.0)}


def build() -> nn.Module:
    return Encoder()
