"""CREPE with one-dimensional convolutions and the names that Keras gives: conv1d, conv1d_1, ..."""

import keras
from keras import layers


def build():
    sound = keras.Input((512,))
    x = layers.Reshape((512, 1))(sound)
    for n, width in enumerate([16, 4, 4, 4, 8, 16]):
        x = layers.ZeroPadding1D((7, 8) if n else 30)(x)
        x = layers.Conv1D(width, 16 if n else 64, strides=1 if n else 4, activation="relu")(x)
        x = layers.BatchNormalization(epsilon=0.0010000000474974513)(x)
        x = layers.MaxPooling1D(2)(x)
    return keras.Model(sound, layers.Dense(24, activation="sigmoid", name="classifier")(layers.Flatten()(x)))
