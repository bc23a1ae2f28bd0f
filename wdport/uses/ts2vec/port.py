"""TS2Vec's encoder in Keras 3: maps a series (B, T, F) to its representation (B, T, D) and its embedding (B, D).

The readable source of truth. Every layer named in `mappings/ts2vec.yaml` is a Keras layer whose output can be
recorded and whose inputs can be fed, eager or under jit. Source: arXiv 2106.10466.
"""

from __future__ import annotations

import jax.numpy as jnp
import keras
from keras import layers

from wdport.families.ported_model import PortedModel
from wdport.models.interface import KerasLayer
from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.activations import gelu
from wdport.nets.composed import Composed, Shape
from wdport.uses.ts2vec.config import Config

DROPOUT = 0.1
"""The public code's rate, which is not a setting there. Inference does not use it."""


class Around(Composed):
    """A single layer that the public code wraps in a module, so that both are compared."""

    def __init__(self, inner: KerasLayer, *shapes: Shape, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._name_inside = inner.name
        self.add(inner, *shapes)

    def call(self, x: Tensor) -> Tensor:
        return getattr(self, self._name_inside)(x)


class Block(Composed):
    """(B, T, C) -> (B, T, C'): GELU and a dilated convolution, twice, added to the input or to its projection."""

    def __init__(self, channels: tuple[int, int], kernel: int, dilation: int, last: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        before, after = ((None, None, width) for width in channels)
        self.projector = None
        if last or before != after:
            # The public code projects in its last block whatever the widths are.
            self.add(layers.Conv1D(channels[1], 1, name="projector"), before)
        # "same" is symmetric for an odd kernel and a stride of 1, as the public code's explicit padding is.
        for name, shape in (("conv1", before), ("conv2", after)):
            convolution = layers.Conv1D(channels[1], kernel, padding="same", dilation_rate=dilation, name="conv")
            self.add(Around(convolution, shape, name=name))
        self.gelu1 = layers.Activation(gelu, name="gelu1")
        self.gelu2 = layers.Activation(gelu, name="gelu2")

    def call(self, x: Tensor) -> Tensor:
        shortcut = x if self.projector is None else self.projector(x)
        return self.conv2(self.gelu2(self.conv1(self.gelu1(x)))) + shortcut


class Blocks(Composed):
    """(B, T, H) -> (B, T, D): all blocks, the last one wider."""

    def __init__(self, config: Config, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.config = config
        for i, (before, after, dilation) in enumerate(config.blocks):
            self.add(Block((before, after), config.kernel_size, dilation, i == config.depth, name=f"block_{i}"))

    def call(self, x: Tensor) -> Tensor:
        for i in range(self.config.depth + 1):
            x = getattr(self, f"block_{i}")(x)
        return x


@keras.saving.register_keras_serializable("wdport")
class TS2Vec(PortedModel):
    """The encoder: ``representation, embedding = model(series)``.

    Args:
        config: a :class:`Config` or its :meth:`Config.to_dict`.

    Input: series (B, T, F) of any length, normalised as in training. A step with NaN in any feature is missing: it
    enters the first block as zeros, without the bias of ``input_fc``. Outputs: the representation (B, T, D), and the
    embedding (B, D), its maximum over all steps, missing ones included, both in the compute dtype.

    The random masks of training are not part of the model.
    """

    configuration, family = Config, "ts2vec"

    def create(self, config: Config) -> None:
        self.add(layers.Dense(config.hidden_dims, name="input_fc"), (None, None, config.input_dims))
        self.add(Around(Blocks(config, name="net"), name="feature_extractor"))
        # Without effect in inference, but a tap: the table aligns it with the public code's module.
        self.repr_dropout = layers.Dropout(DROPOUT, name="repr_dropout")
        self.pool = layers.GlobalMaxPooling1D(name="pool")

    def call(self, series: Tensor, training: bool | None = None) -> tuple[Tensor, Tensor]:
        missing = jnp.any(jnp.isnan(series), axis=-1, keepdims=True)
        # NaN times zero is NaN: a missing value has to be replaced before the product.
        x = self.input_fc(jnp.where(missing, 0, series))
        x = self.feature_extractor(jnp.where(missing, 0, x))
        representation = self.repr_dropout(x, training=training)
        return representation, self.pool(representation)

    def compute_output_shape(self, series_shape: tuple[int | None, ...]) -> tuple[tuple[int | None, ...], ...]:
        width = self.config.output_dims
        return (*series_shape[:2], width), (series_shape[0], width)
