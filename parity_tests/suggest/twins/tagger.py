"""The tagger as a Sequential model, all names Keras's own."""

import keras
from keras import layers, ops


def gelu_tanh(x):
    return ops.gelu(x, approximate=True)


def build():
    return keras.Sequential(
        [
            keras.Input((11,), dtype="int32"),
            layers.Embedding(20, 16),
            layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
            layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
            layers.LayerNormalization(epsilon=1e-5),
            layers.Dropout(0.1),
            layers.Dense(16, activation=gelu_tanh),
            layers.Dense(5),
        ]
    )
