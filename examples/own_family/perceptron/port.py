"""The Keras model."""

from __future__ import annotations

import keras
from keras import layers

from perceptron.config import Config


@keras.saving.register_keras_serializable("perceptron")
class Perceptron(keras.Model):
    """Maps x (B, inputs) to (B, outputs). ``config`` is a :class:`Config` or its ``to_dict()``."""

    def __init__(self, config, **kwargs):
        super().__init__(**{"name": "perceptron", **kwargs})
        self.config = config if isinstance(config, Config) else Config.from_dict(config)
        given = {"dtype": self.dtype_policy}  # layers do not take it from the model
        self.hidden = layers.Dense(self.config.hidden, name="hidden", **given)
        self.act = layers.Activation(self.config.activation, name="act", **given)
        self.out = layers.Dense(self.config.outputs, name="out", **given)
        self.hidden.build((None, self.config.inputs))
        self.out.build((None, self.config.hidden))
        self.built = True

    def call(self, x):
        return self.out(self.act(self.hidden(x)))

    def compute_output_shape(self, shape):
        return (shape[0], self.config.outputs)

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype_policy.name, "config": self.config.to_dict()}
