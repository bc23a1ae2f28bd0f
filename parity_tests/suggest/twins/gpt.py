"""GPT-2 with layers of the porter's own, a fused Dense for queries, keys and values, a tied head in one layer."""

import keras
from keras import layers, ops

WIDTH, HEADS = 12, 3


class Norm(layers.Layer):
    """Root mean square norm with an offset of one."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="scale")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-5) * (1 + self.scale)


class Block(layers.Layer):
    def __init__(self, **given):
        super().__init__(**given)
        self.norms = {"attention": Norm(), "mlp": Norm()}
        self.qkv, self.proj = layers.Dense(3 * WIDTH), layers.Dense(WIDTH)
        self.mlp = [layers.Dense(WIDTH), layers.Dense(WIDTH)]

    def call(self, x):
        q, k, v = ops.split(self.qkv(self.norms["attention"](x)), 3, axis=-1)
        q, k, v = (ops.reshape(each, (-1, x.shape[1], HEADS, WIDTH // HEADS)) for each in (q, k, v))
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
        mask = ops.tril(ops.ones((x.shape[1], x.shape[1]), dtype="bool"))
        weights = ops.softmax(ops.where(mask, scores, -1e30), axis=-1)
        x = x + self.proj(ops.reshape(ops.einsum("bhqk,bkhd->bqhd", weights, v), (-1, x.shape[1], WIDTH)))
        hidden = ops.gelu(self.mlp[0](self.norms["mlp"](x)), approximate=True)
        return x + self.mlp[1](hidden)


class Tokens(layers.Layer):
    """The embedding, and the head that reads it."""

    def build(self, *_):
        self.table = self.add_weight(shape=(12, WIDTH), name="table")
        self.position = self.add_weight(shape=(12, WIDTH), name="position")

    def call(self, given, back=False):
        if back:
            return ops.matmul(given, ops.transpose(self.table))
        return ops.take(self.table, given, axis=0) + self.position[: given.shape[1]]


class Gpt(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.tokens = Tokens()
        self.blocks = [Block() for _ in range(2)]
        self.norm = Norm()

    def call(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.tokens(self.norm(x), back=True)


def build():
    return Gpt()
