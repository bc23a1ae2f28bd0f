"""The two towers, functional, with keras.layers.MultiHeadAttention and a bilinear form of the porter's own."""

import keras
from keras import layers, ops


class Bilinear(layers.Layer):
    """a^T W b + bias."""

    def build(self, shapes):
        self.form = self.add_weight(shape=(shapes[0][-1], shapes[1][-1]), name="form")
        self.bias = self.add_weight(shape=(1,), name="bias")

    def call(self, given):
        a, b = given
        return ops.sum(ops.matmul(a, self.form) * b, axis=-1, keepdims=True) + self.bias


def build():
    image, words = keras.Input((16, 16, 3)), keras.Input((5,), dtype="int32")
    x = layers.Conv2D(8, 4, strides=4, activation="silu", name="patches")(image)
    x = layers.Dense(8, name="mix")(layers.Reshape((16, 8), name="tokens")(x))
    q = layers.Embedding(15, 12, name="words")(words)
    y = layers.MultiHeadAttention(2, 6, name="attend")(q, x)
    y = layers.LayerNormalization(epsilon=1e-5, name="norm")(layers.Add(name="sum")([q, y]))
    y = layers.GlobalAveragePooling1D(name="mean")(y)
    right = layers.UnitNormalization(name="unit_right")(layers.Dense(12, name="head_b")(y))
    left = layers.UnitNormalization(name="unit_left")(layers.Dense(12, name="head_a")(y))
    return keras.Model([image, words], ((left, right), Bilinear(name="similar")([left, right])))
