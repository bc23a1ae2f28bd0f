"""Attention: packed and separate projections, heads, scale, masks; recurrent layers and cells: gates, directions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from keras import layers
from torch import nn

from tests.mapping.kind_layers import Packed, PairOf, Projections, Separate

from .layers import Cell, Masked, Ordered, Stack, Started
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
         {"the mask not inverted": {"mask": BLOCKED[None]}, "no mask": {"mask": None}}, at=(".inner", "/inner"),
         code=("mask",), one_array=True),
    Pair("packed, causal", "attention_packed", partial(Called, {"attn_mask": BLOCKED}), partial(MHA, causal=True), SELF,
         {"not causal": {"causal": False}}, at=(".inner", "/inner"), code=("causal",), one_array=True),
    Pair("packed, key_padding_mask: True is left out", "attention_packed",
         partial(Called, {"key_padding_mask": PADDING}), partial(MHA, mask=~PADDING[:, None, :]), SELF,
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
    Pair("separate projections under other names", "attention",
         partial(Separate, 8, 2, ("to_q", "to_k", "to_v", "to_out")), MHA, SELF,
         ORDERED | {"value and key exchanged": {"row": "names: {query: to_q, key: to_v, value: to_k, out: to_out}"}},
         at=INNER, row="names: {query: to_q, key: to_k, value: to_v, out: to_out}", code=("causal",), one_array=True,
         no_outline="its module is written out, and not a layer of torch.nn"),
    Pair("cross-attention", "attention", partial(Separate, 8, 2, ("q_proj", "k_proj", "v_proj", "out_proj")), MHA,
         ((2, 5, 8), (2, 7, 8), (2, 7, 8)), {"key and value exchanged": {"row": "names: {key: v_proj, value: k_proj}"}},
         at=INNER, no_outline="its module is written out, and not a layer of torch.nn"),
    Pair("grouped queries", "attention", Grouped,
         partial(Ordered, layers.GroupQueryAttention, head_dim=2, num_query_heads=4, num_key_value_heads=2), SELF,
         ORDERED | {"key and value exchanged": {"row": "names: {key: v_proj, value: k_proj}"}}, at=INNER,
         code=("causal",), one_array=True, no_outline="its module is written out, and not a layer of torch.nn"),
)  # fmt: skip


X = ((2, 5, 3),)
LSTM, GRU, RNN = (partial(each, 4, return_sequences=True) for each in (layers.LSTM, layers.GRU, layers.SimpleRNN))
BACKWARDS = {"backwards": {"go_backwards": True}}
LAYERS, CELL = ("", "/rnn_<layer>"), (".cell", "/inner")
GATES = {"hard sigmoid": {"recurrent_activation": "hard_sigmoid"}}


def torch_rnn(name: str, **given: Any) -> Any:
    return partial(getattr(nn, name), 3, 4, **{"batch_first": True} | given)


def both(make: Any, merge: str = "concat", **given: Any) -> Any:
    """Keras runs a layer in both directions; ``given`` goes to the layer."""
    return layers.Bidirectional(make(**given), merge_mode=merge)


class Lengths(nn.Module):
    """An LSTM on packed sequences of these lengths, zeros after them."""

    def __init__(self, lengths: Sequence[int], **given: Any) -> None:
        super().__init__()
        self.rnn, self.lengths = nn.LSTM(3, 4, batch_first=True, **given), lengths

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(self.lengths), True, enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], True, total_length=x.shape[1])
        return out


class Begun(nn.Module):
    """A recurrent layer from states of 0.3 in every unit."""

    def __init__(self, make: Any, states: int) -> None:
        super().__init__()
        self.rnn, self.states = make(), states

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.full((1, x.shape[0], 4), 0.3, dtype=x.dtype)
        return self.rnn(x, (state, state) if self.states > 1 else state)[0]  # type: ignore[no-any-return]


class LastStep(nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.rnn = make()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x)[0][:, -1]  # type: ignore[no-any-return]


RECURRENT = (
    Pair("lstm", "lstm", torch_rnn("LSTM"), LSTM, X, GATES | BACKWARDS | {"activation relu": {"activation": "relu"}}),
    Pair("lstm, no bias", "lstm", torch_rnn("LSTM", bias=False), partial(LSTM, use_bias=False), X, GATES),
    Pair("lstm, time first", "lstm", torch_rnn("LSTM", batch_first=False), LSTM, ((5, 2, 3),),
         {"the batch taken for time": {"axes": "..."}}, "t b c -> b t c"),
    Pair("lstm, last step", "lstm", partial(LastStep, torch_rnn("LSTM")), partial(layers.LSTM, 4), X,
         BACKWARDS | {"every step": {"return_sequences": True}}, at=(".rnn", ""),
         unnamed={"every step": "PyTorch's layer always gives every step"},
         no_outline="its module is more layers than one"),
    Pair("lstm, from a state", "lstm", partial(Begun, torch_rnn("LSTM"), 2), partial(Started, LSTM, 2, value=0.3), X,
         {"from zeros": {"value": 0.0}}, at=(".rnn", "/inner"), code=("value",)),
    Pair("lstm, two layers", "lstm", torch_rnn("LSTM", num_layers=2), partial(Stack, LSTM, 2), ((2, 5, 3),),
         GATES, at=LAYERS),
    Pair("lstm, dropout between layers: none in inference", "lstm", torch_rnn("LSTM", num_layers=2, dropout=0.5),
         partial(Stack, partial(LSTM, dropout=0.5), 2), X, BACKWARDS, at=LAYERS),
    Pair("lstm, three lengths", "lstm", partial(Lengths, (5, 2, 3)), partial(Masked, LSTM, (5, 2, 3)), ((3, 5, 3),),
         {"the mask inverted": {"inverted": True}}, at=(".rnn", "/inner"), code=("inverted",),
         no_model="has lengths for one size of batch; test_masked.py draws masks"),
    Pair("bidirectional_lstm, three lengths", "bidirectional_lstm", partial(Lengths, (5, 2, 3), bidirectional=True),
         partial(Masked, partial(both, LSTM), (5, 2, 3)), ((3, 5, 3),), {"the mask inverted": {"inverted": True}},
         at=(".rnn", "/inner"), code=("inverted",), no_model="has lengths for one size of batch"),
    Pair("gru", "gru", torch_rnn("GRU"), GRU, X, GATES | BACKWARDS | {"activation relu": {"activation": "relu"}}),
    Pair("gru, no bias", "gru", torch_rnn("GRU", bias=False), partial(GRU, use_bias=False), X,
         {"the reset before the product": {"reset_after": False}}),
    Pair("gru, two layers", "gru", torch_rnn("GRU", num_layers=2), partial(Stack, GRU, 2), X, GATES, at=LAYERS),
    Pair("gru, from a state", "gru", partial(Begun, torch_rnn("GRU"), 1), partial(Started, GRU, 1, value=0.3), X,
         {"from zeros": {"value": 0.0}}, at=(".rnn", "/inner"), code=("value",)),
    Pair("rnn, tanh", "rnn", torch_rnn("RNN"), RNN, X, {"relu": {"activation": "relu"}}),
    Pair("rnn, relu", "rnn", torch_rnn("RNN", nonlinearity="relu"), partial(RNN, activation="relu"), X,
         {"tanh": {"activation": "tanh"}}),
    Pair("bidirectional_lstm", "bidirectional_lstm", torch_rnn("LSTM", bidirectional=True), partial(both, LSTM), X,
         GATES | {"the sum of both directions": {"merge": "sum"}}),
    Pair("bidirectional_gru, time first", "bidirectional_gru", torch_rnn("GRU", bidirectional=True, batch_first=False),
         partial(both, GRU), ((5, 2, 3),), {"the batch taken for time": {"axes": "..."}}, "t b c -> b t c"),
    Pair("bidirectional_rnn", "bidirectional_rnn", torch_rnn("RNN", bidirectional=True), partial(both, RNN), X,
         {"relu": {"activation": "relu"}}),
    Pair("bidirectional_lstm, two layers", "bidirectional_lstm", torch_rnn("LSTM", bidirectional=True, num_layers=2),
         partial(Stack, partial(both, LSTM), 2), X, GATES, at=LAYERS),
    Pair("lstm_cell", "lstm_cell", lambda: PairOf(nn.LSTMCell(3, 4), 2), partial(Cell, partial(layers.LSTMCell, 4), 2),
         ((2, 3),), GATES, at=CELL),
    Pair("gru_cell", "gru_cell", lambda: PairOf(nn.GRUCell(3, 4), 1), partial(Cell, partial(layers.GRUCell, 4), 1),
         ((2, 3),), GATES, at=CELL),
    Pair("rnn_cell, relu", "rnn_cell", lambda: PairOf(nn.RNNCell(3, 4, nonlinearity="relu"), 1),
         partial(Cell, partial(layers.SimpleRNNCell, 4, activation="relu"), 1), ((2, 3),),
         {"tanh": {"activation": "tanh"}}, at=CELL, no_model="is all zeros in the batch of one"),
)  # fmt: skip
