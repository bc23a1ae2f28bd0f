"""The three networks in Keras, channels last, as somebody would write them who reads the packages' code."""

import keras
from keras import layers, ops


def onet():
    image = keras.Input((48, 48, 3))
    x = image
    for n, (width, pool, padding) in enumerate([(32, 3, "same"), (64, 3, "valid"), (64, 2, "valid")], 1):
        x = layers.PReLU(shared_axes=[1, 2], name=f"prelu{n}")(layers.Conv2D(width, 3, name=f"conv{n}")(x))
        x = layers.MaxPooling2D(pool, 2, padding=padding, name=f"pool{n}")(x)
    x = layers.PReLU(shared_axes=[1, 2], name="prelu4")(layers.Conv2D(128, 2, name="conv4")(x))
    x = layers.PReLU(name="prelu5")(layers.Dense(256, name="dense5")(layers.Flatten()(x)))
    face, box, marks = (layers.Dense(size, name=f"dense6_{n}")(x) for n, size in enumerate([2, 4, 10], 1))
    return keras.Model(image, [box, marks, layers.Softmax(name="softmax6_1")(face)])


def crepe():
    sound = keras.Input((1024,))
    x = layers.Reshape((1024, 1))(sound)
    for n, width in enumerate([128, 16, 16, 16, 32, 64], 1):
        x = layers.ZeroPadding1D((31, 32) if n > 1 else 254)(x)
        conv = layers.Conv1D(width, 64 if n > 1 else 512, strides=1 if n > 1 else 4, activation="relu", name=f"conv{n}")
        x = layers.BatchNormalization(epsilon=0.0010000000474974513, name=f"bn{n}")(conv(x))
        x = layers.MaxPooling1D(2, name=f"pool{n}")(x)
    return keras.Model(sound, layers.Dense(360, activation="sigmoid", name="classifier")(layers.Flatten()(x)))


class Unit(layers.Layer):
    """Vectors of length one."""

    def call(self, x):
        return x / ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True))


def resemblyzer():
    mels = x = keras.Input((None, 40))
    for n in range(3):
        x = layers.LSTM(256, return_sequences=True, name=f"lstm_{n}")(x)
    return keras.Model(mels, Unit()(layers.Dense(256, activation="relu", name="linear")(x[:, -1])))
