"""The encoder in Keras, a functional model in either order of axes."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

ORDER = "channels_last"


def conv(width: int, name: str, x: Any) -> Any:
    x = layers.ZeroPadding2D(1, data_format=ORDER)(x)
    return layers.Conv2D(width, 4, 2, data_format=ORDER, name=name)(x)


def build() -> Any:
    image = keras.Input((12, 8, 3) if ORDER == "channels_last" else (3, 12, 8))
    x = layers.LeakyReLU(negative_slope=0.2)(conv(8, "conv1", image))
    x = layers.GroupNormalization(2, axis=-1 if ORDER == "channels_last" else 1, epsilon=1e-5, name="norm")(
        conv(6, "conv2", x)
    )
    x = layers.Flatten(data_format="channels_last")(layers.LeakyReLU(negative_slope=0.2)(x))
    x = layers.Dense(10, activation="tanh", name="hidden")(x)
    mean, logvar = layers.Dense(4, name="mean")(x), layers.Dense(4, name="logvar")(x)
    return keras.Model(image, {"mean": mean, "logvar": ops.clip(logvar, -1.0, 1.0)})
