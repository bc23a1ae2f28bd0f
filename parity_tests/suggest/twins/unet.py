"""The U-Net, functional, every double convolution a nested functional model."""

import keras
from keras import layers


def double(before, width, name):
    given = keras.Input((None, None, before))
    x = given
    for part in "ab":
        x = layers.Conv2D(width, 3, padding="same", name=f"conv_{part}")(x)
        x = layers.GroupNormalization(2, epsilon=1e-5, name=f"norm_{part}")(x)
        x = layers.Activation("silu", name=f"act_{part}")(x)
    return keras.Model(given, x, name=name)


def down(x, name):
    return layers.Conv2D(8, 3, strides=2, name=name)(layers.ZeroPadding2D(1)(x))


def build():
    image = keras.Input((16, 16, 1))
    a = double(1, 8, "inc")(image)
    b = double(8, 8, "enc1")(down(a, "down1"))
    x = double(8, 8, "mid")(down(b, "down2"))
    x = layers.Conv2DTranspose(8, 4, strides=2, padding="same", name="up2")(x)
    x = double(16, 8, "dec2")(layers.Concatenate(name="skip2")([b, x]))
    x = layers.UpSampling2D(2, interpolation="nearest", name="nearest1")(x)
    x = layers.Conv2D(8, 3, padding="same", name="up1")(x)
    x = double(16, 8, "dec1")(layers.Concatenate(name="skip1")([a, x]))
    return keras.Model(image, layers.Conv2D(2, 1, name="outc")(x))
