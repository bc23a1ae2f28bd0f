"""Attention with every form of a mask that PyTorch takes: alone, and in encoders and decoders of torch.nn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Masks = Callable[[Tensor, Tensor], dict[str, Any]]
"""Arguments of an attention by its inputs and the steps to keep."""


def later(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def added(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(mask, -torch.inf)


def distances(length: int) -> Tensor:
    steps = torch.arange(length)
    return -(steps[:, None] - steps).abs().float()


def by_head(x: Tensor) -> Tensor:
    """The first head of two looks back, the second at others, one mask after the other for every sample."""
    own = torch.eye(x.shape[1], dtype=torch.bool)
    own[0, 0] = False
    return torch.stack([later(x.shape[1]), own]).repeat(len(x), 1, 1)


FORMS: dict[str, Masks] = {
    "padding": lambda x, keep: {"key_padding_mask": ~keep},
    "left_out": lambda x, keep: {"key_padding_mask": keep},
    "causal": lambda x, keep: {"attn_mask": later(x.shape[1])},
    "both": lambda x, keep: {"attn_mask": later(x.shape[1]), "key_padding_mask": ~keep},
    "both_added": lambda x, keep: {"attn_mask": distances(x.shape[1]), "key_padding_mask": added(~keep)},
    "biased": lambda x, keep: {"attn_mask": distances(x.shape[1]), "need_weights": False},
    "by_head": lambda x, keep: {"attn_mask": by_head(x)},
    "by_head_added": lambda x, keep: {"attn_mask": added(by_head(x)), "key_padding_mask": added(~keep)},
}


class Masked(nn.Module):
    def __init__(self, form: str, batch_first: bool = True) -> None:
        super().__init__()
        self.form, self.batch_first = FORMS[form], batch_first
        self.attn, self.head = nn.MultiheadAttention(8, 2, batch_first=batch_first), nn.Linear(8, 3)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        masks = self.form(x, keep)
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.attn(x, x, x, **masks)[0]
        return self.head(x if self.batch_first else x.transpose(0, 1))


class Behind(nn.Module):
    """Padding comes first, so the first queries of causal attention see no key; only those that count are read."""

    def __init__(self, weights: bool = True, every: bool = False) -> None:
        super().__init__()
        self.weights, self.every = weights, every
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        keep = keep.flip(1)
        masks = {"key_padding_mask": ~keep, "attn_mask": later(x.shape[1]), "need_weights": self.weights}
        x = self.norm(x + self.attn(x, x, x, **masks)[0])
        return self.head((x if self.every else torch.where(keep[..., None], x, 0.0)).mean(1))


class Words(nn.Module):
    """Tokens of which 0 is padding, their attention, and the mean of those that count."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 8, padding_idx=0)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        ids = (ids + 1) * keep  # the padding comes last
        x = self.embed(ids)
        x = self.norm(self.attn(x, x, x, key_padding_mask=ids == 0)[0])
        counts = (ids != 0)[..., None]
        return self.head((x * counts).sum(1) / counts.sum(1))


class Encoder(nn.Module):
    def __init__(self, norm_first: bool = False, look_back: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
        self.look_back, self.head = look_back, nn.Linear(8, 3)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        mask = later(x.shape[1]) if self.look_back else None
        x = self.encoder(x, mask=mask, src_key_padding_mask=~keep)
        return self.head((x * keep[..., None]).mean(1))


class Decoder(nn.Module):
    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
        self.decoder, self.head = nn.TransformerDecoder(layer, 1), nn.Linear(8, 3)

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        near = distances(memory.shape[1])[: x.shape[1]] < -2
        near[:, 0] = False
        return self.head(self.decoder(x, memory, mask, near, tgt_is_causal=True, memory_key_padding_mask=~keep))


def __getattr__(name: str) -> Any:
    """A function that builds ``masked_padding``, and so on."""
    if name.startswith("masked_"):
        return partial(Masked, name.removeprefix("masked_"))
    raise AttributeError(name)


masked_time_first = partial(Masked, "both", batch_first=False)
behind, behind_fast, behind_every = Behind, partial(Behind, False), partial(Behind, False, True)
words, encoder, decoder = Words, Encoder, Decoder
encoder_first, encoder_both = partial(Encoder, True), partial(Encoder, False, True)
decoder_first = partial(Decoder, True)
