"""The detector as a subclassed model; its last convolution, of window one, is a Dense layer."""

import keras
from keras import layers, ops


class Silero(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.transform = layers.Conv1D(66, 64, strides=32, use_bias=False)
        self.encoder = [
            layers.Conv1D(width, 3, strides=stride, activation="relu")
            for width, stride in [(16, 1), (12, 2), (12, 2), (16, 1)]
        ]
        self.cell = layers.LSTMCell(16)
        self.decoder = layers.Dense(1)

    def call(self, x):
        x = self.transform(ops.pad(x, [[0, 0], [0, 16]], mode="reflect")[..., None])
        x = ops.sqrt(x[..., :33] ** 2 + x[..., 33:] ** 2)
        for conv in self.encoder:
            x = conv(ops.pad(x, [[0, 0], [1, 1], [0, 0]]))
        zero = ops.zeros_like(x[:, 0])
        h, (_, c) = self.cell(x[:, 0], [zero, zero])
        return ops.sigmoid(self.decoder(ops.relu(h))), ops.stack([h, c])


def build():
    return Silero()
