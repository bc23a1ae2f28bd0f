"""The same in Keras: group norms of one channel, depth to space by a reshape, two Dense layers for a style."""

import keras
from keras import layers, ops


def reflect(x, width):
    return ops.pad(x, [[0, 0], [width, width], [width, width], [0, 0]], mode="reflect")


class Residual(layers.Layer):
    def __init__(self, **given):
        super().__init__(**given)
        self.conv_a, self.conv_b = layers.Conv2D(8, 3), layers.Conv2D(8, 3)
        self.norm_a = layers.GroupNormalization(8, epsilon=1e-5)
        self.norm_b = layers.GroupNormalization(8, epsilon=1e-5, center=False, scale=False)
        self.to_beta, self.to_gamma = layers.Dense(8), layers.Dense(8)

    def call(self, x, code):
        out = ops.relu(self.norm_a(self.conv_a(reflect(x, 1))))
        gamma, beta = self.to_gamma(code)[:, None, None], self.to_beta(code)[:, None, None]
        return x + self.norm_b(self.conv_b(reflect(out, 1))) * (1 + gamma) + beta


class Style(keras.Model):
    def __init__(self, **given):
        super().__init__(**given)
        self.stem = layers.Conv2D(8, 5)
        self.residuals = [Residual(), Residual()]
        self.shuffle = layers.Conv2D(16, 3, padding="same")
        self.refine = layers.Conv2D(8, 3, padding="same", activation="elu")
        self.up = layers.UpSampling2D(2, interpolation="bilinear")
        self.image = layers.Conv2D(3, 1, activation="tanh")

    def call(self, image, code):
        x = ops.leaky_relu(self.stem(reflect(image, 2)), 0.1)
        for residual in self.residuals:
            x = residual(x, code)
        x = self.shuffle(x)
        side = x.shape[1]
        x = ops.transpose(ops.reshape(x, (-1, side, side, 2, 2, 4)), (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (-1, 2 * side, 2 * side, 4))
        return self.image(self.up(self.refine(x)))


def build():
    return Style()
