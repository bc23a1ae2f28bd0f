"""The residual network with functions that add layers, all named by Keras; the shortcut is made first."""

import keras
from keras import layers


def conv(x, width, size, stride=1):
    if size > 1:
        x = layers.ZeroPadding2D(size // 2)(x)
    x = layers.Conv2D(width, size, strides=stride, use_bias=False)(x)
    return layers.BatchNormalization(epsilon=1e-5, momentum=0.9)(x)


def block(x, width, stride):
    same = conv(x, width, 1, stride) if stride != 1 or x.shape[-1] != width else x
    x = layers.ReLU()(conv(x, width, 3, stride))
    x = conv(x, width, 3)
    return layers.ReLU()(layers.Add()([x, same]))


def build():
    image = keras.Input((32, 32, 3))
    x = layers.ReLU()(conv(image, 8, 7, 2))
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for width, stride in [(8, 1), (8, 1), (16, 2), (16, 1), (16, 2), (16, 1)]:
        x = block(x, width, stride)
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
