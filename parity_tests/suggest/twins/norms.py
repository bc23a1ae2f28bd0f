"""The same norms, functional; images of 6 rows and 6 columns are flattened after pooling to 3 x 3 x 8."""

import keras
from keras import layers


def build():
    image = keras.Input((8, 8, 2))
    x = layers.Conv2D(8, 3, groups=2, name="conv1")(image)
    x = layers.ReLU()(layers.GroupNormalization(4, epsilon=1e-4, name="group1")(x))
    x = layers.ZeroPadding2D(2)(x)
    x = layers.Conv2D(8, 3, groups=4, dilation_rate=2, name="conv2")(x)
    x = layers.ReLU()(layers.GroupNormalization(2, epsilon=1e-4, name="group2")(x))
    x = layers.Flatten(name="flat")(layers.AveragePooling2D(2, name="pool")(x))
    x = layers.BatchNormalization(epsilon=1e-5, name="flat_norm")(x)
    x = layers.RMSNormalization(epsilon=1e-5, name="rms1")(layers.Dense(10, name="fc1")(x))
    x = layers.Activation("mish", name="mish")(x)
    x = layers.RMSNormalization(epsilon=1e-5, name="rms2")(layers.Dense(10, name="fc2")(x))
    x = layers.Activation("selu", name="selu")(x)
    x = layers.Dense(4, name="fc3")(x)
    return keras.Model(image, layers.LayerNormalization(epsilon=1e-5, center=False, scale=False, name="plain")(x))
