"""Layers of a language model that see one token at a time: the embedding, the head, the gated network in between."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from keras import activations, layers, ops

from wdport.model import KerasTensor as Tensor
from wdport.model import KerasVariable

Activation = Callable[[Tensor], Tensor]


class TokenEmbedding(layers.Embedding):
    """Tokens (B, N) -> (B, N, C). The row of the token ``padding_idx`` is looked up like any other, but gets no
    gradient, as in ``torch.nn.Embedding``."""

    def __init__(self, tokens: int, channels: int, padding_idx: int | None = None, **kwargs: object) -> None:
        super().__init__(tokens, channels, **kwargs)
        self.padding_idx = padding_idx

    def call(self, inputs: Tensor) -> Tensor:
        embedded = super().call(inputs)
        if self.padding_idx is None:
            return embedded
        return jnp.where((inputs == self.padding_idx)[..., None], lax.stop_gradient(embedded), embedded)


class TiedHead(layers.Layer):
    """(B, N, C) -> logits (B, N, T) by the ``table`` (T, C) of an embedding, which has the variable, and a bias of its
    own."""

    def __init__(self, units: int, table: Callable[[], KerasVariable], use_bias: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.units, self.table, self.use_bias = units, table, use_bias

    def build(self, _: object = None) -> None:
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros") if self.use_bias else None
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        table = ops.cast(self.table(), inputs.dtype)
        logits = inputs @ jnp.swapaxes(table, 0, 1)
        return logits if self.bias is None else logits + self.bias


class GatedMlp(layers.Layer):
    """(B, N, C) -> (B, N, C): ``down(act(gate(x)) * up(x))`` with ``width`` features; SwiGLU if the activation is
    SiLU."""

    def __init__(
        self, channels: int, width: int, activation: str | Activation, use_bias: bool, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.channels, self.width = channels, width
        self.gate = layers.Dense(width, use_bias=use_bias, name="gate")
        self.act = layers.Activation(activations.get(activation), name="act")
        self.up = layers.Dense(width, use_bias=use_bias, name="up")
        self.down = layers.Dense(channels, use_bias=use_bias, name="down")

    def build(self, _: object = None) -> None:
        self.gate.build((None, None, self.channels))
        self.up.build((None, None, self.channels))
        self.down.build((None, None, self.width))
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))
