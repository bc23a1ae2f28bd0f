"""The square decoder with attention written out, its layers made in one flat list."""

import keras
from keras import layers, ops

WIDTH, HEADS = 16, 4


def split(x):
    return ops.transpose(ops.reshape(x, (-1, x.shape[1], HEADS, WIDTH // HEADS)), (0, 2, 1, 3))


def attend(q, k, v):
    q, k, v = split(q), split(k), split(v)
    scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / (WIDTH // HEADS) ** 0.5
    length = scores.shape[-1]
    allowed = ops.arange(length)[:, None] >= ops.arange(length)[None, :]
    weights = ops.softmax(ops.where(allowed, scores, -1e30), axis=-1)
    return ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (-1, length, WIDTH))


class Block(layers.Layer):
    """Seven square matrices and two norms."""

    def __init__(self, **given):
        super().__init__(**given)
        self.norms = [layers.RMSNormalization(epsilon=1e-6) for _ in range(2)]
        self.dense = [layers.Dense(WIDTH, use_bias=False) for _ in range(7)]

    def call(self, x):
        down, up, gate, out, value, key, query = self.dense
        h = self.norms[0](x)
        x = x + out(attend(query(h), key(h), value(h)))
        h = self.norms[1](x)
        return x + down(ops.silu(gate(h)) * up(h))


class Square(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.tokens, self.positions = layers.Embedding(WIDTH, WIDTH), layers.Embedding(WIDTH, WIDTH)
        self.blocks = [Block() for _ in range(3)]
        self.norm = layers.RMSNormalization(epsilon=1e-6)
        self.head = layers.Dense(WIDTH, use_bias=False)

    def call(self, ids):
        x = self.tokens(ids) + self.positions(ops.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build():
    return Square()
