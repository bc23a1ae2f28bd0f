"""Recurrent layers: gates, both directions, several layers, the layout of time, states at the start, and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from keras import layers
from torch import nn

from tests.mapping.kind_layers import PairOf

from .layers import Cell, Masked, Stack, Started
from .pair import Pair

X = ((2, 5, 3),)
INNER, LAYERS, CELL = ("", "/inner"), ("", "/rnn_<layer>"), (".cell", "/inner")
LSTM, GRU, RNN = (partial(each, 4, return_sequences=True) for each in (layers.LSTM, layers.GRU, layers.SimpleRNN))
BACKWARDS = {"backwards": {"go_backwards": True}}
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


PAIRS = (
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
    Pair("bidirectional_gru, time first", "bidirectional_gru",
         torch_rnn("GRU", bidirectional=True, batch_first=False), partial(both, GRU), ((5, 2, 3),),
         {"the batch taken for time": {"axes": "..."}}, "t b c -> b t c"),
    Pair("bidirectional_rnn", "bidirectional_rnn", torch_rnn("RNN", bidirectional=True), partial(both, RNN), X,
         {"relu": {"activation": "relu"}}),
    Pair("bidirectional_lstm, two layers", "bidirectional_lstm",
         torch_rnn("LSTM", bidirectional=True, num_layers=2), partial(Stack, partial(both, LSTM), 2), X, GATES,
         at=LAYERS),
    Pair("lstm_cell", "lstm_cell", lambda: PairOf(nn.LSTMCell(3, 4), 2), partial(Cell, partial(layers.LSTMCell, 4), 2),
         ((2, 3),), GATES, at=CELL),
    Pair("gru_cell", "gru_cell", lambda: PairOf(nn.GRUCell(3, 4), 1), partial(Cell, partial(layers.GRUCell, 4), 1),
         ((2, 3),), GATES, at=CELL),
    Pair("rnn_cell, relu", "rnn_cell", lambda: PairOf(nn.RNNCell(3, 4, nonlinearity="relu"), 1),
         partial(Cell, partial(layers.SimpleRNNCell, 4, activation="relu"), 1), ((2, 3),),
         {"tanh": {"activation": "tanh"}}, at=CELL, no_model="is all zeros in the batch of one"),
)  # fmt: skip
