"""Depthwise blocks as layers of a subclassed model; convolutions of window one are Dense layers."""

import keras
from keras import layers, ops


class ConvNorm(layers.Layer):
    """A layer, its norm, an activation."""

    def __init__(self, inner, activation=None, pad=0, **given):
        super().__init__(**given)
        self.inner, self.pad = inner, pad
        self.norm = layers.BatchNormalization(epsilon=1e-5)
        self.activation = activation

    def call(self, x):
        if self.pad:
            x = ops.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        x = self.norm(self.inner(x))
        return self.activation(x) if self.activation else x


class Inverted(layers.Layer):
    """Expand, depthwise, squeeze, project."""

    def __init__(self, before, width, stride, **given):
        super().__init__(**given)
        self.residual = stride == 1 and before == width
        self.expand = ConvNorm(layers.Dense(2 * before, use_bias=False), ops.relu6)
        self.depthwise = ConvNorm(layers.DepthwiseConv2D(3, strides=stride, use_bias=False), ops.relu6, 1)
        self.squeeze = [layers.Dense(4, activation="relu"), layers.Dense(2 * before, activation="hard_sigmoid")]
        self.project = ConvNorm(layers.Dense(width, use_bias=False))

    def call(self, x):
        out = self.depthwise(self.expand(x))
        scale = ops.mean(out, axis=(1, 2), keepdims=True)
        for layer in self.squeeze:
            scale = layer(scale)
        out = self.project(out * scale)
        return x + out if self.residual else out


class MobileNet(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.stem = ConvNorm(layers.Conv2D(8, 3, strides=2, use_bias=False), keras.activations.hard_swish, 1)
        self.blocks = [Inverted(*each) for each in [(8, 8, 1), (8, 8, 2), (8, 8, 1), (8, 12, 2)]]
        self.pool = layers.GlobalAveragePooling2D()
        self.head = layers.Dense(5)

    def call(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.pool(x))


def build():
    return MobileNet()
