"""WaveletDiff in Keras 3: maps (coefficients (B, C, F), time (B,)) to the prediction (B, C, F).

The readable source of truth. Every layer named in `mappings/waveletdiff.yaml` is a Keras layer whose
output can be recorded and whose inputs can be fed, eager or under jit. Source: arXiv 2510.11839.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

from wdport.families.ported_model import PortedModel
from wdport.models.interface import KerasLayer
from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.activations import gelu
from wdport.nets.boundary import once
from wdport.nets.composed import Composed, Shape
from wdport.nets.dropout import Dropout
from wdport.uses.diffusion.schedules import STEPS, noise_schedule
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.initial import UnitRows, linear
from wdport.uses.waveletdiff.layers import (
    SCALE_GAIN,
    AdaptiveNorm,
    Attention,
    Mlp,
    Position,
    SinusoidEmbedding,
    Softmax,
)
from wdport.uses.waveletdiff.series import to_series
from wdport.uses.waveletdiff.variables import STEPS_PER_TIME


class NoiseSchedule(layers.Layer):
    """The checkpoint's own beta, alpha and alpha_bar, (1001,) each; at least float32 under any policy."""

    def __init__(self, schedule: str, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.schedule = schedule

    def build(self, _: object = None) -> None:
        dtype = "float64" if self.variable_dtype == "float64" else "float32"
        # Of a custom schedule only the shape is known here; conversion fills the values.
        start = noise_schedule("exponential" if self.schedule == "custom" else self.schedule)
        for name, values in start._asdict().items():
            fill = keras.initializers.Constant(values.astype(dtype))
            # Variables and not constants: the file's tables are the truth for sampling, recomputed ones differ by up to
            # 2.3e-4.
            setattr(self, name, self.add_weight(name=name, shape=(STEPS + 1,), dtype=dtype, initializer=fill,
                                                trainable=False, autocast=False))  # fmt: skip


class Block(Composed):
    """Pre-norm transformer block: tokens (B, L, D), time embedding (B, T) -> (B, L, D)."""

    def __init__(self, config: Config, width: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        time, dropout = config.time_embed_dim, config.dropout
        self.add(AdaptiveNorm(width, time, name="norm1"))
        self.add(Attention(config.num_heads, width, config.qk_norm, dropout, name="attention"))
        self.dropout = Dropout(dropout, name="dropout")
        self.add(AdaptiveNorm(width, time, name="norm2"))
        self.add(Mlp((width, 4 * width, width), gelu, dropout, name="mlp"))

    def call(self, tokens: Tensor, time: Tensor) -> Tensor:
        tokens = once(tokens)
        # The boundaries keep XLA from repeating the chain of residual sums in every gradient.
        a = once(self.norm1(tokens, time))
        tokens = once(tokens + self.dropout(self.attention(a, a, a)))
        return tokens + self.mlp(once(self.norm2(tokens, time)))


class Level(Composed):
    """One coefficient group: (B, L, F), time embedding (B, T) -> tokens (B, L, D).

    ``output_proj`` maps tokens back to (B, L, F); the model calls it after the cross-level block.
    """

    def __init__(self, config: Config, index: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        length, width, self.depth = config.level_lengths[index], config.widths[index], config.depths[index]
        self.add(linear(config.features, width, name="input_proj"), (None, length, config.features))
        self.position = Position(length, width, name="position")
        self.dropout = Dropout(config.dropout, name="dropout")
        for i in range(self.depth):
            self.add(Block(config, width, name=f"block_{i}"))
        self.add(linear(width, config.features, name="output_proj"), (None, length, width))

    def call(self, coefficients: Tensor, time: Tensor, training: bool | None = None) -> Tensor:
        tokens = self.dropout(self.position(self.input_proj(coefficients)))
        for i in range(self.depth):
            tokens = getattr(self, f"block_{i}")(tokens, time)
        return tokens


class Aggregator(Mlp):
    """Tokens (B, L, D) -> pooling weights (B, L, 1), a softmax over the tokens."""

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__((width, width // 2, 1), gelu, **kwargs)
        # Over the tokens; Keras's default is the last axis, which has one entry.
        self.softmax = Softmax(axis=1, name="softmax")

    def call(self, x: Tensor) -> Tensor:
        return self.softmax(super().call(x))


class Gate(Composed):
    """[tokens ; time] (B, L, D + T) -> a gate in (0, 1) per token and channel, (B, L, D)."""

    def __init__(self, width: int, time_width: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.add(linear(width + time_width, width, name="linear"), (None, None, width + time_width))
        self.sigmoid = layers.Activation("sigmoid", name="sigmoid")

    def call(self, x: Tensor) -> Tensor:
        return self.sigmoid(self.linear(x))


class CrossLevel(Composed):
    """Tokens of all groups [(B, L_i, D_i)], time embedding (B, T) -> the same shapes.

    Each group is pooled to one vector of the common width W; each vector attends to the others; the result is expanded,
    normalised, gated and added to every token of its group.
    """

    def __init__(self, config: Config, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.config = config
        cross, time = config.cross_width, config.time_embed_dim
        self.others = [tuple(i for i in range(config.groups) if i != level) for level in range(config.groups)]
        for i, width in enumerate(config.widths):
            self.add(Aggregator(width, name=f"aggregator_{i}"))
            self.add(linear(width, cross, name=f"projection_{i}"), (None, width))
            self.add(Attention(config.num_heads, cross, config.qk_norm, config.dropout, name=f"attention_{i}"))
            self.add(linear(cross, width, name=f"expander_{i}"), (None, cross))
            self.add(AdaptiveNorm(width, time, name=f"norm_{i}"))
            self.add(Gate(width, time, name=f"gate_{i}"))

    def build(self, *_: Shape) -> None:
        self.level_position_embeddings = self.add_weight(
            name="level_position_embeddings",
            shape=(self.config.groups, self.config.cross_width),
            initializer=UnitRows(),
        )
        super().build()

    def _part(self, name: str, level: int) -> KerasLayer:
        return getattr(self, f"{name}_{level}")

    def call(self, tokens: list[Tensor], time: Tensor, training: bool | None = None) -> list[Tensor]:
        # All groups are pooled before any is updated.
        pooled = [self._pool(i, h) for i, h in enumerate(tokens)]
        return [h + self._update(i, h, pooled, time) for i, h in enumerate(tokens)]

    def _pool(self, level: int, tokens: Tensor) -> Tensor:
        weights = self._part("aggregator", level)(tokens)
        summary = self._part("projection", level)(ops.sum(weights * tokens, axis=1))
        return summary + self.level_position_embeddings[level]

    def _update(self, level: int, tokens: Tensor, pooled: list[Tensor], time: Tensor) -> Tensor:
        others = ops.stack([pooled[other] for other in self.others[level]], axis=1)
        attended = self._part("attention", level)(pooled[level][:, None], others, others)
        expanded = self._part("expander", level)(attended[:, 0])
        # As the public code expands it, so that the norm's input and output have the shapes of those in PyTorch.
        every_token = ops.broadcast_to(expanded[:, None], ops.shape(tokens))
        every_time = ops.broadcast_to(time[:, None], (*ops.shape(tokens)[:2], self.config.time_embed_dim))
        # Token first, then time: the other order has the same shape.
        gate = self._part("gate", level)(ops.concatenate([tokens, every_time], axis=-1))
        return gate * self._part("norm", level)(every_token, time)


@keras.saving.register_keras_serializable("wdport")
class WaveletDiff(PortedModel):
    """The denoiser: ``model((coefficients, time))`` -> prediction of the noise or of the clean coefficients.

    Args:
        config: a :class:`Config` or its :meth:`Config.to_dict`.

    Inputs: coefficients (B, C, F) in z-score space, laid out [cA_L, cD_L, ..., cD_1]; time (B,) = step / 1000,
    divided on the host (XLA rewrites the division under jit). A third input (B,) conditions the scale if the checkpoint
    has a scale embedding. Output: (B, C, F) in the compute dtype.
    """

    configuration, family = Config, "waveletdiff"

    def create(self, config: Config) -> None:
        self.add(NoiseSchedule(config.noise_schedule, name="noise_schedule"))
        self.add(SinusoidEmbedding(config.time_embed_dim, STEPS_PER_TIME, name="time_embedding"))
        self.scale_embedding: KerasLayer = None
        if config.scale_embedding:
            self.add(SinusoidEmbedding(config.time_embed_dim, name="scale_embedding"))
        for i in range(config.groups):
            self.add(Level(config, i, name=f"level_{i}"))
        self.cross_level: KerasLayer = None
        if config.cross_level_attention:
            self.add(CrossLevel(config, name="cross_level"))

    def call(self, inputs: tuple[Tensor, ...], training: bool | None = None) -> Tensor:
        # Keras's compiled training step calls this without a context: passing `training` on creates one,
        # in which every dropout layer below finds it.
        coefficients, time = inputs[:2]
        embedded = self.embedding_of(time, *inputs[2:])
        levels = [getattr(self, f"level_{i}") for i in range(self.config.groups)]
        slices = self.config.level_slices
        tokens = [
            level(coefficients[:, s], embedded, training=training) for level, s in zip(levels, slices, strict=True)
        ]
        if self.cross_level is not None:
            tokens = self.cross_level(tokens, embedded, training=training)
        return ops.concatenate([level.output_proj(h) for level, h in zip(levels, tokens, strict=True)], axis=1)

    def embedding_of(self, time: Tensor, scale: Tensor | None = None) -> Tensor:
        """The embedding (B, T) that conditions every norm and gate, of time (B,) and, if given, scale (B,)."""
        embedded = self.time_embedding(time)
        if self.scale_embedding is None or scale is None:
            return embedded
        return embedded + self.scale_embedding(ops.log1p(SCALE_GAIN * scale))

    def to_series(self, coefficients: Tensor) -> Tensor:
        """Transform coefficients (B, C, F) to series (B, N, F), in the units of the data if the statistics are known.

        Float32 at full precision under any policy. Raises :class:`UsageError` if the wavelet is unknown.
        """
        return to_series(self.config, coefficients)

    def compute_output_shape(self, inputs_shape: tuple[tuple[int | None, ...], ...]) -> tuple[int | None, ...]:
        return inputs_shape[0]
