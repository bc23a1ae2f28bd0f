"""The Siamese network: a nested functional model and a Dense layer, each called more than once."""

import keras
from keras import layers, ops


def encoder():
    image = x = keras.Input((16, 16, 1))
    for _ in range(2):
        x = layers.Conv2D(6, 3, strides=2, activation="relu")(layers.ZeroPadding2D(1)(x))
    return keras.Model(image, layers.Dense(12, name="fc")(layers.Flatten()(x)), name="encoder")


def build():
    a, b = keras.Input((16, 16, 1)), keras.Input((16, 16, 1))
    encode, step = encoder(), layers.Dense(12, activation="tanh", name="step")
    x = ops.abs(encode(a) - encode(b))
    for _ in range(3):
        x = step(x)
    return keras.Model([a, b], layers.Dense(1, name="score")(x))
