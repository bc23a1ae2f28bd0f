"""The same recurrent layers, batch first, subclassed."""

import keras
from keras import layers, ops


class Speech(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.gru_0 = layers.GRU(8, return_sequences=True)
        self.gru_1 = layers.GRU(8, return_sequences=True)
        self.both = layers.Bidirectional(layers.GRU(4, return_sequences=True))
        self.plain = layers.SimpleRNN(8, return_sequences=True)
        self.cell = layers.GRUCell(8)
        self.classify = layers.Dense(3)

    def call(self, x):
        x = self.plain(self.both(self.gru_1(self.gru_0(x))))
        h = ops.zeros_like(x[:, 0])
        for step in (0, 1):
            h, _ = self.cell(x[:, step], [h])
        return self.classify(ops.concatenate([h, x[:, -1]], axis=1))


def build():
    return Speech()
