"""The encoder and decoder, functional, with a dictionary of outputs; 4 rows, 4 columns and 4 channels."""

import keras
from keras import layers


def build():
    image = x = keras.Input((16, 16, 1))
    for n in (1, 2):
        x = layers.Conv2D(4, 4, strides=2, name=f"conv{n}")(layers.ZeroPadding2D(1)(x))
        x = layers.LeakyReLU(negative_slope=0.2, name=f"leaky{n}")(x)
    x = layers.Flatten(name="flat")(x)
    logvar = layers.Dense(6, name="log_variance")(x)
    mean = layers.Dense(6, name="mu")(x)
    x = layers.Dense(64, activation="relu", name="expand")(mean)
    x = layers.Reshape((4, 4, 4), name="grid")(x)
    x = layers.Conv2DTranspose(4, 4, strides=2, padding="same", name="up1")(x)
    x = layers.ReLU(name="relu")(layers.BatchNormalization(epsilon=1e-5, name="norm")(x))
    x = layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid", name="up2")(x)
    return keras.Model(image, {"mean": mean, "logvar": logvar, "image": x})
