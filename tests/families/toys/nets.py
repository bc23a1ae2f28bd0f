"""Small PyTorch models of every shape that a comparison has to cope with."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Image(nn.Module):
    """Channels first; batch norm; a flattened image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.MaxPool2d(2)
        self.conv2, self.act, self.head = nn.Conv2d(8, 12, 3), nn.PReLU(12), nn.Linear(12 * 4 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.bn(self.conv1(x))))
        return self.head(self.act(self.conv2(x)).flatten(1))


class Unbiased(nn.Module):
    """A convolution before a norm has no bias, and a linear layer has none either."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Linear(4, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


class Words(nn.Module):
    """Whole numbers in; two outputs, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        self.mean, self.logvar = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        x = self.norm(self.embed(ids)).mean(1)
        return {"mean": self.mean(x), "logvar": self.logvar(x)}


class Shared(nn.Module):
    """One layer called three times, under two names, and a parameter that no layer holds; two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 6)
        self.again = self.mix
        self.offset = nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.again(torch.tanh(self.mix(x)) + self.mix(y)) + self.offset


class Gru(nn.Module):
    """A recurrent classifier of two layers, and weight norm."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(5, 7, num_layers=2, batch_first=True)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(7, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0][:, -1])


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 7, batch_first=True), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attn = nn.MultiheadAttention(16, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(1, 6, 16))
        self.inputs, self.head = nn.Linear(5, 16), nn.Linear(16, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Wrapped(nn.Module):
    """A network in another class, as in a LightningModule."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Lstm()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """With every parameter and buffer random; variances positive."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(0.3 * torch.randn_like(tensor))
                if name.endswith(("running_var", "original0")) or (tensor.ndim == 1 and "norm" in name):
                    tensor.abs_().add_(0.5)
    return module.eval()


image, unbiased, words, shared, gru = Image, Unbiased, Words, Shared, Gru
lstm, transformer, wrapped_lstm = Lstm, Transformer, Wrapped
