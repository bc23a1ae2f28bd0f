"""The vocoder with plain weights, layers named by Keras."""

import keras
from keras import layers, ops


class Residual(layers.Layer):
    """Two dilated convolutions and two plain ones, in turn."""

    def __init__(self, **given):
        super().__init__(**given)
        self.convs = [layers.Conv1D(8, 3, padding="same", dilation_rate=rate) for rate in (1, 1, 3, 1)]

    def call(self, x):
        for first, second in zip(self.convs[::2], self.convs[1::2], strict=True):
            h = first(ops.leaky_relu(x, 0.1))
            x = x + second(ops.leaky_relu(h, 0.1))
        return x


def build():
    mel = keras.Input((None, 10))
    x = layers.Conv1D(8, 7, padding="same")(mel)
    x = layers.LeakyReLU(0.1)(x)
    x = layers.Conv1DTranspose(8, 4, strides=2, padding="same")(x)
    x = Residual(name="residual")(x)
    gate = layers.Dense(8, activation="sigmoid")(x)
    value = layers.Dense(8, activation="tanh")(x)
    x = layers.LeakyReLU(0.01)(layers.Multiply()([gate, value]))
    return keras.Model(mel, layers.Conv1D(1, 7, padding="same", activation="tanh")(x))
