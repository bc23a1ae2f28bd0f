"""The output network of MTCNN, functional, channels last."""

import keras
from keras import layers


def build():
    image = keras.Input((48, 48, 3))
    x = image
    for n, (width, pool, padding) in enumerate([(8, 3, "same"), (12, 3, "valid"), (12, 2, "valid")], 1):
        x = layers.PReLU(shared_axes=[1, 2], name=f"prelu{n}")(layers.Conv2D(width, 3, name=f"conv{n}")(x))
        x = layers.MaxPooling2D(pool, 2, padding=padding, name=f"pool{n}")(x)
    x = layers.PReLU(shared_axes=[1, 2], name="prelu4")(layers.Conv2D(16, 2, name="conv4")(x))
    x = layers.PReLU(name="prelu5")(layers.Dense(32, name="dense5")(layers.Flatten()(x)))
    face, box, marks = (layers.Dense(size, name=f"dense6_{n}")(x) for n, size in enumerate([2, 4, 10], 1))
    return keras.Model(image, [box, marks, layers.Softmax(name="softmax6_1")(face)])
