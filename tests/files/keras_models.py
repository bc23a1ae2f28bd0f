"""Files that Keras writes, to compare readers on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras


class Odd(keras.layers.Layer):
    """Variables as no common layer has them."""

    def build(self, shape: object) -> None:
        self.scalar = self.add_weight(shape=(), initializer="ones")
        self.empty = self.add_weight(shape=(0, 3))
        self.bytes = self.add_weight(shape=(3,), dtype="int8", initializer="zeros", trainable=False)
        self.flags = self.add_weight(shape=(3, 2), dtype="bool", initializer="zeros", trainable=False)
        self.halves = self.add_weight(shape=(3, 2), dtype="bfloat16")
        self.inner = [keras.layers.Dense(2) for _ in range(12)]
        for layer in self.inner:
            layer.build((None, 3))

    def call(self, inputs: Any) -> Any:
        return inputs * self.scalar


def save_models(folder: Path) -> list[Path]:
    """Files that Keras writes: common layers, odd ones, an optimizer, quantized and half-precision weights."""
    made: list[Path] = []
    for name, model in _models().items():
        for ending in (".keras", ".weights.h5"):
            made.append(folder / f"{name}{ending}")
            (model.save if ending == ".keras" else model.save_weights)(made[-1])
    return made


def _models() -> dict[str, keras.Model]:
    layers = keras.layers
    series = keras.Input((8, 4))
    hidden = layers.LSTM(5, return_sequences=True)(layers.Conv1D(4, 3, padding="same")(series))
    hidden = layers.BatchNormalization()(layers.MultiHeadAttention(2, 3)(hidden, hidden))
    trained = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="größe"), layers.Dropout(0.1)])
    trained.compile("adam", "mse")
    trained.optimizer.build(trained.trainable_variables)
    small = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    small.layers[0].quantize("int8")
    half = keras.Sequential([keras.Input((4,)), layers.Dense(3, dtype="bfloat16"), layers.Dense(3, dtype="float16")])
    return {
        "series": keras.Model(series, hidden),
        "trained": trained,
        "quantized": small,
        "half": half,
        "odd": keras.Sequential([keras.Input((4,)), Odd()]),
    }
