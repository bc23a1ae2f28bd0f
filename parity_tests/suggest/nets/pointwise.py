"""Linear layers that are convolutions of window one on the other side, and the other way round."""

from torch import nn
from torch.nn import functional as F


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(12), nn.LayerNorm(12)
        self.token1, self.token2 = nn.Conv1d(12, 12, 1), nn.Conv1d(12, 12, 1)
        self.channel1, self.channel2 = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x):
        x = x + self.token2(F.gelu(self.token1(self.norm1(x))))
        return x + self.channel2(F.gelu(self.channel1(self.norm2(x))))


class Pointwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 12)
        self.mixers = nn.ModuleList([Mixer() for _ in range(2)])
        self.out = nn.Conv1d(12, 3, 1)

    def forward(self, x):
        x = self.stem(x)
        for mixer in self.mixers:
            x = mixer(x)
        return self.out(x.transpose(1, 2)).amax(-1)


build = Pointwise
