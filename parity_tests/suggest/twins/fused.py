"""Three Dense layers for queries, keys and values, two for scale and shift, and one for both gates."""

import keras
from keras import layers, ops

WIDTH, HEADS = 12, 3


class Block(layers.Layer):
    def __init__(self, **given):
        super().__init__(**given)
        self.norm = layers.LayerNormalization(epsilon=1e-6, center=False, scale=False)
        self.scale, self.shift = layers.Dense(WIDTH), layers.Dense(WIDTH)
        self.query, self.key, self.value, self.proj = (layers.Dense(WIDTH) for _ in range(4))
        self.gate_up, self.down = layers.Dense(32), layers.Dense(WIDTH)

    def call(self, x, condition):
        c = ops.silu(condition)[:, None]
        h = self.norm(x) * (1 + self.scale(c)) + self.shift(c)
        q, k, v = (
            ops.reshape(p(h), (-1, x.shape[1], HEADS, WIDTH // HEADS)) for p in (self.query, self.key, self.value)
        )
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
        h = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores, axis=-1), v)
        x = x + self.proj(ops.reshape(h, (-1, x.shape[1], WIDTH)))
        gate, up = ops.split(self.gate_up(x), 2, axis=-1)
        return x + self.down(ops.sigmoid(gate) * up)


class Fused(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.embed, self.condition = layers.Dense(WIDTH), layers.Dense(WIDTH)
        self.blocks = [Block(), Block()]
        self.out = layers.Dense(4)

    def call(self, x, t):
        condition = self.condition(t[:, None])
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, condition)
        return self.out(x)


def build():
    return Fused()
