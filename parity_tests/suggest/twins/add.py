"""The two branches, made in a list, functional."""

import keras
from keras import layers


def build():
    x = given = keras.Input((6,))
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    made = []
    for _ in range(2):
        made.append(layers.Dense(6)(layers.Dense(10, activation="tanh")(x)))
    x = layers.ReLU(name="relu")(layers.Add(name="joined")(made))
    return keras.Model(given, layers.Dense(6, name="out")(x))
