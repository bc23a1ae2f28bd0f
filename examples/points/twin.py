"""The same network in Keras."""

import keras
from keras import layers


def build() -> keras.Model:
    point, time = keras.Input((2,), name="x"), keras.Input((), name="t")
    hidden = layers.Concatenate()([point, layers.Reshape((1,))(time)])
    for number in (0, 2, 4):
        hidden = layers.Dense(64, name=f"net_{number}")(hidden)
        hidden = layers.Activation("selu", name=f"net_{number + 1}")(hidden)
    return keras.Model([point, time], layers.Dense(2, name="net_6")(hidden))
