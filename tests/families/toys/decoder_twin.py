"""The decoder in Keras, a subclassed model that is built by its first call."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops


class Attention(layers.Layer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = layers.Dense(width), layers.Dense(width, use_bias=False)
        self.value, self.out = layers.Dense(width), layers.Dense(width)

    def call(self, x: Any) -> Any:
        _, length, width = x.shape
        q, k, v = (
            ops.reshape(each(x), (-1, length, self.heads, width // self.heads))
            for each in (self.query, self.key, self.value)
        )
        scores = ops.einsum("bihd,bjhd->bhij", q, k) / (width // self.heads) ** 0.5
        scores = ops.where(ops.tril(ops.ones((length, length), "bool")), scores, -1e30)
        mixed = ops.einsum("bhij,bjhd->bihd", ops.softmax(scores, axis=-1), v)
        return self.out(ops.reshape(mixed, (-1, length, width)))


class Block(layers.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = layers.LayerNormalization(epsilon=1e-5), layers.LayerNormalization(epsilon=1e-5)
        self.attention = Attention(width, 4)
        self.up, self.down = layers.Dense(2 * width), layers.Dense(width)

    def call(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.down(keras.activations.gelu(self.up(self.norm2(x)), approximate=False))


class Decoder(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embed = layers.Embedding(40, 16)
        self.position = self.add_weight(shape=(8, 16), name="position")
        self.blocks, self.norm = [Block(16)], layers.LayerNormalization(epsilon=1e-5)

    def call(self, ids: Any) -> Any:
        x = self.embed(ids) + self.position
        for block in self.blocks:
            x = block(x)
        return ops.matmul(self.norm(x), ops.transpose(self.embed.embeddings))


def build() -> Any:
    return Decoder()
