"""TS2Vec's encoder in Keras 3: maps a series (B, T, F) to its representation (B, T, D) and its embedding (B, D).

The readable source of truth. Every layer named in `mappings/ts2vec.yaml` is a Keras layer whose output can be
recorded and whose inputs can be fed, eager or under jit. Source: arXiv 2106.10466.
"""

from __future__ import annotations

import jax.numpy as jnp
import keras
from keras import layers

from wdport.families.ts2vec.config import Config
from wdport.keras_runtime import layer_dtype, require_backend
from wdport.model import KerasLayer
from wdport.model import KerasTensor as Tensor

DROPOUT = 0.1
"""The public code's rate, which is not a setting there. Inference does not use it."""


class Around(layers.Layer):
    """A single layer that the public code wraps in a module, so that both are compared."""

    def __init__(self, inner: KerasLayer, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._name_inside = inner.name
        setattr(self, inner.name, inner)

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        getattr(self, self._name_inside).build(x_shape)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        return getattr(self, self._name_inside)(x)


class Block(layers.Layer):
    """(B, T, C) -> (B, T, C'): GELU and a dilated convolution, twice, added to the input or to its projection."""

    def __init__(self, channels: tuple[int, int], kernel: int, dilation: int, last: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.channels = channels
        self.projector = None
        if last or channels[0] != channels[1]:
            # The public code projects in its last block whatever the widths are.
            self.projector = layers.Conv1D(channels[1], 1, name="projector")
        # "same" is symmetric for an odd kernel and a stride of 1, as the public code's explicit padding is.
        for name in ("conv1", "conv2"):
            convolution = layers.Conv1D(channels[1], kernel, padding="same", dilation_rate=dilation, name="conv")
            setattr(self, name, Around(convolution, name=name))
        self.gelu1 = layers.Activation("gelu", name="gelu1")  # by the error function, as PyTorch's
        self.gelu2 = layers.Activation("gelu", name="gelu2")

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        before, after = ((*x_shape[:2], channels) for channels in self.channels)
        if self.projector is not None:
            self.projector.build(before)
        self.conv1.build(before)
        self.conv2.build(after)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        shortcut = x if self.projector is None else self.projector(x)
        return self.conv2(self.gelu2(self.conv1(self.gelu1(x)))) + shortcut


class Blocks(layers.Layer):
    """(B, T, H) -> (B, T, D): all blocks, the last one wider."""

    def __init__(self, config: Config, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.config = config
        for i, (before, after, dilation) in enumerate(config.blocks):
            block = Block((before, after), config.kernel_size, dilation, i == config.depth, name=f"block_{i}")
            setattr(self, f"block_{i}", block)

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        for i in range(self.config.depth + 1):
            getattr(self, f"block_{i}").build(x_shape)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        for i in range(self.config.depth + 1):
            x = getattr(self, f"block_{i}")(x)
        return x


@keras.saving.register_keras_serializable("wdport")
class TS2Vec(keras.Model):
    """The encoder: ``representation, embedding = model(series)``.

    Args:
        config: a :class:`Config` or its :meth:`Config.to_dict`; fixes every shape, so the model has all its variables
            from the start.

    Input: series (B, T, F) of any length, normalised as in training. A step with NaN in any feature is missing: it
    enters the first block as zeros, without the bias of ``input_fc``. Outputs: the representation (B, T, D), and the
    embedding (B, D), its maximum over all steps, missing ones included, both in the compute dtype.

    The random masks of training are not part of the model.
    """

    def __init__(self, config: Config | dict[str, object], **kwargs: object) -> None:
        kwargs = {"name": "ts2vec", **kwargs, "autocast": False}
        super().__init__(**kwargs)
        require_backend(self.variable_dtype)
        self.config = config if isinstance(config, Config) else Config.from_dict(config)
        with layer_dtype(self.dtype_policy):
            self._create()
        self._build_all()

    def _create(self) -> None:
        config = self.config
        self.input_fc = layers.Dense(config.hidden_dims, name="input_fc")
        self.feature_extractor = Around(Blocks(config, name="net"), name="feature_extractor")
        # Without effect in inference, but a tap: the table aligns it with the public code's module.
        self.repr_dropout = layers.Dropout(DROPOUT, name="repr_dropout")
        self.pool = layers.GlobalMaxPooling1D(name="pool")

    def _build_all(self) -> None:
        self.input_fc.build((None, None, self.config.input_dims))
        self.feature_extractor.build((None, None, self.config.hidden_dims))
        self.built = True

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

    def __dir__(self) -> list[str]:
        # Keras stores a layer under the first attribute that refers to it, in the order of dir(). Its own
        # generic `layers` would come before `pool`; without it the file has our structural paths.
        return [name for name in super().__dir__() if name != "layers"]

    def get_config(self) -> dict[str, object]:
        return {"name": self.name, "dtype": self.dtype_policy.name, "config": self.config.to_dict()}
