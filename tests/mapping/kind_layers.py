"""PyTorch modules and Keras layers that the cases of layer kinds need beside those of the two libraries."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import torch
from keras import layers
from torch import nn


class Projections(keras.layers.Layer):
    """Attention with einsum projections called query, key, value and out, as our own layers have them."""

    def __init__(self, width: int, heads: int, bias: bool = True, dense: bool = False) -> None:
        super().__init__()
        self.heads, self.head, self.dense = heads, width // heads, dense
        split = (heads, self.head)
        for name in ("query", "key", "value"):
            made = (
                layers.Dense(width, use_bias=bias)
                if dense
                else layers.EinsumDense("bte,ehd->bthd", (None, *split), bias_axes="hd" if bias else None)
            )
            setattr(self, name, made)
        self.out = (
            layers.Dense(width, use_bias=bias)
            if dense
            else layers.EinsumDense("bthd,hde->bte", (None, width), bias_axes="e" if bias else None)
        )

    def call(self, query: Any, key: Any, value: Any) -> Any:
        parts = [part(x) for part, x in ((self.query, query), (self.key, key), (self.value, value))]
        q, k, v = (keras.ops.reshape(p, (*p.shape[:2], self.heads, self.head)) for p in parts)
        weights = keras.ops.softmax(keras.ops.einsum("bqhd,bkhd->bhqk", q, k) / self.head**0.5)
        mixed = keras.ops.einsum("bhqk,bkhd->bqhd", weights, v)
        return self.out(keras.ops.reshape(mixed, (*mixed.shape[:2], -1)) if self.dense else mixed)


class Separate(nn.Module):
    """Attention with a linear layer for each projection, under names to choose."""

    def __init__(self, width: int, heads: int, names: tuple[str, str, str, str]) -> None:
        super().__init__()
        self.heads, self.names = heads, names
        for name in names:
            setattr(self, name, nn.Linear(width, width))

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        parts = zip(self.names, (query, key, value), strict=False)
        q, k, v = (getattr(self, name)(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for name, x in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return getattr(self, self.names[3])(mixed)  # type: ignore[no-any-return]


class Packed(nn.Module):
    """Attention whose three projections are one linear layer, as vision transformers have it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(query).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.proj(mixed)  # type: ignore[no-any-return]


class Flattened(nn.Module):
    """A linear layer behind a flatten."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        super().__init__()
        self.order, self.fc = order, nn.Linear(2 * 3 * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.permute(self.order).flatten(1))  # type: ignore[no-any-return]


class PairOf(nn.Module):
    """A cell called with zeros for its state."""

    def __init__(self, cell: nn.Module, states: int) -> None:
        super().__init__()
        self.cell, self.states = cell, states

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = [torch.ones(len(x), 4, dtype=x.dtype) / 3 for _ in range(self.states)]
        out = self.cell(x, tuple(state) if self.states > 1 else state[0])
        return out[0] if self.states > 1 else out  # type: ignore[no-any-return]


class Scale(nn.Module):
    """RMS normalisation whose scale has axes of size one behind it, for channels-first images."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * self.gamma


def old_norm(module: nn.Module, name: str = "weight", dim: int | None = 0) -> nn.Module:
    """Weight normalisation as PyTorch stored it before 2.0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(module, name, dim)  # type: ignore[no-any-return,arg-type]


def new_norm(module: nn.Module, name: str = "weight", dim: int = 0) -> nn.Module:
    return nn.utils.parametrizations.weight_norm(module, name, dim)
