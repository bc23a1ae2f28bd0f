"""The classifier of texts in Keras, a sequential model."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers


def build() -> Any:
    return keras.Sequential([
        keras.Input((7,), dtype="int32"),
        layers.Embedding(30, 8, name="embed"),
        layers.Bidirectional(layers.GRU(6, return_sequences=True), name="gru"),
        layers.GlobalAveragePooling1D(),
        layers.LayerNormalization(epsilon=1e-5, name="norm"),
        layers.Dense(3, name="head"),
    ])  # fmt: skip
