"""AttaCut's network: functional, each convolution with its norm a Sequential model inside."""

import keras
from keras import layers


def branch(n, size, dilation):
    conv = layers.Conv1D(16, size, dilation_rate=dilation, padding="same", name="conv")
    norm = layers.BatchNormalization(epsilon=1e-5, name="bn")
    return keras.Sequential([conv, norm], name=f"conv{n}")


def build():
    ids = keras.Input((2, 24), dtype="int32")
    characters = layers.Embedding(30, 8, name="ch_embeddings")(ids[:, 0])
    syllables = layers.Embedding(30, 8, name="sy_embeddings")(ids[:, 1])
    x = layers.Concatenate()([characters, syllables])
    x = layers.Maximum()([branch(n, *each)(x) for n, each in enumerate([(3, 1), (5, 3), (9, 2)], 1)])
    x = layers.Dense(1, name="linear2")(layers.Dense(16, activation="relu", name="linear1")(x))
    return keras.Model(ids, layers.Reshape((24,))(x))
