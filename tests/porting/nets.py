"""PyTorch models whose outlines the tests read: what a porter meets, in a few lines each."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Images(nn.Module):
    """Strides, residuals, excitation, a skip and a flattened end, as images go."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.bn, self.excite = nn.BatchNorm2d(16), nn.Linear(16, 16)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 4, 1)
        self.head = nn.Linear(4 * 8 * 8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = F.leaky_relu(self.first(x))
        d = F.relu(self.bn(self.down(a)))
        d = d * torch.sigmoid(self.excite(d.mean((2, 3))))[:, :, None, None]
        joined = self.out(torch.cat([a, self.up(d)], 1))
        a = torch.stack([a, a + 1.0], -1).amax(-1) + torch.stack([a, -a], 1).mean(1)
        b = torch.stack([a.permute(0, 2, 3, 1)] * 2, 4).max(4)[0].permute(0, 3, 1, 2)
        joined = joined + b[:, :4, :, : b.shape[3]]
        return joined.softmax(1), self.head(F.max_pool2d(joined, 2).permute(0, 3, 2, 1).flatten(1)[:, : 4 * 8 * 8])


class Attention(nn.Module):
    """Attention written out, with a parameter of its own and a mask made on the way."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width // heads))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * self.scale) @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
        scores = scores + torch.triu(torch.full((t, t), float("-inf")), 1)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.drop = Attention(width, heads), nn.Dropout(0.1)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.norm1(x)))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class Patches(nn.Module):
    """A vision transformer of ``depth`` blocks."""

    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        self.patch, self.cls = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.zeros(1, 1, 8))
        self.pos, self.head = nn.Parameter(torch.zeros(1, 5, 8)), nn.Linear(8, 3)
        self.blocks = nn.ModuleList(Block(8, 2) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])  # type: ignore[no-any-return]


class Sequences(nn.Module):
    """Ids, an LSTM whose state is read, a layer called twice, a convolution over time, and one never called."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv = nn.Embedding(50, 6, padding_idx=0), nn.Conv1d(8, 4, 3, padding=1)
        self.rnn = nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True)
        self.head, self.spare = nn.Linear(4, 3), nn.Linear(2, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x, (h, _) = self.rnn(self.embed(ids))
        peak, _ = self.conv(x.transpose(1, 2)).relu().max(-1)
        return self.head(peak) + 2.0 * self.head(h[-1])  # type: ignore[no-any-return]


class Branching(nn.Module):
    """Another way through the code where the batch is another, or the values are."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x) if x.shape[0] > 3 else self.b(x)
        return x + 1.0 if bool((x.sum() > 0).item()) else x - 1.0


class Odd(nn.Module):
    """In-place changes, views, weights that a function reads, and what Keras calls otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 6)
        self.kernel = nn.Parameter(torch.randn(5, 3))

    def forward(self, x: Tensor, keep: Tensor) -> Any:
        y = F.linear(x, self.inner.weight, self.inner.bias)
        y[:, 0] = 0.0
        left, right = y.split(3, -1)
        left = left.clone().mul_(2.0).masked_fill(~keep[:, :3], -1.0)
        made = F.linear(left, self.kernel)
        return {"a": F.normalize(made, dim=-1), "b": 1 - right.std(-1), "c": torch.einsum("bi,bj->bij", left, right)}


class Doubling(nn.Module):
    """A constant of 2 ** 80 sums, and as many functions that nothing needs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        ones = torch.ones(3)
        for _ in range(80):
            ones, x_unused = ones + ones, x + ones
        return self.head(x * ones.log()) if x_unused is not None else x  # type: ignore[no-any-return]


images, patches, sequences, branching, odd, doubling = Images, Patches, Sequences, Branching, Odd, Doubling


def encoder() -> nn.Module:
    """Whose fast path in evaluation mode runs no layer."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)


def diffusing() -> Any:
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(4, 8), norm_num_groups=2,
        attention_head_dim=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip


one_layer = partial(nn.GRU, 3, 4)


def of_a_file(path: str) -> nn.Module:
    """A function that reads its checkpoint itself."""
    made = nn.Linear(3, 2)
    made.load_state_dict(torch.load(path, weights_only=True))
    return made
