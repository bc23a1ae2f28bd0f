"""Attention: packed and separate projections, heads, scale, and what a mask's ``True`` means."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from keras import layers
from torch import nn

from tests.mapping.kind_layers import Packed, Projections, Separate

from .layers import Ordered
from .pair import Pair

SELF = ((2, 5, 8),) * 3
TIME_FIRST = ((5, 2, 8),) * 3
INNER = ("", "/inner")
MHA = partial(Ordered, num_heads=2, key_dim=4)
BLOCKED = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.array([[False] * 5, [False, False, False, True, True]])


class Called(nn.Module):
    """``torch.nn.MultiheadAttention`` called with these masks."""

    def __init__(self, masks: dict[str, Any], **given: Any) -> None:
        super().__init__()
        self.inner, self.masks = nn.MultiheadAttention(8, 2, **{"batch_first": True} | given), masks

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        masks = {name: torch.tensor(mask) for name, mask in self.masks.items()}
        return self.inner(query, key, value, need_weights=False, **masks)[0]  # type: ignore[no-any-return]


class Grouped(nn.Module):
    """Attention of four heads whose keys and values have two, by PyTorch's own kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.out_proj = nn.Linear(8, 8), nn.Linear(8, 8)
        self.k_proj, self.v_proj = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        named = ((self.q_proj, query, 4), (self.k_proj, key, 2), (self.v_proj, value, 2))
        q, k, v = (layer(x).unflatten(-1, (heads, 2)).transpose(1, 2) for layer, x, heads in named)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def rolled(module: nn.Module) -> dict[str, torch.Tensor]:
    """The state with the rows of query, key and value in the order key, value, query."""
    return {
        name: tensor.roll(-8, 0) if "in_proj" in name or "qkv" in name else tensor
        for name, tensor in module.state_dict().items()
    }


PARTS = {"key, value, query": {"state": rolled}}
ORDERED = {"attention is causal": {"causal": True}}

PAIRS = (
    Pair("packed", "attention_packed", partial(nn.MultiheadAttention, 8, 2, batch_first=True), MHA, SELF,
         PARTS | ORDERED, at=INNER, code=("causal",), one_array=True),
    Pair("packed, no bias", "attention_packed", partial(nn.MultiheadAttention, 8, 2, bias=False, batch_first=True),
         partial(MHA, use_bias=False), SELF, PARTS | ORDERED, at=INNER, code=("causal",), one_array=True),
    Pair("packed, time first", "attention_packed", partial(nn.MultiheadAttention, 8, 2), MHA, TIME_FIRST,
         {"the batch taken for time": {"axes": "..."}}, "t b c -> b t c", at=INNER, one_array=True),
    Pair("packed, to dense projections", "attention_packed", partial(nn.MultiheadAttention, 8, 2, batch_first=True),
         partial(Projections, 8, heads=2, dense=True), SELF, PARTS | {"4 heads": {"heads": 4}, "1 head": {"heads": 1}},
         one_array=True, no_outline="its twin is another layer than the nearest"),
    Pair("packed, kdim and vdim", "attention_packed",
         partial(nn.MultiheadAttention, 8, 2, kdim=6, vdim=4, batch_first=True), MHA,
         ((2, 7, 8), (2, 7, 6), (2, 7, 4)), ORDERED, at=INNER, code=("causal",)),
    Pair("packed, attn_mask: True is blocked", "attention_packed", partial(Called, {"attn_mask": BLOCKED}),
         partial(MHA, mask=~BLOCKED[None]), SELF,
         {"the mask as it is": {"mask": BLOCKED[None]}, "no mask": {"mask": None}}, at=(".inner", "/inner"),
         code=("mask",), one_array=True),
    Pair("packed, causal", "attention_packed", partial(Called, {"attn_mask": BLOCKED}), partial(MHA, causal=True), SELF,
         {"not causal": {"causal": False}}, at=(".inner", "/inner"), code=("causal",), one_array=True),
    Pair("packed, key_padding_mask: True is left out", "attention_packed", partial(Called,
         {"key_padding_mask": PADDING}),
         partial(MHA, mask=~PADDING[:, None, :]), SELF,
         {"the mask inverted": {"mask": PADDING[:, None, :]}, "a mask of queries": {"mask": ~PADDING[:, :, None]}},
         at=(".inner", "/inner"), code=("mask",), one_array=True, no_model="has a mask for one size of batch"),
    Pair("packed, dropout: none in inference", "attention_packed",
         partial(nn.MultiheadAttention, 8, 2, dropout=0.5, batch_first=True), partial(MHA, dropout=0.5), SELF, ORDERED,
         at=INNER, code=("causal",), one_array=True),
    Pair("packed under other names", "attention_packed", partial(Packed, 8, 2), partial(Projections, 8, heads=2), SELF,
         PARTS, row="names: {packed_weight: qkv.weight, packed_bias: qkv.bias, out: proj}",
         one_array=True, no_outline="its module is written out, and not a layer of torch.nn"),
    Pair("separate projections", "attention", partial(Separate, 8, 2, ("q_proj", "k_proj", "v_proj", "out_proj")),
         MHA, SELF, ORDERED | {"query and key exchanged": {"row": "names: {query: k_proj, key: q_proj}"}}, at=INNER,
         code=("causal",), one_array=True, no_outline="its module is written out, and not a layer of torch.nn"),
    Pair("separate projections under other names", "attention", partial(Separate, 8, 2, ("to_q", "to_k", "to_v",
         "to_out")),
         MHA, SELF,
         ORDERED | {"value and key exchanged": {"row": "names: {query: to_q, key: to_v, value: to_k, out: to_out}"}},
         at=INNER, row="names: {query: to_q, key: to_k, value: to_v, out: to_out}",
         code=("causal",), one_array=True, no_outline="its module is written out, and not a layer of torch.nn"),
    Pair("cross-attention", "attention", partial(Separate, 8, 2, ("q_proj", "k_proj", "v_proj", "out_proj")), MHA,
         ((2, 5, 8), (2, 7, 8), (2, 7, 8)),
         {"key and value exchanged": {"row": "names: {key: v_proj, value: k_proj}"}}, at=INNER,
         no_outline="its module is written out, and not a layer of torch.nn"),
    Pair("grouped queries", "attention", Grouped,
         partial(Ordered, layers.GroupQueryAttention, head_dim=2, num_query_heads=4, num_key_value_heads=2), SELF,
         ORDERED | {"key and value exchanged": {"row": "names: {key: v_proj, value: k_proj}"}}, at=INNER,
         code=("causal",), one_array=True, no_outline="its module is written out, and not a layer of torch.nn"),
)  # fmt: skip
