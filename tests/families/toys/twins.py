"""The same models as somebody would write them in Keras."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import keras
from keras import layers, ops


def image(epsilon: float = 1e-5) -> Any:
    inputs = keras.Input((12, 12, 3))
    x = layers.Conv2D(8, 3, padding="same", name="conv1")(inputs)
    x = layers.ReLU()(layers.BatchNormalization(epsilon=epsilon, name="bn")(x))
    x = layers.MaxPooling2D(2, name="pool")(x)
    x = layers.PReLU(shared_axes=[1, 2], name="act")(layers.Conv2D(12, 3, name="conv2")(x))
    return keras.Model(inputs, layers.Dense(5, name="head")(layers.Flatten()(x)))


def unbiased() -> Any:
    """Its layers have biases, which PyTorch's lack."""
    inputs = keras.Input((6, 6, 3))
    x = layers.Conv2D(4, 3, bias_initializer="ones", name="conv")(inputs)
    x = layers.ReLU()(layers.BatchNormalization(epsilon=1e-5, name="bn")(x))
    return keras.Model(inputs, layers.Dense(5, name="head")(layers.GlobalAveragePooling2D()(x)))


class Words(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = layers.Embedding(50, 16), layers.LayerNormalization(epsilon=1e-5)
        self.mean, self.logvar = layers.Dense(4), layers.Dense(4)

    def call(self, ids: Any) -> Any:
        x = ops.mean(self.norm(self.embed(ids)), axis=1)
        return {"mean": self.mean(x), "logvar": self.logvar(x)}


class Shared(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.mix = layers.Dense(6)
        self.offset = self.add_weight(shape=(6,), name="offset")

    def call(self, x: Any, y: Any) -> Any:
        return self.mix(ops.tanh(self.mix(x)) + self.mix(y)) + self.offset


def gru() -> Any:
    return keras.Sequential([
        keras.Input((9, 5)),
        layers.GRU(7, return_sequences=True, name="gru_0"),
        layers.GRU(7, name="gru_1"),
        layers.Dense(3, name="head"),
    ])  # fmt: skip


def lstm(activation: str = "tanh") -> Any:
    inputs = keras.Input((9, 5))
    states = layers.LSTM(7, activation, return_sequences=True, name="lstm")(inputs)
    return keras.Model(inputs, layers.Dense(3, name="head")(states))


def lstm_reversed() -> Any:
    """Feeds its head the states in the other order, scaled, for which no cause is known."""
    inputs = keras.Input((9, 5))
    states = layers.LSTM(7, return_sequences=True, name="lstm")(inputs)
    return keras.Model(inputs, layers.Dense(3, name="head")(keras.ops.sin(1.3 * states[:, ::-1])))


def printing() -> Any:
    sys.stdout.write("built\n")
    return lstm()


class Block(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (layers.LayerNormalization(epsilon=1e-5) for _ in range(2))
        self.attention = layers.MultiHeadAttention(4, 4)
        self.hidden, self.out = layers.Dense(32), layers.Dense(16)

    def call(self, x: Any) -> Any:
        y = self.norm1(x)
        x = x + self.attention(y, y)
        return x + self.out(keras.activations.gelu(self.hidden(self.norm2(x)), approximate=False))


class Transformer(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.position = self.add_weight(shape=(1, 6, 16), name="position")
        self.inputs_, self.head = layers.Dense(16), layers.Dense(2)
        self.blocks = [Block() for _ in range(2)]

    def call(self, x: Any) -> Any:
        x = self.inputs_(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x)


words, shared, transformer = Words, Shared, Transformer
image_epsilon, lstm_relu = partial(image, 1e-3), partial(lstm, "relu")
