"""Small PyTorch models in which ports go wrong, each with the inputs that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm


@dataclass(frozen=True)
class Situation:
    """A model, its inputs, and the reason of its hole if it has one."""

    build: Callable[[], nn.Module]
    inputs: tuple[str, ...]
    hole: str = ""


class Net(nn.Module):
    """A function of a model's parts and its inputs, as a model."""

    def __init__(self, compute: Callable[..., Any], parts: Mapping[str, Any]) -> None:
        super().__init__()
        self.compute = compute
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self.compute(self, *inputs)


def net(compute: Callable[..., Any], *inputs: str, hole: str = "", **parts: Callable[[], Any]) -> Situation:
    return Situation(lambda: Net(compute, {name: make() for name, make in parts.items()}), inputs or ("x: b 8",), hole)


class Held(nn.Module):
    """A tensor that is no buffer."""

    def __init__(self, tensor: Tensor, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.tensor = tensor.to(dtype)

    def __getitem__(self, index: int) -> Tensor:
        return self.tensor[index]


IMAGE = "x: b 4 h=6..9 w=7..8"
SQUARE = "x: b 8 8 8"
SEQUENCE = "x: b t=7..12 8"


def conv(before: int = 4, after: int = 4, size: int = 3, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(before, after, size, **{"padding": size // 2, **settings})


def linear(before: int = 8, after: int = 8) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(before, after)


def parameter(*shape: int) -> Callable[[], nn.Parameter]:
    return lambda: nn.Parameter(torch.zeros(shape))


# --- Structure -------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, scale: float = 1.0, gate: bool = False) -> Tensor:
        h = torch.relu(self.up(x)) * scale
        return x + (self.down(h).sigmoid() if gate else self.down(h))


def other_block() -> type[nn.Module]:
    """Another class of the same name."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.up = nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.up(x))

    return Block


class Widths(nn.Module):
    """One block with three widths, and another class of its name."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(8, 4), Block(8, 6), Block(8, 16)])
        self.last = other_block()(8)

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Keys(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({key: nn.Linear(8, 8) for key in ("class", "0", "a'b", "layers")})

    def forward(self, x: Tensor) -> Tensor:
        return sum((part(x) for part in self.parts.values()), x)


class Rotated(nn.Module):
    """Reads a buffer that its parent hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(8, 8)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = self.proj(x)
        return x * table[: x.shape[1]]


class Handed(nn.Module):
    """A buffer handed to every child, and a list whose 1 means that a layer uses it."""

    def __init__(self, use: tuple[int, ...] = (1, 1, 1)) -> None:
        super().__init__()
        self.use, self.layers = use, nn.ModuleList(Rotated() for _ in use)
        angles = torch.arange(16)[:, None] * 100.0 ** -(torch.arange(8) / 8)
        self.register_buffer("table", angles.cos(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        for used, layer in zip(self.use, self.layers, strict=True):
            x = layer(x, self.table if used else torch.ones_like(self.table))
        return x


class Noisy(nn.Module):
    """Dropout, batch norm, and noise in training alone."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.bn, self.lin = nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.drop(self.lin(x)))
        if self.training:
            x = x + torch.randn_like(x)
        return F.dropout(x, 0.5, self.training)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.embed(ids))


class Norms(nn.Module):
    """Three norms that share one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        for norm in self.norms:
            norm.weight = self.norms[0].weight

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = x + norm(x)
        return x


class Optional(nn.Module):
    """Inputs by keyword, and one that is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, bias: Tensor | None = None) -> Tensor:
        x = self.lin(x)
        if mask is not None:
            x = x * mask
        return x if bias is None else x + bias


def decoupled(m: Any, x: Tensor) -> Any:
    """Attention of which each query samples an image at places that it computes."""
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 5), indexing="ij")
    base = torch.stack((xs, ys), -1).to(x.dtype)
    offsets = m.offset(F.adaptive_avg_pool2d(x, 1).flatten(1)).view(-1, 5, 5, 2).tanh()
    return F.grid_sample(x, base + offsets, align_corners=False)


def rotary(theta: float, sign: float, paired: bool) -> Callable[..., Any]:
    def compute(m: Any, x: Tensor) -> Tensor:
        q = m.lin(x)
        frequencies = theta ** -(torch.arange(0, 8, 2) / 8)
        angles = sign * torch.outer(torch.arange(x.shape[1]), frequencies)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if paired:
            even, odd = q[..., ::2], q[..., 1::2]
            return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
        first, second = q.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    return compute


def hooked(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A part whose hooks read its input, double it, and add it to the output."""

    def build() -> nn.Module:
        module, seen = part(), list[Tensor]()
        module.register_forward_pre_hook(lambda _, given: seen.append(given[0].sum()))
        module.register_forward_pre_hook(lambda _, given: (given[0] * 2,))
        module.register_forward_hook(lambda _, given, output: output + given[0])
        return module

    return build


STRUCTURE: dict[str, Situation] = {
    "hooks of a layer": net(lambda m, x: m.out(m.lin(x).tanh()), lin=hooked(linear()), out=linear()),
    "hooks of a block": net(lambda m, x: m.first(x) + m.block(x), first=lambda: Block(8, 4),
                            block=hooked(lambda: Block(8, 4))),
    "hooks of the model": Situation(hooked(linear()), ("x: b 8",)),
    "one block with three widths and two classes of one name": Situation(Widths, ("x: b 8",)),
    "a module called with two static flags": net(
        lambda m, x: m.block(m.block(x, scale=0.5), gate=True), block=lambda: Block(8, 4)),
    "a layer called on its own output": net(lambda m, x: m.lin(m.lin(x)), lin=linear()),
    "a cell looped over five inputs": net(
        lambda m, x: [h := torch.zeros_like(x[:, 0]), *(h := m.cell(x[:, i], h) for i in range(5))][-1],
        "x: b 5 8", cell=lambda: nn.GRUCell(8, 8)),
    "a reshape that could be another where sizes are equal": net(
        lambda m, x: m.lin(x).reshape(x.shape[0], x.shape[1], x.shape[2]), "x: b t=4..8 8", lin=linear()),
    "a cell of two states": net(lambda m, x: sum(m.cell(x, m.cell(x))), cell=lambda: nn.LSTMCell(8, 8)),
    "cells without a state": net(
        lambda m, x: m.rnn(m.gru(x)), gru=lambda: nn.GRUCell(8, 8), rnn=lambda: nn.RNNCell(8, 8)),
    "a module looped over five inputs": net(
        lambda m, x: [h := torch.zeros_like(x[:, 0]), *(h := m.block(x[:, i] + h) for i in range(5))][-1],
        "x: b 5 8", block=lambda: Block(8, 4)),
    "a module in two places": net(lambda m, x: m.b(m.a(x).relu()), a=linear(), b=linear()),
    "keys that are no names": Situation(Keys, ("x: b 8",)),
    "a buffer handed to every child": Situation(Handed, (SEQUENCE,)),
    "a list whose 1 means use": Situation(lambda: Handed((1, 0, 1)), (SEQUENCE,)),
    "dropout, batch norm and noise": Situation(Noisy, ("x: b 8",)),
    "tied weights": Situation(Tied, ("ids: b t=5..9, below 11",)),
    "three norms that share one tensor": Situation(Norms, ("x: b 8",)),
    "an input left out": Situation(Optional, ("x: b 8",)),
    "an optional input": Situation(Optional, ("x: b 8", "mask: b 8")),
    "several inputs": net(lambda m, x, y: m.lin(x) * y, "x: b 8", "y: b 8", lin=linear()),
    "an input that is not read": net(lambda m, x, y: m.lin(x), "x: b 8", "y: b 8", lin=linear()),
    "nested outputs": net(lambda m, x: ((m.lin(x), x + 1), {"c": x * 2}), lin=linear()),
    "one output twice": net(lambda m, x: (y := m.lin(x), y), lin=linear()),
    "an input as an output": net(lambda m, x: (x, m.lin(x)), lin=linear()),
    "old weight norm": net(lambda m, x: m.lin(x), lin=lambda: weight_norm(nn.Linear(8, 8))),
    "new weight norm": net(lambda m, x: m.lin(x), lin=lambda: parametrizations.weight_norm(nn.Linear(8, 8))),
    "old spectral norm": net(lambda m, x: m.lin(x), lin=lambda: spectral_norm(nn.Linear(8, 8)), hole="hook"),
    "new spectral norm": net(lambda m, x: m.lin(x), lin=lambda: parametrizations.spectral_norm(nn.Linear(8, 8)),
                             hole="parametrised"),
    "a class token and a second one averaged": net(
        lambda m, x: m.lin(torch.cat([m.cls.expand(x.shape[0], -1, -1), m.dist.expand(x.shape[0], -1, -1), x], 1)
                           )[:, :2].mean(1),
        SEQUENCE, cls=parameter(1, 1, 8), dist=parameter(1, 1, 8), lin=linear()),
    "rotary": net(rotary(10000.0, 1.0, False), SEQUENCE, lin=linear()),
    "rotary with a negative angle": net(rotary(10000.0, -1.0, False), SEQUENCE, lin=linear()),
    "rotary of interleaved pairs": net(rotary(10000.0, 1.0, True), SEQUENCE, lin=linear()),
    "rotary with another theta": net(rotary(500.0, 1.0, False), SEQUENCE, lin=linear()),
    "deformable attention": net(decoupled, IMAGE, offset=linear(4, 50)),
}  # fmt: skip


# --- Weights that are read in several ways ---------------------------------------------------------------------------

WEIGHTS: dict[str, Situation] = {
    "a weight of an embedding as a kernel": net(
        lambda m, ids: F.linear(m.embed(ids), m.embed.weight), "ids: b t=5..9, below 11",
        embed=lambda: nn.Embedding(11, 8)),
    "a weight without its bias": net(lambda m, x: m.lin(x) + F.linear(x, m.lin.weight), lin=linear()),
    "a weight that is read beside its layer": net(lambda m, x: m.lin(x) * m.lin.weight.sum(), lin=linear()),
    "a convolution with other settings": net(
        lambda m, x: m.conv(x) + F.conv2d(x, m.conv.weight, m.conv.bias, padding=2, dilation=2), IMAGE, conv=conv()),
    "a convolution with a computed kernel": net(
        lambda m, x: F.conv2d(x, m.conv.weight.flip(-1), padding=1), IMAGE, conv=conv()),
    "a norm of parameters of its own": net(
        lambda m, x: F.layer_norm(x, (8,), m.weight, m.bias, 1e-3), weight=parameter(8), bias=parameter(8)),
    "a linear function of parameters of its own": net(
        lambda m, x: F.linear(x, m.kernel, m.shift), kernel=parameter(5, 8), shift=parameter(5)),
    "parameters over channels": net(
        lambda m, x: m.conv(x) * m.scale + m.shift, IMAGE, conv=conv(), scale=parameter(1, 4, 1, 1),
        shift=parameter(4, 1, 1)),
    "a parameter over the width": net(
        lambda m, x: m.conv(x) * m.scale, "x: b 4 h=6..9 7", conv=conv(), scale=parameter(7)),
}  # fmt: skip


# --- Layers ----------------------------------------------------------------------------------------------------------


def recurrent(kind: type[nn.Module], **settings: Any) -> Callable[[], nn.Module]:
    return lambda: kind(8, 5, batch_first=True, **settings)


def masked(m: Any, x: Tensor) -> Any:
    t = x.shape[1]
    bias = -(torch.arange(t)[:, None] - torch.arange(t)[None]).abs().to(x.dtype)
    return m.attn(x, x, x, attn_mask=bias)[0]


def attention(**settings: Any) -> Callable[[], nn.Module]:
    return lambda: nn.MultiheadAttention(8, 2, batch_first=True, **settings)


LAYERS: dict[str, Situation] = {
    "a GRU": net(lambda m, x: m.rnn(x), SEQUENCE, rnn=recurrent(nn.GRU)),
    "an LSTM of two layers and directions": net(
        lambda m, x: m.rnn(x), SEQUENCE, rnn=recurrent(nn.LSTM, num_layers=2, bidirectional=True)),
    "an LSTM with a start": net(
        lambda m, x: m.rnn(x, (m.start.expand(-1, x.shape[0], -1).contiguous(),) * 2)[1][0], SEQUENCE,
        rnn=recurrent(nn.LSTM), start=parameter(1, 1, 5)),
    "an LSTM with a projection": net(
        lambda m, x: m.rnn(x)[0], SEQUENCE, rnn=recurrent(nn.LSTM, proj_size=3), hole="proj"),
    "an LSTM on its own states": net(
        lambda m, x: m.rnn(x[:, 3:], m.rnn(x[:, :3])[1])[0], SEQUENCE, rnn=recurrent(nn.LSTM)),
    "attention with a bias": net(masked, SEQUENCE, attn=attention()),
    "masks of a decoder that are added": net(
        lambda m, x, scores, keys: m.decoder(x, x.flip(1), scores, tgt_key_padding_mask=keys), SEQUENCE,
        "scores: t t", "keys: b t", decoder=lambda: nn.TransformerDecoder(
            nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)),
    "attention with a mask of every head": net(
        lambda m, x: m.attn(x, x, x, attn_mask=torch.ones(4, 7, 7).tril() == 0)[0], "x: 2 7 8", attn=attention(),
        hole="mask"),
    "attention that does not look ahead": net(
        lambda m, x: m.attn(x, x, x, attn_mask=torch.ones(x.shape[1], x.shape[1]).triu(1).bool())[0], SEQUENCE,
        attn=attention()),
    "attention with a mask of keys": net(
        lambda m, x, mask: m.attn(x, x, x, key_padding_mask=mask == 0)[0], "x: b 7 8", "mask: b 7, mask",
        attn=attention()),
    "attention of two lengths": net(
        lambda m, x, y: m.attn(x, y, y), SEQUENCE, "y: b s=4..5 8", attn=attention()),
    "attention with keys of their own": net(
        lambda m, x: m.attn(x, x, x)[0], SEQUENCE, attn=attention(add_bias_kv=True), hole="bias"),
    "a root mean square norm without epsilon": net(
        lambda m, x: m.norm(x * 1e-4), norm=lambda: nn.RMSNorm(8)),
    "a norm over two axes": net(lambda m, x: m.norm(x), "x: b 5 8", norm=lambda: nn.LayerNorm((5, 8))),
    "a norm over an image": net(
        lambda m, x: m.norm(m.conv(x)), "x: b 4 6 7", norm=lambda: nn.LayerNorm((4, 6, 7)), conv=conv()),
    "a norm over the width": net(
        lambda m, x: m.norm(m.conv(x)), "x: b 4 h=6..9 7", norm=lambda: nn.LayerNorm(7), conv=conv()),
    "a linear layer over the width": net(lambda m, x: m.lin(m.conv(x)), SQUARE, lin=linear(), conv=conv(8, 8)),
    "batch norm of features": net(lambda m, x: m.norm(x), norm=lambda: nn.BatchNorm1d(8)),
    "batch norm of a sequence": net(lambda m, x: m.norm(x), "x: b 8 t=7..9", norm=lambda: nn.BatchNorm1d(8)),
    "batch norm by the batch": net(
        lambda m, x: m.norm(x), "x: 3 4 5 5", norm=lambda: nn.BatchNorm2d(4, track_running_stats=False),
        hole="running"),
    "instance norm": net(lambda m, x: m.norm(x), IMAGE, norm=lambda: nn.InstanceNorm2d(4, affine=True)),
    "group norm of features": net(lambda m, x: m.norm(x), norm=lambda: nn.GroupNorm(2, 8)),
    "group norm of a sequence": net(lambda m, x: m.norm(x), "x: b 8 t=7..9", norm=lambda: nn.GroupNorm(2, 8)),
    "local response norm": net(lambda m, x: m.norm(x), IMAGE,
                               norm=lambda: nn.LocalResponseNorm(3), hole="local_response_norm"),
    "an image without a batch": net(lambda m, x: m.conv(x[0]), IMAGE, conv=conv(), hole="batch"),
    "a norm without a batch": net(
        lambda m, x: m.norm(m.conv(x[0])), IMAGE, conv=conv(), norm=lambda: nn.InstanceNorm2d(4), hole="batch"),
    "a reflected border": net(lambda m, x: m.conv(x), IMAGE, conv=conv(padding_mode="reflect")),
    "a circular border": net(lambda m, x: m.conv(x), IMAGE, conv=conv(padding_mode="circular")),
    "an even kernel": net(lambda m, x: m.conv(x), IMAGE, conv=conv(4, 4, 4, padding="same")),
    "strides and groups": net(lambda m, x: m.conv(x), IMAGE, conv=conv(4, 8, 3, stride=2, groups=2)),
    "a transposed convolution": net(
        lambda m, x: m.conv(x), IMAGE,
        conv=lambda: nn.ConvTranspose2d(4, 6, 3, 2, padding=1, output_padding=1)),
    "a transposed convolution of groups": net(
        lambda m, x: m.conv(x), IMAGE, conv=lambda: nn.ConvTranspose2d(4, 6, 3, 2, groups=2)),
    "a transposed convolution of channels": net(
        lambda m, x: m.conv(x), "x: b 4 t=6..9",
        conv=lambda: nn.ConvTranspose1d(4, 4, 4, 2, padding=1, groups=4, bias=False)),
    "a transposed convolution with more places": net(
        lambda m, x: m.conv(x), IMAGE, conv=lambda: nn.ConvTranspose2d(4, 4, 2, 3, output_padding=(2, 1), groups=2)),
    "a transposed convolution that is dilated": net(
        lambda m, x: m.conv(x), IMAGE, conv=lambda: nn.ConvTranspose2d(4, 4, 3, dilation=2, padding=1, groups=2)),
    "a convolution in three dimensions": net(
        lambda m, x: m.conv(x).flatten(2).mean(2), "x: b 2 5 6 7", conv=lambda: nn.Conv3d(2, 3, 3, padding=1)),
    "pooling rounded up": net(
        lambda m, x: m.b(m.a(x)), IMAGE, a=lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        b=lambda: nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)),
    "pooling of gaps": net(lambda m, x: m.pool(x), IMAGE, pool=lambda: nn.MaxPool2d(2, dilation=2), hole="gaps"),
    "adaptive pooling": net(lambda m, x: m.pool(x), "x: b 4 6 8", pool=lambda: nn.AdaptiveAvgPool2d((3, 2))),
    "adaptive pooling of uneven parts": net(
        lambda m, x: m.pool(x), "x: b 4 7 8", pool=lambda: nn.AdaptiveAvgPool2d((3, 5))),
    "adaptive pooling of free sizes": net(
        lambda m, x: m.pool(x), "x: b 4 h=8..12 8", pool=lambda: nn.AdaptiveAvgPool2d((4, 2))),
    "pooling over all": net(lambda m, x: m.pool(m.conv(x)).flatten(1), IMAGE, conv=conv(),
                            pool=lambda: nn.AdaptiveMaxPool2d(1)),
    "unpooling": net(
        lambda m, x: m.up(*m.pool(m.conv(x))), "x: b 4 6 8", conv=conv(),
        pool=lambda: nn.MaxPool2d(2, return_indices=True), up=lambda: nn.MaxUnpool2d(2), hole="indices"),
    "folding": net(lambda m, x: m.f(m.u(x)), "x: b 4 6 6", u=lambda: nn.Unfold(2, stride=2),
                   f=lambda: nn.Fold((6, 6), 2, stride=2), hole="old"),
    "an embedding with padding": net(
        lambda m, ids: m.embed(ids), "ids: b t=5..9, below 11", embed=lambda: nn.Embedding(11, 8, padding_idx=0)),
    "an embedding with a largest norm": net(
        lambda m, ids: m.embed(ids), "ids: b t=5..9, below 11", embed=lambda: nn.Embedding(11, 8, max_norm=1.0),
        hole="norm"),
    "a bag of embeddings": net(
        lambda m, ids: m.embed(ids), "ids: b 5, below 11", embed=lambda: nn.EmbeddingBag(11, 8), hole="embedding_bag"),
    "a bilinear layer": net(lambda m, x: m.two(x, x), two=lambda: nn.Bilinear(8, 8, 3)),
    "a layer's forward": net(lambda m, x: m.lin.forward(x), lin=linear()),
    "a slope of every channel": net(lambda m, x: m.act(m.conv(x)), IMAGE, conv=conv(), act=lambda: nn.PReLU(4)),
    "a softmax over channels": net(lambda m, x: m.act(m.conv(x)), IMAGE, conv=conv(), act=lambda: nn.Softmax2d()),
    "a gate over channels": net(lambda m, x: m.act(m.conv(x)), IMAGE, conv=conv(), act=lambda: nn.GLU(1)),
    "shuffled pixels": net(
        lambda m, x: m.b(m.a(m.conv(x))), "x: b 4 6 8", conv=conv(), a=lambda: nn.PixelShuffle(2),
        b=lambda: nn.PixelUnshuffle(4)),
    "shuffled channels": net(lambda m, x: m.a(m.conv(x)), IMAGE, conv=conv(), a=lambda: nn.ChannelShuffle(2)),
    "a flattened image": net(
        lambda m, x: m.lin(m.flat(m.conv(x))), "x: b 4 6 7", conv=conv(), flat=nn.Flatten, lin=linear(168, 3)),
}  # fmt: skip


# --- Functions -------------------------------------------------------------------------------------------------------


def resized(mode: str, **settings: Any) -> Callable[..., Any]:
    return lambda m, x: F.interpolate(m.conv(x), mode=mode, **settings)


FUNCTIONS: dict[str, Situation] = {
    "dropout that drops nothing": net(lambda m, x: F.dropout(m.lin(x), 0.0, training=True) * 2, lin=linear()),
    "rounded to 16 bits": net(
        lambda m, x: (y := m.lin(x).to(torch.bfloat16), y * y.tanh())[-1].float() * 3 + x.half().to(x.dtype) / 3,
        lin=linear()),
    "a constant of 16 bits": net(
        lambda m, x: (x.to(torch.bfloat16) * (m.table.tensor * m.table.tensor)).double(),
        table=lambda: Held(torch.linspace(0.1, 3.0, 8), torch.bfloat16)),
    "two kinds of GELU": net(lambda m, x: F.gelu(x) - 2 * F.gelu(x, approximate="tanh")),
    "activations": net(lambda m, x: sum((f(3 * x) for f in (
        F.softplus, F.hardtanh, F.hardswish, F.hardsigmoid, F.mish, F.silu, F.selu, F.celu, F.logsigmoid, F.relu6,
        F.softsign, F.tanhshrink, F.elu)), x)),
    "activations with settings": net(lambda m, x: sum((
        F.hardtanh(x, -0.3, 0.7), F.celu(x, 0.5), F.leaky_relu(x, 0.3), F.elu(x, 0.4),
        F.threshold(x, 0.1, -2.0), F.softshrink(x, 0.2), F.hardshrink(x, 0.2)), x)),
    "a softplus with settings": net(lambda m, x: F.softplus(x, 2.0, 0.5), hole="softplus"),
    "dropout that is always on": net(lambda m, x: F.dropout(x, 0.5), hole="drops"),
    "dropout in functional form": net(lambda m, x: F.dropout(m.lin(x), 0.5, m.training), lin=linear()),
    "random numbers": net(lambda m, x: x + torch.rand(8), hole="rand"),
    "random numbers of a shape": net(lambda m, x: x + torch.randn_like(x), hole="randn_like"),
    "random numbers in place": net(lambda m, x: x + torch.empty(8).normal_(), hole="other values"),
    **{f"{mode} {settings}": net(resized(mode, **settings), IMAGE, conv=conv(), hole=hole) for mode, settings, hole in (
        ("bicubic", {"scale_factor": 2, "align_corners": False}, ""),
        ("bicubic", {"scale_factor": 2, "align_corners": True}, ""),
        ("bicubic", {"size": (5, 6), "align_corners": False}, ""),
        ("bicubic", {"size": (5, 4), "antialias": True}, "antialias"),
        ("bilinear", {"size": (5, 4), "antialias": True}, "antialias"),
        ("bilinear", {"size": (5, 11), "align_corners": True}, ""),
        ("bilinear", {"scale_factor": 1.5, "align_corners": False}, ""),
        ("bilinear", {"scale_factor": 1.5, "recompute_scale_factor": True}, "recompute"),
        ("nearest", {"scale_factor": 1.5}, ""), ("nearest-exact", {"scale_factor": 1.5}, "nearest-exact"),
        ("area", {"size": (3, 4)}, "area"))},
    "resized by its own size": net(
        lambda m, x: F.interpolate(m.conv(x)[:, :, ::2], size=x.shape[2:], mode="bilinear"), IMAGE, conv=conv()),
    "borders": net(lambda m, x: sum((F.pad(m.conv(x), (1, 2, 0, 1), mode) for mode in (
        "constant", "reflect", "replicate", "circular")), torch.zeros(())), IMAGE, conv=conv()),
    "a negative border": net(lambda m, x: F.pad(m.conv(x), (-1, 2, 1, -2), value=0.5), IMAGE, conv=conv()),
    "a border by size": net(
        lambda m, x: F.pad(x, (0, 0, x.shape[1] - 3, 1)), SEQUENCE),
    "a border up to a multiple": net(
        lambda m, x: F.pad(x, (0, 0, 0, (4 - x.shape[1] % 4) % 4)).sum(1), SEQUENCE),
    "a spectrum": net(lambda m, x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1), SEQUENCE),
    "absolute values of a spectrum": net(lambda m, x: torch.fft.rfft(x).abs() + torch.fft.rfft(x).real),
    "a spectrum of complex numbers": net(lambda m, x: torch.fft.fft(x).real, hole="complex"),
    "complex numbers": net(lambda m, x: torch.view_as_complex(x.view(-1, 4, 2)).abs(), hole="complex"),
    "the largest and what they index": net(
        lambda m, x: x.gather(1, x[..., 0].topk(3, 1)[1][..., None].expand(-1, -1, 8)), SEQUENCE),
    "gather along the last axis": net(lambda m, x: x.gather(-1, x.topk(3, -1)[1])),
    "gather of fewer rows": net(lambda m, x: x.gather(-1, x[:, :2].argsort(-1)[..., :1]), SEQUENCE, hole="gather"),
    "the smallest": net(lambda m, x: x.topk(3, largest=False)[0], hole="topk"),
    "the largest over channels": net(lambda m, x: m.conv(x).topk(2, 1)[0], IMAGE, conv=conv(), hole="topk"),
    "sorted with indices": net(lambda m, x: x.sort(1)[1], hole="sort"),
    "sorted": net(lambda m, x: x.sort(-1)[0] + x.sort(1)[0]),
    "index_add": net(lambda m, x: x.index_add(0, torch.tensor([0, 0]), x[:1].expand(2, -1))),
    "index_add with a factor": net(
        lambda m, x: x.index_add(0, torch.tensor([0, 0]), x[:1].expand(2, -1), alpha=2), hole="index_add"),
    "index_add along features": net(
        lambda m, x: x.index_add(1, torch.tensor([1, 1]), x[:, :2]), hole="index_add"),
    "scatter_add": net(
        lambda m, x: torch.zeros_like(x).scatter_add(1, x.argsort(1) // 2, x), hole="scatter_add"),
    "scatter": net(lambda m, x: torch.zeros_like(x).scatter(1, x.topk(3, 1)[1], 1.0)),
    "scatter of values": net(lambda m, x: torch.zeros_like(x).scatter(1, x.topk(3, 1)[1], x[:, :3])),
    "statistics of an image": net(lambda m, x: torch.cat([
        (y := m.conv(x)).mean((2, 3)), y.var((2, 3)), y.std((2, 3), unbiased=False), y.amax((2, 3)),
        y.mean(1).flatten(1)[:, :1],
        y.norm(dim=(2, 3)), y.logsumexp((2, 3)), y.sum(2)[:, :, 0]], 1), IMAGE, conv=conv()),
    "statistics of all": net(lambda m, x: m.conv(x).mean() + m.conv(x).var() + m.conv(x).norm(), IMAGE, conv=conv()),
    "argmax over channels": net(lambda m, x: m.conv(x).argmax(1), IMAGE, conv=conv()),
    "maximum over channels with indices": net(lambda m, x: m.conv(x).max(1), IMAGE, conv=conv()),
    "softmax over channels": net(lambda m, x: F.softmax(m.conv(x), 1) + F.log_softmax(m.conv(x), 2), IMAGE,
                                 conv=conv()),
    "sums on the way": net(lambda m, x: m.conv(x).cumsum(1) + m.conv(x).cumprod(2), IMAGE, conv=conv()),
    "median": net(lambda m, x: x.median(1)[0], hole="median"),
    "normalised": net(lambda m, x: F.normalize(m.conv(x), dim=1) + F.normalize(m.conv(x), dim=2), IMAGE, conv=conv()),
    "distances": net(lambda m, x: F.cosine_similarity(x, x.flip(1), dim=1) + F.pairwise_distance(x, x.roll(1, 1))),
    "distances of all pairs": net(lambda m, x: torch.cdist(x, x), hole="cdist"),
    "cosine of images": net(lambda m, x: F.cosine_similarity(m.conv(x), x, dim=1), IMAGE, conv=conv()),
    "division": net(lambda m, x: (5 * x).floor_divide(0.7) + torch.div(5 * x, 0.7, rounding_mode="floor")
                    + (5 * x) % 0.7 + (5 * x) // -0.7 + 2 / (x * x + 1)),
    "division that cuts": net(lambda m, x: torch.div(5 * x, 0.7, rounding_mode="trunc")),
    "a remainder with the sign of the first": net(lambda m, x: torch.fmod(5 * x, 0.7), hole="fmod"),
    "whole numbers": net(lambda m, x: (3 * x).long() + (3 * x).int() // 2 + (3 * x).long() % 3 - (x > 0).sum(-1, True)),
    "division of whole numbers": net(lambda m, ids: ids / 3 + ids // 3 - ids % 4, "ids: b 7, below 11"),
    "sums with a factor": net(lambda m, x: torch.add(x, x.flip(1), alpha=2) - torch.sub(x, 1.0, alpha=0.5)),
    "reversed operators": net(lambda m, x: 1 - x + 2 / (x.exp()) + 2**x - (1.5 - m.lin(x)), lin=linear()),
    "powers": net(lambda m, x: x**2 + x.abs() ** 0.5 + x.pow(3) + x.exp() ** x),
    "clamped": net(lambda m, x: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + x.clamp_max(0.2)
                   + torch.clamp(x, x.mean(), None)),
    "chosen": net(lambda m, x: torch.where(x > 0, x, 0.5) + x.masked_fill(x < 0, -1.0) + x.where(x > 0.1, x * 2)),
    "truth": net(lambda m, x: ((x > 0) & (x < 1) | ~(x > -1)).to(x.dtype)
                 + (x > 0).any(1, True) + (x > 0).all(1, True)),
    "bits": net(lambda m, ids: (ids & 3) + (ids | 4) + (~ids) + (ids ^ 1), "ids: b 7, below 11"),
    "shifted bits": net(lambda m, ids: (ids << 2) + (ids >> 1), "ids: b 7, below 11"),
    "products with factors": net(lambda m, x: torch.addmm(m.w, m.w, m.w, beta=0.5, alpha=2) @ x.T, w=parameter(8, 8),
                                 hole="factors"),
    "addcmul with a factor": net(lambda m, x: torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x.exp())),
    "lerp": net(lambda m, x: torch.lerp(x, x.flip(1), 0.3)),
    "einsum of images": net(lambda m, x: torch.einsum("bchw,dc->bdhw", m.conv(x), m.w), IMAGE, conv=conv(),
                            w=parameter(5, 4)),
    "product of images": net(lambda m, x: m.conv(x) @ m.conv(x).transpose(2, 3), IMAGE, conv=conv()),
    "tensordot": net(lambda m, x: torch.tensordot(x, m.w, dims=([1], [0])), w=parameter(8, 3), hole="tensordot"),
    "attention that looks back": net(
        lambda m, x: F.scaled_dot_product_attention(x[:, 2:], x, x, is_causal=True), SEQUENCE),
    "attention with a scale and a bias": net(
        lambda m, x: F.scaled_dot_product_attention(x, x, x, attn_mask=x @ x.mT, scale=0.3), SEQUENCE),
    "attention with hidden rows": net(
        lambda m, x: F.scaled_dot_product_attention(x, x, x, attn_mask=(x @ x.mT) > 0.5), SEQUENCE),
    "attention with dropout": net(
        lambda m, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), SEQUENCE, hole="drops"),
    "windows": net(lambda m, x: x.unfold(1, 3, 2).mean(-1), SEQUENCE),
    "one hot": net(lambda m, ids: F.one_hot(ids, 11), "ids: b 7, below 11"),
    "ranges": net(lambda m, x: x + torch.arange(x.shape[1])[:, None] * 0.5 + torch.linspace(0, 1, x.shape[1])[:, None],
                  SEQUENCE),
    "a range with a step": net(
        lambda m, x: x[:, ::2] + torch.arange(0, x.shape[1], 2)[:, None], SEQUENCE),
    "bands": net(lambda m, x: torch.ones(x.shape[1], x.shape[1]).tril(-1).to(x) @ x, SEQUENCE),
    "repeated": net(lambda m, x: m.conv(x).repeat(1, 2, 1, 1).repeat_interleave(2, 1)[:, ::3], IMAGE, conv=conv()),
    "turned": net(lambda m, x: m.conv(x).flip(1).roll((1, -2), (2, 1)), IMAGE, conv=conv()),
    "joined images": net(lambda m, x: torch.cat([m.conv(x), x], 2) + torch.stack([m.conv(x), x], 2).flatten(2, 3),
                         "x: b 4 6 7", conv=conv()),
    "split images": net(lambda m, x: [a * 2 for a in m.conv(x).split([1, 3], 1)] + list(m.conv(x).chunk(3, 2)) +
                        list(m.conv(x).unbind(1)), "x: b 4 6 7", conv=conv()),
    "uneven parts": net(lambda m, x: [2 * a for a in x.tensor_split(3, 1)] + [2 * a for a in x.split(3, 1)]),
    "parts of a free size": net(lambda m, x: [2 * a for a in x.split([x.shape[1] - 2, 2], 1)], SEQUENCE),
    "chunks of a free size": net(lambda m, x: [2 * a for a in x.chunk(2, 1)], SEQUENCE),
    "as many as there are": net(lambda m, x: x.unique(), hole="unique"),
    "the places of what is there": net(lambda m, x: (x > 0).nonzero().sum(), hole="nonzero"),
}  # fmt: skip


# --- Layouts ---------------------------------------------------------------------------------------------------------

LAYOUTS: dict[str, Situation] = {
    "quarter turns": net(
        lambda m, x: (*(m.conv(x).rot90(k, (2, 3)) for k in (-1, 0, 2, 5)), torch.rot90(x), x.rot90(1, (1, -1))),
        IMAGE, conv=conv()),
    "a square permute": net(lambda m, x: m.lin(m.conv(x).permute(0, 3, 2, 1)), SQUARE, conv=conv(8, 8), lin=linear()),
    "another square permute": net(
        lambda m, x: m.lin(m.conv(x).permute(0, 2, 1, 3)), SQUARE, conv=conv(8, 8), lin=linear()),
    "a square permute between convolutions": net(
        lambda m, x: m.conv(m.conv(x).permute(0, 3, 1, 2)), SQUARE, conv=conv(8, 8)),
    "a square view": net(
        lambda m, x: m.lin(m.conv(x).reshape(-1, 8, 64).reshape(-1, 64, 8)), SQUARE, conv=conv(8, 8), lin=linear()),
    "a batch among the axes": net(
        lambda m, x: m.conv(x.reshape(8, 8, 8, 8).permute(1, 0, 2, 3)), "x: 8 8 8 8", conv=conv(8, 8)),
    "tokens": net(lambda m, x: m.lin(m.conv(x).flatten(2).transpose(1, 2)), IMAGE, conv=conv(4, 8), lin=linear()),
    "tokens and back": net(
        lambda m, x: m.conv(m.lin(x.flatten(2).mT).mT.reshape(x.shape)), IMAGE, conv=conv(), lin=linear(4, 4)),
    "heads": net(
        lambda m, x: m.lin(x).view(*x.shape[:-1], 2, x.shape[-1] // 2).transpose(1, 2).reshape(x.shape[0], -1, 4),
        SEQUENCE, lin=linear()),
    "windows of an image": net(
        lambda m, x: m.conv(x).view(-1, 4, 2, 3, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 12, 4), "x: b 4 6 8",
        conv=conv()),
    "an image broadcast over a vector": net(
        lambda m, x: m.conv(x) * m.conv(x).mean((2, 3))[:, :, None, None] + x.mean((0, 2, 3)).view(1, -1, 1, 1), IMAGE,
        conv=conv()),
    "an image broadcast over its width": net(lambda m, x: m.conv(x) + x[0, 0, 0], IMAGE, conv=conv()),
    "an image with an axis in front": net(lambda m, x: m.conv(x)[None] + m.conv(x)[:, None], "x: b 4 6 7", conv=conv(),
                                          ),
    "a new axis": net(lambda m, x: m.conv(x).unsqueeze(2).squeeze(2).unsqueeze(-1)[..., 0], IMAGE, conv=conv()),
    "one row": net(lambda m, x: m.conv(x)[:, :, 1] + m.conv(x)[:, :, -1], IMAGE, conv=conv()),
    "an output of channels": net(lambda m, x: (m.conv(x), m.conv(x)[:, 0], m.conv(x).mean(1, keepdim=True)), IMAGE,
                                 conv=conv()),
}  # fmt: skip


# --- Indices and sizes -----------------------------------------------------------------------------------------------


def last_tokens(m: Any, x: Tensor, mask: Tensor) -> Any:
    return x[torch.arange(x.shape[0]), mask.long().sum(1) - 1]


def assign(change: Callable[..., Any]) -> Callable[..., Any]:
    def compute(m: Any, x: Tensor) -> Tensor:
        y = x.clone()
        change(y, x)
        return y * 2

    return compute


def set_item(*index: Any, value: Any = 0.5) -> Callable[..., Any]:
    def change(y: Tensor, x: Tensor) -> None:
        y[index] = value(x) if callable(value) else value

    return assign(change)


INDICES: dict[str, Situation] = {
    "half of a size": net(lambda m, x: x[:, x.shape[1] // 2], SEQUENCE),
    "from the end by a size": net(lambda m, x: x[:, -(x.shape[1] // 3) :], SEQUENCE),
    "the first half": net(lambda m, x: x[:, : x.shape[1] // 2] + x[:, :1], SEQUENCE),
    "a slice that is longer for some": net(lambda m, x: x[:, :9], SEQUENCE, hole="at one size"),
    "a module for a size": net(lambda m, x: m.parts[x.shape[1] % 2](x), SEQUENCE,
                               parts=lambda: nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)]), hole="other"),
    "a parameter for a size": net(lambda m, x: x * m.parts[x.shape[1] % 2], SEQUENCE, parts=lambda: nn.ParameterList(
        [nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(8))]), hole="depends on the sizes"),
    "a mask that hides nothing": net(
        lambda m, x, mask: x if mask.bool().all() else x * mask[..., None], "x: b 7 8", "mask: b 7, mask"),
    "a table of places": net(lambda m, x: x + m.table[: x.shape[1]], SEQUENCE, table=parameter(16, 8)),
    "a length": net(lambda m, x: x[:, : len(x[0]) // 2].reshape(len(x), -1, 2, 4), SEQUENCE),
    "a length of nothing": net(lambda m, x: x * (len(x.shape) + len([x, x])), SEQUENCE),
    "a size of the constructor": net(
        lambda m, x: F.pad(x, (m.size - 2,) * 2), SEQUENCE, size=lambda: torch.ones(5).flip(0).shape[0]),
    "a table of places by a range": net(
        lambda m, x: x + m.table(torch.arange(x.shape[1])), SEQUENCE, table=lambda: nn.Embedding(16, 8)),
    "a size rounded up": net(lambda m, x: x[:, : math.ceil(x.shape[1] / 2)], SEQUENCE, hole="depends on the sizes"),
    "a size times a number": net(lambda m, x: x[:, : int(x.shape[1] * 0.5)], SEQUENCE, hole="depends on the sizes"),
    "the smaller of two sizes": net(lambda m, x: x[:, : min(x.shape[1], 9)], SEQUENCE, hole="other"),
    "a size as a number": net(lambda m, x: x * x.shape[1] ** -0.5, SEQUENCE),
    "a size as a scale": net(lambda m, x: x / math.sqrt(x.shape[1]), SEQUENCE),
    "a branch on a remainder": net(lambda m, x: x * 2 if x.shape[1] % 5 else x, SEQUENCE),
    "a branch on one size": net(lambda m, x: x * 3 if x.shape[1] == 10 else x, SEQUENCE),
    "a branch on a size that is never there": net(lambda m, x: x * 3 if x.shape[1] == 3 else x, SEQUENCE),
    "a limit of the dtype": net(lambda m, x: x.masked_fill(x > 0, torch.finfo(x.dtype).min).softmax(-1), SEQUENCE),
    "a branch on a size": net(lambda m, x: x * (2.0 if x.shape[1] > 10 else 3.0), SEQUENCE, hole="other"),
    "other calls for a size": net(lambda m, x: x.exp() if x.shape[1] > 10 else x, SEQUENCE, hole="other"),
    "a loop over a size": net(lambda m, x: sum((x[:, i] for i in range(x.shape[1])), 0), SEQUENCE, hole="other"),
    "a branch on a value": net(lambda m, x: x * 2 if x.sum() > -1e9 else x, hole="value"),
    "a number from a value": net(lambda m, x: x * x.sum().item(), hole="value"),
    "a size from a value": net(lambda m, x: x[:, : int((x[0, 0] > -1e9).long()) + 2], hole="value"),
    "a mask as an index": net(lambda m, x: x[x > 0].sum(), hole="mask"),
    "a list as an index": net(lambda m, x: x[:, [0, 2, 5]]),
    "a list as an index alone": net(lambda m, x: m.w[[0, 2, 5]] + x[:, :3].T[..., :1], w=parameter(8, 8)),
    "two lists": net(lambda m, x: x[:, [0, 2], [1, 3]], SEQUENCE),
    "a number and a list": net(lambda m, x: x[0, :, [0, 2, 5, 1, 1, 3, 4]], "x: b 7 8"),
    "a number and a list of another size": net(lambda m, x: x[0, :, [0, 2]], "x: b 7 8"),
    "lists apart": net(lambda m, x: x[:, [0, 1], :, [1, 3]], "x: b 4 5 6"),
    "lists of an image": net(lambda m, x: m.conv(x)[:, [2, 0]], IMAGE, conv=conv()),
    "a new axis and a list": net(lambda m, x: x[:, None, [0, 2]]),
    "the last of each": net(last_tokens, "x: b 7 8", "mask: b 7, mask"),
    "index_select": net(lambda m, x: m.conv(x).index_select(1, m.index), IMAGE, conv=conv(),
                        index=lambda: torch.tensor([3, 0, 0])),
    "a negative index": net(lambda m, x: x[:, m.index], index=lambda: torch.tensor([-1, -8, 3])),
    "narrow and select": net(lambda m, x: m.conv(x).narrow(1, 1, 2) + x.select(1, -1)[:, None], IMAGE, conv=conv()),
    "narrow from the end": net(lambda m, x: x.narrow(1, -3, 2), SEQUENCE),
    "long numbers": net(lambda m, x: x * 3000017 * 3000017 % 97, "x: b 5, below 500", hole="32 bits"),
    "a long number": net(lambda m, x: x * 2654435761 % 97, "x: b 5, below 500", hole="32 bits"),
    "the remainder of a long number": net(lambda m, x: x % 2654435761, "x: b 5, below 500", hole="32 bits"),
    "take": net(lambda m, x: torch.take_along_dim(x, x.argsort(1), 1), hole="take_along_dim"),
}  # fmt: skip


def codebook(m: nn.Module, x: Tensor) -> Any:
    """The nearest code of each row, its place, and the losses that train the codes."""
    weight = m.codes.weight
    distances = x.pow(2).sum(-1, keepdim=True) + weight.pow(2).sum(1) - 2 * x @ weight.t()
    index = distances.argmin(-1)
    codes = m.codes(index)
    loss = F.mse_loss(codes.detach(), x) + 0.25 * F.l1_loss(codes, x.detach(), reduction="sum")
    return x + (codes - x).detach(), index, loss


@torch.library.custom_op("port_nets::relu", mutates_args=())
def custom_relu(x: Tensor) -> Tensor:
    """An operator with the name of another one."""
    return x.relu() + 1


LOSSES: dict[str, Situation] = {
    "a custom operator": net(lambda m, x: custom_relu(x).exp(), hole="torch.ops"),
    "a tensor that nothing computes": net(lambda m, x: torch.from_dlpack(x) * 2, hole="no function of torch"),
    "a codebook": net(codebook, SEQUENCE, codes=lambda: nn.Embedding(11, 8)),
    "a codebook of a buffer": net(
        lambda m, x: m.codes[((x[:, :, None] - m.codes) ** 2).sum(-1).argmin(-1)],
        SEQUENCE,
        codes=lambda: torch.zeros(11, 8),
    ),
    "a layer after its weights": net(lambda m, x: m.lin(x @ m.lin.weight), lin=linear()),
    "losses": net(lambda m, x: F.mse_loss(x, x.cos(), reduction="none") + F.l1_loss(x, x.sin())),
    "losses that end in a line": net(
        lambda m, x: (
            F.smooth_l1_loss(x, x.cos(), beta=0.5)
            + F.smooth_l1_loss(x, x.sin(), reduction="none")
            + F.smooth_l1_loss(x, x.sin(), reduction="sum", beta=0.0)
            + F.huber_loss(x, x.cos(), reduction="sum", delta=0.3)
        )
    ),
    "losses of images": net(
        lambda m, x: F.huber_loss(m.conv(x), x, "none") + F.kl_div(m.conv(x), x.exp(), reduction="batchmean"),
        IMAGE,
        conv=conv(),
    ),
    "a weighted loss": net(lambda m, x: F.huber_loss(x, x.cos(), weight=x.exp()), hole="with weights"),
    "a loss that is reduced the old way": net(lambda m, x: F.mse_loss(x, x.cos(), reduce=False), hole="reduce"),
    "losses of probabilities": net(
        lambda m, x: (
            F.binary_cross_entropy(x.sigmoid(), (x > 0).double())
            + F.binary_cross_entropy((x > 0).double(), x.cos().abs(), weight=m.w.exp(), reduction="none")
            + F.binary_cross_entropy((x / 1e20).sigmoid() * 1e-50, x.cos().abs(), reduction="sum")
        ),
        w=parameter(8),
    ),
    "losses of logits": net(
        lambda m, x: (
            F.binary_cross_entropy_with_logits(x, x.cos().abs(), m.w.exp(), pos_weight=m.w.cos())
            + F.binary_cross_entropy_with_logits(50 * x, (x > 0).double(), reduction="none")
        ),
        w=parameter(8),
    ),
    "divergences": net(
        lambda m, x: (
            F.kl_div(x.log_softmax(1), x.relu(), reduction="batchmean")
            + F.kl_div(x, x.log_softmax(1), reduction="none", log_target=True)
            + F.kl_div(x, x.relu())
        )
    ),
    "likelihoods": net(
        lambda m, x, y: (
            F.nll_loss(x, y, ignore_index=2)
            + F.nll_loss(x, y, m.w.exp(), ignore_index=3)
            + F.cross_entropy(x, y, m.w.exp(), reduction="none")
        ),
        "x: b 8",
        "y: b, below 8",
        w=parameter(8),
    ),
    "cross-entropy": net(
        lambda m, x, y: F.cross_entropy(x, y) + F.cross_entropy(x, y, reduction="none", ignore_index=2),
        "x: b 8",
        "y: b, below 8",
    ),
    "cross-entropy of a sequence": net(lambda m, x, y: F.cross_entropy(x.mT, y), SEQUENCE, "y: b t, below 8"),
    "cross-entropy with smoothing": net(
        lambda m, x, y: F.cross_entropy(x, y, label_smoothing=0.1), "x: b 8", "y: b, below 8", hole="smoothing"
    ),
    "many numbers": net(lambda m, x: x * m.sizes[:, 0], sizes=lambda: torch.arange(24.0).view(8, 3).tanh_()),
    "many equal numbers": net(lambda m, x: x * m.held[0], held=lambda: Held(torch.full((3, 8), 0.7))),
    "many numbers of no formula": net(
        lambda m, x: x * m.held[0],
        held=lambda: Held(torch.tensor([[float(n % 7) for n in range(8)]] * 3)),
        hole="numbers",
    ),
}


IN_PLACE: dict[str, Situation] = {
    "slice assignment": net(set_item(slice(None), slice(2, 5)), SEQUENCE),
    "assignment of values": net(set_item(slice(None), slice(1, 3), value=lambda x: x[:, :2] * 3), SEQUENCE),
    "assignment by a size": net(
        assign(lambda y, x: y.__setitem__((slice(None), slice(x.shape[1] // 2, None)), x[:, :1])), SEQUENCE),
    "assignment from the end": net(set_item(slice(None), slice(-2, None)), SEQUENCE),
    "assignment of a row": net(set_item(slice(None), 0, value=lambda x: x[:, 1]), SEQUENCE),
    "assignment to the last axis": net(set_item(..., 0), SEQUENCE),
    "assignment with a step": net(set_item(slice(None), slice(None, None, 2)), SEQUENCE),
    "assignment to odd places": net(
        assign(lambda y, x: y.__setitem__((slice(None), slice(1, None, 3)), x[:, 1::3] * 2)), SEQUENCE),
    "an assigned number with a step": net(
        assign(lambda y, x: y.__setitem__((..., slice(1, None, 2)), 3.0)), SEQUENCE),
    "assignment with a step up to a place": net(set_item(slice(None), slice(0, 5, 2)), SEQUENCE),
    "assignment with a step up to the last place": net(
        assign(lambda y, x: y.__setitem__((slice(None), slice(1, -1, 2)), x[:, 1:-1:2] * 2)), SEQUENCE),
    "assignment with a step and a part": net(
        assign(lambda y, x: y.__setitem__((slice(None), slice(1, None), slice(None, None, 2)), x[:, 1:, 1::2] * 2)),
        SEQUENCE),
    "assignment with two steps": net(
        assign(lambda y, x: y.__setitem__((..., slice(None, None, 2), slice(1, None, 3)), x[:, ::2, 1::3] * 2)),
        SEQUENCE),
    "assignment of a row with a step": net(
        assign(lambda y, x: y.__setitem__((slice(None), -1, slice(None, None, 2)), x[:, 0, ::2] * 2)), SEQUENCE),
    "assignment through a mask": net(assign(lambda y, x: y.__setitem__(x > 0.2, -1.0))),
    "assignment to chosen rows": net(set_item(torch.tensor([0, 0]))),
    "assignment to chosen columns": net(set_item(slice(None), torch.tensor([0, 3])), hole="index"),
    "assignment to a part that is larger": net(set_item(slice(None), slice(5, 99)), SEQUENCE),
    "assignment to an image": net(
        lambda m, x: assign(lambda y, _: y.__setitem__((slice(None), 1), 0.0))(m, m.conv(x)), IMAGE, conv=conv()),
    "a row that grows": net(assign(lambda y, x: y[:, 0].add_(x[:, 1])), SEQUENCE),
    "rows added in place": net(assign(lambda y, x: y[:, 2:4].mul_(2.0)), SEQUENCE),
    "a view that grows": net(assign(lambda y, x: y.view(-1).add_(1.0)), "x: 2 8", hole="view"),
    "a transpose that grows": net(assign(lambda y, x: y.transpose(0, 1)[0].add_(1.0)), "x: 3 3", hole="view"),
    "a view of a view": net(assign(lambda y, x: y[:, 1:][:, 0].add_(1.0)), SEQUENCE, hole="view"),
    "a stale row": net(lambda m, x: (y := x.clone(), v := y[:, 0], y.add_(1.0), v * 2)[-1], SEQUENCE, hole="in place"),
    "a stale shape": net(lambda m, x: (y := x.clone(), v := y.view(-1), y.mul_(2.0), v * 2)[-1], "x: 2 8",
                         hole="in place"),
    "rows that overlap": net(
        lambda m, x: (y := x.clone(), a := y[:, 0], b := y[:, :2], a.add_(1.0), b * 2)[-1], SEQUENCE, hole="in place"),
    "a row before an assignment": net(
        lambda m, x: (y := x.clone(), v := y[:, 0], y.__setitem__((slice(None), 0), 0.0), v * 2)[-1], SEQUENCE,
        hole="in place"),
    "a row that is not read again": net(
        lambda m, x: (y := x.clone(), v := y[:, 0] * 2, y.add_(1.0), v + y[:, 0])[-1], SEQUENCE),
    "a residual of a layer in place": net(
        lambda m, x: (y := m.lin(x), z := m.relu(y), z + y)[-1], lin=linear(), relu=lambda: nn.ReLU(inplace=True)),
    "a layer in place on a row": net(
        lambda m, x: (y := m.lin(x), m.relu(y[:, 0]), y * 2)[-1], SEQUENCE, lin=linear(),
        relu=lambda: nn.ReLU(inplace=True), hole="in place"),
    "a function in place on a row": net(
        lambda m, x: (y := m.lin(x), F.relu(y[:, 0], inplace=True), y * 2)[-1], SEQUENCE, lin=linear(),
        hole="in place"),
    "a function in place": net(lambda m, x: (y := m.lin(x), F.relu(y, inplace=True), y * 2)[-1], lin=linear()),
    "an output that is stated": net(
        lambda m, x: (y := torch.zeros_like(x), torch.add(x, 1.0, out=y), y * 2)[-1]),
    "a copy": net(lambda m, x: (y := torch.zeros_like(x), y.copy_(x), y * 2)[-1]),
    "a copy of a row": net(assign(lambda y, x: y[:, 0].copy_(x[:, 1])), SEQUENCE),
    "filled": net(lambda m, x: (y := x.clone(), y.fill_(2.0), y + x)[-1]),
    "emptied": net(lambda m, x: (y := x * 1.5, y.zero_(), y + x)[-1]),
    "masked in place": net(lambda m, x: (y := m.lin(x), y.masked_fill_(x > 0, 0.0), y * 2)[-1], lin=linear()),
    "scattered in place": net(lambda m, x: torch.zeros_like(x).scatter_(1, x.topk(2, 1)[1], 1.0)),
    "an input changed in place": net(lambda m, x: (x.add_(1.0), m.lin(x))[-1], lin=linear()),
    "a buffer changed in place": net(lambda m, x: (m.count.add_(1.0), x * m.count)[-1], count=lambda: torch.ones(8),
                                     hole="in place"),
    "turned in place": net(lambda m, x: x.clone().t_() @ x, "x: 4 4"),
}  # fmt: skip

NETS: dict[str, Situation] = {
    **LOSSES,
    **STRUCTURE, **WEIGHTS, **LAYERS, **FUNCTIONS, **LAYOUTS, **INDICES, **IN_PLACE,
}  # fmt: skip
