"""WaveletDiff as a user has it: plain PyTorch with the public keys, and every habit that breaks `.double()`.

Tables are computed in float32, by dtype, by `.float()` and by a softmax's dtype; attention is torch's own, called by
keyword and returning its weights. Nothing here is wdport's, so it is a second opinion on our reference, too.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class Position(nn.Module):
    pe: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        pe = torch.zeros(length, width)
        position = torch.arange(0, length, dtype=torch.float).unsqueeze(1)
        rates = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
        pe[:, 0::2], pe[:, 1::2] = torch.sin(position * rates), torch.cos(position * rates)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[: x.size(1)]


class Time(nn.Module):
    emb: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        steps = torch.arange(half, dtype=torch.float32)
        self.register_buffer("emb", torch.exp(steps * -(math.log(10000.0) / (half - 1))))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, t: Tensor) -> Tensor:
        angle = (t.float() * 1000.0)[:, None] * self.emb[None, :].to(torch.float32)
        return self.mlp(torch.cat([torch.sin(angle), torch.cos(angle)], dim=-1).type_as(self.mlp[0].weight))


class AdaNorm(nn.Module):
    def __init__(self, width: int, time: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.ada_lin = nn.Linear(time, 2 * width)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        scale, shift = self.ada_lin(t).unsqueeze(1).chunk(2, dim=-1)
        return scale * self.norm(x) + shift


class HeadNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x / x.pow(2).mean(-1, keepdim=True).add(1e-8).sqrt() * self.scale


class NormedAttention(nn.Module):
    """Separate projections; query and key normalised per head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )
        self.q_norm, self.k_norm = HeadNorm(width // heads), HeadNorm(width // heads)
        self.out_proj = nn.Linear(width, width)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor]:
        def split(x: Tensor) -> Tensor:
            return x.view(x.shape[0], x.shape[1], self.heads, -1)

        q, k = self.q_norm(split(self.q_proj(query))), self.k_norm(split(self.k_proj(key)))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), split(self.v_proj(value)).transpose(1, 2)
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1, dtype=torch.float32)
        return (self.out_proj((weights.to(v.dtype) @ v).transpose(1, 2).reshape(query.shape)),)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, time: int, qk_norm: bool) -> None:
        super().__init__()
        self.norm1 = AdaNorm(width, time)
        self.attn = attention(width, heads, qk_norm)
        self.norm2 = AdaNorm(width, time)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        a = self.norm1(x, t=t)
        x = x + self.dropout(self.attn(value=a, query=a, key=a)[0])
        return x + self.mlp(self.norm2(x, t))


class Group(nn.Module):
    def __init__(self, features: int, length: int, width: int, depth: int, heads: int, time: int, qk: bool) -> None:
        super().__init__()
        self.input_proj = nn.Linear(features, width)
        self.pos_encoding = Position(length, width)
        self.blocks = nn.ModuleList([Block(width, heads, time, qk) for _ in range(depth)])
        self.output_proj = nn.Linear(width, features)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        x = self.dropout(self.pos_encoding(self.input_proj(x)))
        for block in self.blocks:
            x = block(x, t)
        return x


