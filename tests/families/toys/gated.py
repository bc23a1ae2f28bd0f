"""Recurrent toys and their twins, right and wrong: gates in the order of the other library, or of nobody's."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
from keras import layers, ops
from torch import Tensor, nn


class Recurrent(nn.Module):
    """One layer, or a stack of two, and a head."""

    def __init__(self, kind: str, count: int = 1) -> None:
        super().__init__()
        self.rnn = getattr(nn, kind)(5, 7, num_layers=count, batch_first=True)
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


class Stepped(nn.Module):
    """A cell that a loop calls."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell, self.head = getattr(nn, kind)(5, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        nothing = x.new_zeros(len(x), 7)
        state = (nothing, nothing) if isinstance(self.cell, nn.LSTMCell) else nothing
        for at in range(x.shape[1]):
            state = self.cell(x[:, at], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


gru, gru_stack, lstm = partial(Recurrent, "GRU"), partial(Recurrent, "GRU", 2), partial(Recurrent, "LSTM")
stepped_gru, stepped_lstm = partial(Stepped, "GRUCell"), partial(Stepped, "LSTMCell")


class TorchCell(layers.Layer):
    """A GRU's step of somebody's own, whose gates are r, z, n, as in PyTorch."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 21), name="kernel")
        self.recurrent_kernel = self.add_weight(shape=(7, 21), name="recurrent_kernel")
        self.bias = self.add_weight(shape=(2, 21), name="bias")

    def call(self, x: Any, state: Any) -> Any:
        given = ops.split(ops.matmul(x, self.kernel) + self.bias[0], 3, axis=-1)
        kept = ops.split(ops.matmul(state, self.recurrent_kernel) + self.bias[1], 3, axis=-1)
        reset, update = (ops.sigmoid(a + b) for a, b in zip(given[:2], kept[:2], strict=True))
        return (1 - update) * ops.tanh(given[2] + reset * kept[2]) + update * state


class TorchOrder(layers.Layer):
    def build(self, shape: Any) -> None:
        self.cell = TorchCell()
        self.cell.build((None, shape[-1]))

    def call(self, x: Any) -> Any:
        states = [ops.zeros_like(x[:, 0, :1]) * ops.ones((1, 7), dtype=x.dtype)]
        for at in range(x.shape[1]):
            states.append(self.cell(x[:, at], states[-1]))
        return ops.stack(states[1:], axis=1)


def _with_head(*parts: Any) -> Any:
    return keras.Sequential([keras.Input((6, 5)), *parts, layers.Dense(3, name="head")])


def _layer(kind: Any, **settings: Any) -> Any:
    return _with_head(kind(7, return_sequences=True, name="rnn", **settings))


def _cell(kind: Any, unroll: bool) -> Any:
    return _with_head(layers.RNN(kind(7, name="cell"), unroll=unroll, name="rnn"))


def own_gru() -> Any:
    return _with_head(TorchOrder(name="rnn"))


def gru_stack_fed_wrong() -> Any:
    stack = (layers.GRU(7, return_sequences=True, name=f"rnn_{n}") for n in range(2))
    return _with_head(layers.LeakyReLU(0.3), *stack)


def own_gru_stack() -> Any:
    return _with_head(layers.GRU(7, return_sequences=True, name="rnn_0"), TorchOrder(name="rnn_1"))


keras_gru, keras_lstm = partial(_layer, layers.GRU), partial(_layer, layers.LSTM)
before_gru = partial(_layer, layers.GRU, reset_after=False)
"""Keras's other GRU, which applies the reset gate before the matrix."""
scanned, unrolled_gru = partial(_cell, layers.GRUCell, False), partial(_cell, layers.GRUCell, True)
unrolled_lstm = partial(_cell, layers.LSTMCell, True)
