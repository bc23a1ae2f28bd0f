"""The vision transformer with one Dense layer each for query, key and value."""

import keras
from keras import layers, ops

WIDTH, HEADS = 16, 4


class Attention(layers.Layer):
    """Self-attention with projections of its own."""

    def __init__(self, **given):
        super().__init__(**given)
        self.query, self.key, self.value, self.out = (layers.Dense(WIDTH) for _ in range(4))

    def call(self, x):
        def heads(y):
            return ops.reshape(y, (-1, x.shape[1], HEADS, WIDTH // HEADS))

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        weights = ops.softmax(ops.einsum("bqhd,bkhd->bhqk", q, k) * (WIDTH // HEADS) ** -0.5, axis=-1)
        return self.out(ops.reshape(ops.einsum("bhqk,bkhd->bqhd", weights, v), (-1, x.shape[1], WIDTH)))


class Scale(layers.Layer):
    """One factor per feature."""

    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), name="gamma")

    def call(self, x):
        return x * self.gamma


class Block(layers.Layer):
    def __init__(self, **given):
        super().__init__(**given)
        self.norm1, self.norm2 = layers.LayerNormalization(epsilon=1e-6), layers.LayerNormalization(epsilon=1e-6)
        self.attention, self.scale1, self.scale2 = Attention(), Scale(), Scale()
        self.hidden, self.out = layers.Dense(2 * WIDTH), layers.Dense(WIDTH)

    def call(self, x):
        x = x + self.scale1(self.attention(self.norm1(x)))
        hidden = keras.activations.gelu(self.hidden(self.norm2(x)), approximate=False)
        return x + self.scale2(self.out(hidden))


class ViT(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.patch = layers.Conv2D(WIDTH, 4, strides=4)
        self.blocks = [Block() for _ in range(2)]
        self.norm = layers.LayerNormalization(epsilon=1e-6)
        self.head = layers.Dense(6)

    def build(self, shape):
        self.cls = self.add_weight(shape=(1, 1, WIDTH), name="cls")
        self.positions = self.add_weight(shape=(17, WIDTH), name="positions")
        self.temperature = self.add_weight(shape=(), name="temperature")

    def call(self, image):
        x = ops.reshape(self.patch(image), (-1, 16, WIDTH))
        x = ops.concatenate([ops.tile(self.cls, (ops.shape(x)[0], 1, 1)), x], axis=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0]) * self.temperature


def build():
    return ViT()