class CrossLevel(nn.Module):
    def __init__(self, widths: list[int], heads: int, time: int, qk: bool) -> None:
        super().__init__()
        wide = max(widths)
        self.level_position_embeddings = nn.Parameter(torch.zeros(len(widths), wide))
        self.level_aggregators = nn.ModuleList(
            nn.Sequential(nn.Linear(w, w // 2), nn.GELU(), nn.Linear(w // 2, 1), nn.Softmax(dim=1)) for w in widths
        )
        self.level_projections = nn.ModuleList(nn.Linear(w, wide) for w in widths)
        self.cross_attention_layers = nn.ModuleList(attention(wide, heads, qk) for _ in widths)
        self.level_expanders = nn.ModuleList(nn.Linear(wide, w) for w in widths)
        self.cross_norm = nn.ModuleList(AdaNorm(w, time) for w in widths)
        self.cross_level_gates = nn.ModuleList(nn.Sequential(nn.Linear(w + time, w), nn.Sigmoid()) for w in widths)

    def forward(self, groups: list[Tensor], t: Tensor) -> list[Tensor]:
        rows = []
        for i, h in enumerate(groups):
            pooled = torch.sum(self.level_aggregators[i](h) * h, dim=1)
            rows.append(self.level_projections[i](pooled) + self.level_position_embeddings[i])
        table = torch.stack(rows, dim=1)
        results = []
        for i, h in enumerate(groups):
            others = table[:, [j for j in range(len(groups)) if j != i]]
            read = self.cross_attention_layers[i](table[:, i : i + 1], others, others)[0]
            spread = self.level_expanders[i](read.squeeze(1)).unsqueeze(1).expand(-1, h.shape[1], -1)
            gate = self.cross_level_gates[i](torch.cat([h, t.unsqueeze(1).expand(-1, h.shape[1], -1)], dim=-1))
            results.append(h + gate * self.cross_norm[i](spread, t))
        return results


class Net(nn.Module):
    """Coefficients (B, C, F) and time (B,) to the prediction (B, C, F)."""

    def __init__(
        self, lengths: tuple[int, ...], features: int, width: int, heads: int, depth: int, time: int,
        qk: bool = False, cosine: bool = False, cross: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.lengths = list(lengths)
        widths = [2 * width] + [width] * (len(lengths) - 1)
        beta = cosine_betas() if cosine else exponential_betas()
        beta = torch.cat([torch.zeros(1), beta])
        for name, values in (("beta", beta), ("alpha", 1 - beta), ("alpha_bar", torch.cumprod(1 - beta, dim=0))):
            self.register_buffer(f"{name}_all", values)
        self.level_transformers = nn.ModuleList(
            Group(features, length, w, depth + (2 if i == 0 else 0), heads, time, qk)
            for i, (length, w) in enumerate(zip(lengths, widths, strict=True))
        )
        self.time_embedding = Time(time)
        self.cross_level_attention = CrossLevel(widths, heads, time, qk) if cross else None

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        embedded = self.time_embedding(t)
        parts = torch.split(x, self.lengths, dim=1)
        tokens = [group(part, embedded) for group, part in zip(self.level_transformers, parts, strict=True)]
        if self.cross_level_attention is not None:
            tokens = self.cross_level_attention(tokens, embedded)
        return torch.cat([g.output_proj(h) for g, h in zip(self.level_transformers, tokens, strict=True)], dim=1)  # type: ignore[operator]


class PublicGroup(Group):
    """A group whose parts the network calls by methods; called as a module it projects, too."""

    def embed(self, x: Tensor, t: Tensor) -> Tensor:
        return super().forward(x, t)

    def project(self, h: Tensor) -> Tensor:
        return self.output_proj(h)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.project(self.embed(x, t))


class PublicNet(Net):
    """The network with the public code's calls: of a group's methods with a cross-level block, of groups without."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for group in self.level_transformers:
            group.__class__ = PublicGroup

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        embedded = self.time_embedding(t)
        pairs = list(zip(self.level_transformers, torch.split(x, self.lengths, dim=1), strict=True))
        if self.cross_level_attention is None:
            return torch.cat([group(part, embedded) for group, part in pairs], dim=1)
        tokens = self.cross_level_attention([group.embed(part, embedded) for group, part in pairs], embedded)  # type: ignore[operator]
        made = [group.project(h) for (group, _), h in zip(pairs, tokens, strict=True)]  # type: ignore[operator]
        return torch.cat(made, dim=1)


def exponential_betas() -> Tensor:
    u = torch.linspace(0, 1, 1000, dtype=torch.float32)
    return torch.cummax(1e-4 + (0.02 - 1e-4) * (1 - torch.exp(-2 * u)), dim=0).values.clamp(1e-4, 0.9999)


def cosine_betas() -> Tensor:
    x = torch.arange(1001, dtype=torch.float32) / 1000
    f = torch.cos((x + 0.008) / 1.008 * math.pi / 2) ** 2
    return (1 - f[1:] / f[:-1]).clamp(1e-4, 0.9999)


def attention(width: int, heads: int, qk_norm: bool) -> nn.Module:
    if qk_norm:
        return NormedAttention(width, heads)
    return nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)


def small() -> Net:
    """The network of `tests.make.SMALL`."""
    return Net((5, 5, 8, 13), 3, 16, 2, 1, 8)


def two_levels() -> Net:
    """The network of `tests.make.TWO_LEVELS`."""
    return Net((5, 5), 3, 16, 2, 1, 8, cross=False)


def public(heads: int = 2) -> Net:
    """The same with the public code's calls."""
    return PublicNet((5, 5, 8, 13), 3, 16, heads, 1, 8)


def public_no_cross() -> Net:
    return PublicNet((5, 5, 8, 13), 3, 16, 2, 1, 8, cross=False)


def public_qk_norm() -> Net:
    return PublicNet((5, 5, 8, 13), 3, 16, 2, 1, 8, qk=True)


def public_more_heads() -> Net:
    """Twice as many heads: the same tensors."""
    return public(4)


def other() -> Net:
    """Another one."""
    return Net((5, 5, 8, 13), 3, 16, 2, 2, 8)


def loaded(checkpoint: str) -> Net:
    """The small network with its weights loaded, by the user's own code."""
    net = small()
    net.load_state_dict(torch.load(checkpoint, weights_only=True)["state_dict"])
    return net


def etth1() -> Net:
    return Net((5, 5, 8, 13), 7, 32, 4, 2, 32)


def stocks() -> Net:
    return Net((14, 14, 21, 35), 6, 48, 8, 1, 24, cosine=True)


def exchange() -> tuple[Net, Any]:
    """With inputs of its own."""
    import numpy as np

    def make_inputs(seed: int, batch: int, scale: float) -> tuple[Any, ...]:
        rng = np.random.default_rng(100 + seed)
        return scale * rng.standard_normal((batch, 31, 8)), rng.integers(1, 1001, batch) / 1000.0

    return Net((5, 5, 8, 13), 8, 32, 4, 1, 32, qk=True), make_inputs
