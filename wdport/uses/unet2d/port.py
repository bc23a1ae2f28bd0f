"""UNet2DModel and its blocks in Keras: maps (image (B, H, W, C), time (B,)[, labels]) to the prediction (B, H, W, C').

The readable source of truth. Every layer named in `mappings/unet2d.yaml` is a Keras layer whose output can be recorded
and whose inputs can be fed, eager or under jit. Everything that depends only on time and labels is in
:meth:`UNet2D.embed`, so that a sampler computes it once for all its steps. Source: diffusers 0.42.1, ``UNet2DModel``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
import keras
import numpy as np
from keras import layers, ops

from wdport.families.ported_model import PortedModel
from wdport.models.interface import Array, KerasLayer
from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.attention import ImageAttention
from wdport.nets.composed import Composed, Shape, wide
from wdport.nets.convolutions import Double, Halve, conv
from wdport.nets.dropout import Dropout
from wdport.nets.norms import GroupNorm
from wdport.uses.unet2d.config import Config, Stage, attends, down_stages, head_width, mid_groups, up_stages


def image_of(channels: int) -> Shape:
    """The shape of images with this number of channels."""
    return (None, None, None, channels)


class Resnet(Composed):
    """(B, H, W, C_in), time embedding (B, T) -> (B, H, W, C), the input added; ``resize`` "halve" or "double" changes
    height and width of both after the first norm. The output is divided by ``factor``.

    The embedding is added to the input of ``norm2``, or with ``scale_shift`` applied to its output as 1 + scale and
    shift.
    """

    def __init__(
        self, config: Config, inputs: int, channels: int, factor: float = 1.0, resize: str = "", **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.factor = factor
        self.scales = config.resnet_time_scale_shift == "scale_shift"
        groups, epsilon = config.norm_num_groups, config.norm_eps
        self.nonlinearity = layers.Activation(config.act_fn, name="nonlinearity")
        self.add(GroupNorm(groups, epsilon, name="norm1"), image_of(inputs))
        self.downsample = Halve(name="downsample") if resize == "halve" else None
        self.upsample = Double(name="upsample") if resize == "double" else None
        self.add(conv(channels, name="conv1"), image_of(inputs))
        time = (None, config.time_width)
        self.add(layers.Dense(channels * (2 if self.scales else 1), name="time_emb_proj"), time)
        self.add(GroupNorm(groups, epsilon, name="norm2"), image_of(channels))
        self.dropout = Dropout(config.dropout, name="dropout")
        self.add(conv(channels, name="conv2"), image_of(channels))
        self.conv_shortcut: KerasLayer = None
        if inputs != channels:
            self.add(conv(channels, 1, name="conv_shortcut"), image_of(inputs))

    def call(self, x: Tensor, embedding: Tensor) -> Tensor:
        hidden = self.nonlinearity(self.norm1(x))
        # After the norm and its activation, and on both paths, as in the library.
        for resize in (self.upsample, self.downsample):
            if resize is not None:
                x, hidden = resize(x), resize(hidden)
        hidden = self.conv1(hidden)
        # Every block activates the embedding again: the MLP ends with a product.
        time = self.time_emb_proj(self.nonlinearity(embedding))[:, None, None, :]
        if self.scales:
            scale, shift = jnp.split(time, 2, axis=-1)
            # The scale is the first half.
            hidden = self.norm2(hidden) * (1 + scale) + shift
        else:
            hidden = self.norm2(hidden + time)
        hidden = self.conv2(self.dropout(self.nonlinearity(hidden)))
        if self.conv_shortcut is not None:
            x = self.conv_shortcut(x)
        return (x + hidden) / self.factor


def attention_of(
    config: Config, channels: int, groups: int | None, factor: float = 1.0, *, name: str
) -> ImageAttention:
    """Attention with the heads and the epsilon of a configuration."""
    return ImageAttention(channels, head_width(config, channels), groups, config.norm_eps, factor, name=name)


class Blocks(Composed):
    """One resolution: ``resnet_<i>``, each followed by ``attention_<i>`` if the stage has it."""

    def __init__(self, config: Config, stage: Stage, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.stage = stage
        for index, inputs in enumerate(stage.inputs):
            self.add(Resnet(config, inputs, stage.channels, name=f"resnet_{index}"))
            if stage.attention:
                attention = attention_of(config, stage.channels, config.norm_num_groups, name=f"attention_{index}")
                self.add(attention)

    def resized(self, layer: KerasLayer, x: Tensor, embedding: Tensor) -> Tensor:
        """The next resolution; a residual block also takes the embedding."""
        return layer(x, embedding) if self.stage.step == "resnet" else layer(x)


class Down(Blocks):
    """One resolution on the way down: (B, H, W, C_in), (B, T) -> the output of the last step, and all skip connections.

    The blocks, then ``downsample``.
    """

    def __init__(self, config: Config, stage: Stage, **kwargs: object) -> None:
        super().__init__(config, stage, **kwargs)
        self.downsample: KerasLayer = None
        channels = stage.channels
        if stage.step == "conv":
            self.add(Halve(channels, config.downsample_padding, name="downsample"), image_of(channels))
        elif stage.step == "resnet":
            self.add(Resnet(config, channels, channels, resize="halve", name="downsample"))

    def call(self, x: Tensor, embedding: Tensor) -> tuple[Tensor, list[Tensor]]:
        skips = []
        for index in range(len(self.stage.inputs)):
            x = getattr(self, f"resnet_{index}")(x, embedding)
            if self.stage.attention:
                x = getattr(self, f"attention_{index}")(x)
            skips.append(x)
        if self.downsample is not None:
            x = self.resized(self.downsample, x, embedding)
            skips.append(x)
        return x, skips


class Mid(Composed):
    """The smallest resolution: two residual blocks with attention between them, if the network has it."""

    def __init__(self, config: Config, attends: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        channels, factor = config.block_out_channels[-1], config.mid_block_scale_factor
        self.add(Resnet(config, channels, channels, factor, name="resnet_0"))
        self.attention: KerasLayer = None
        if attends:
            self.add(attention_of(config, channels, mid_groups(config), factor, name="attention"))
        self.add(Resnet(config, channels, channels, factor, name="resnet_1"))

    def call(self, x: Tensor, embedding: Tensor) -> Tensor:
        x = self.resnet_0(x, embedding)
        if self.attention is not None:
            x = self.attention(x)
        return self.resnet_1(x, embedding)


class Up(Blocks):
    """One resolution on the way up: (B, H, W, C_in), its skip connections, and (B, T) -> the output of the last step.
    Every residual block concatenates the last unused skip connection to the channels of its input."""

    def __init__(self, config: Config, stage: Stage, **kwargs: object) -> None:
        super().__init__(config, stage, **kwargs)
        self.upsample: KerasLayer = None
        channels = stage.channels
        if stage.step == "conv":
            self.add(Double(channels, name="upsample"), image_of(channels))
        elif stage.step == "resnet":
            self.add(Resnet(config, channels, channels, resize="double", name="upsample"))

    def call(self, x: Tensor, skips: Sequence[Tensor], embedding: Tensor) -> Tensor:
        for index in range(len(self.stage.inputs)):
            # The skip connection comes second, which fixes the order of the next kernel's input channels.
            x = jnp.concatenate([x, skips[-1 - index]], axis=-1)
            x = getattr(self, f"resnet_{index}")(x, embedding)
            if self.stage.attention:
                x = getattr(self, f"attention_{index}")(x)
        return x if self.upsample is None else self.resized(self.upsample, x, embedding)


LONGEST = 10_000
"""The longest period of :func:`frequencies`, in radians per step: "Attention is all you need", section 3.5."""


def frequencies(half: int, shift: float) -> Array:
    """(half,) falling from 1: the exponents are those of ``LONGEST`` by k / (half - shift). Float64."""
    values: Array = np.exp(-math.log(LONGEST) * np.arange(half) / (half - shift))
    return values


class Sinusoid(layers.Layer):
    """Times (B,) -> (B, D): sines, then cosines of times multiplied by fixed frequencies; cosines first with ``flip``.
    A zero is appended where D is odd.

    The angles are computed in at least float32 under any policy: in bfloat16 neighbouring steps are equal.
    """

    def __init__(self, width: int, flip: bool = False, shift: float = 0.0, **kwargs: object) -> None:
        # Keras would otherwise round the times to 16 bits before the call.
        super().__init__(autocast=False, **kwargs)
        self.width, self.flip = width, flip
        self.frequencies = frequencies(width // 2, shift).astype(_angles(self.compute_dtype))

    def call(self, times: Tensor) -> Tensor:
        angles = ops.cast(times, self.frequencies.dtype.name)[:, None] * self.frequencies
        # jnp and not keras.ops, whose sin and cos compute in float32 inside a float64 model.
        waves = [jnp.sin(angles), jnp.cos(angles)]
        embedding = jnp.concatenate(waves[::-1] if self.flip else waves, axis=-1)
        return ops.cast(jnp.pad(embedding, ((0, 0), (0, self.width % 2))), self.compute_dtype)


class Fourier(layers.Layer):
    """Times (B,) above zero -> (B, 2D): sines, then cosines of 2 pi log(t) times ``weight`` (D,), which is fixed."""

    def __init__(self, width: int, **kwargs: object) -> None:
        super().__init__(autocast=False, **kwargs)
        self.width = width

    def build(self, _: object = None) -> None:
        self.weight = self.add_weight(name="weight", shape=(self.width,), initializer="zeros", trainable=False,
                                      autocast=False)  # fmt: skip

    def call(self, times: Tensor) -> Tensor:
        weight = ops.convert_to_tensor(self.weight)
        angles = jnp.log(ops.cast(times, weight.dtype))[:, None] * weight * 2 * np.pi
        return ops.cast(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1), self.compute_dtype)


class TimeMlp(Composed):
    """(B, D) -> Dense, SiLU, Dense -> (B, T)."""

    def __init__(self, inputs: int, width: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.add(layers.Dense(width, name="linear_1"), (None, inputs))
        self.act = layers.Activation("silu", name="act")
        self.add(layers.Dense(width, name="linear_2"), (None, width))

    def call(self, x: Tensor) -> Tensor:
        return self.linear_2(self.act(self.linear_1(x)))


def _angles(dtype: str) -> type[np.floating]:
    return np.float64 if dtype == "float64" else np.float32


@keras.saving.register_keras_serializable("wdport")
class UNet2D(PortedModel):
    """The denoiser: ``model((x, t))``, or ``model((x, t, labels))`` if it is class-conditional.

    Args:
        config: a :class:`Config` or its :meth:`Config.to_dict`.

    Inputs: x (B, H, W, in_channels), where H and W are multiples of :attr:`Config.stride`; t (B,), timesteps as in the
        library, above zero for a Fourier embedding; labels (B,) below ``num_class_embeds``, or timesteps, or for
    "identity" the embedding itself, (B, T). Output: (B, H, W, out_channels) in the compute dtype.
    """

    configuration, family = Config, "unet2d"

    def create(self, config: Config) -> None:
        self.levels, first = len(config.block_out_channels), config.block_out_channels[0]
        self.add(conv(first, name="conv_in"), image_of(config.in_channels))
        self.add(_time_proj(config), (None,))
        self.add(TimeMlp(config.wave_width, config.time_width, name="time_embedding"))
        self.class_embedding: KerasLayer = None
        if config.classes == "table":
            self.add(layers.Embedding(config.num_class_embeds, config.time_width, name="class_embedding"), (None,))
        elif config.classes == "timestep":
            self.add(TimeMlp(config.wave_width, config.time_width, name="class_embedding"))
        for level, stage in enumerate(down_stages(config)):
            self.add(Down(config, stage, name=f"down_{level}"))
        self.mid: KerasLayer = None
        if config.mid_block_type is not None:
            self.add(Mid(config, attends(config), name="mid"))
        for level, stage in enumerate(up_stages(config)):
            self.add(Up(config, stage, name=f"up_{level}"))
        self.add(GroupNorm(config.norm_num_groups, config.norm_eps, name="conv_norm_out"), image_of(first))
        # Always SiLU in the library, whatever `act_fn` is; so are the activations of the time embedding.
        self.conv_act = layers.Activation("silu", name="conv_act")
        self.add(conv(config.out_channels, name="conv_out"), image_of(first))

    def call(self, inputs: tuple[Tensor, ...], training: bool | None = None) -> Tensor:
        x, times, *labels = inputs
        return self.denoise(x, self.embed(times, *labels))

    def embed(self, times: Tensor, labels: Tensor | None = None) -> Tensor:
        """The embedding (B, T) of times (B,) and labels: everything that depends only on these.

        With a Fourier embedding, the time itself is an additional column, by which :meth:`denoise` divides.
        """
        embedding = self.time_embedding(self.time_proj(times))
        if self.config.classes == "timestep":
            labels = self.time_proj(labels)
        if self.class_embedding is not None:
            labels = self.class_embedding(labels)
        if self.config.classes:
            embedding = embedding + ops.cast(labels, embedding.dtype)
        if self.config.time_embedding_type != "fourier":
            return embedding
        # The time is a divisor of the output, and would be rounded in 16 bits.
        embedding = wide(embedding)
        return jnp.concatenate([embedding, ops.cast(times, embedding.dtype)[:, None]], axis=-1)

    def denoise(self, state: Tensor, embedding: Tensor) -> Tensor:
        """The prediction (B, H, W, C') for an image (B, H, W, C) and the output of :meth:`embed`."""
        # An array without columns, unless the embedding is a Fourier embedding.
        divisor, embedding = embedding[:, None, None, self.config.time_width :], embedding[:, : self.config.time_width]
        embedding = ops.cast(embedding, self.compute_dtype)
        x = self.conv_in(2 * state - 1 if self.config.center_input_sample else state)
        skips = [x]
        for level in range(self.levels):
            x, more = getattr(self, f"down_{level}")(x, embedding)
            skips += more
        if self.mid is not None:
            x = self.mid(x, embedding)
        for level in range(self.levels):
            up = getattr(self, f"up_{level}")
            count = len(up.stage.inputs)
            x = up(x, skips[-count:], embedding)
            del skips[-count:]
        x = self.conv_out(self.conv_act(self.conv_norm_out(x)))
        return x if self.config.time_embedding_type != "fourier" else ops.cast(x / divisor, x.dtype)

    def compute_output_shape(self, inputs_shape: tuple[tuple[int | None, ...], ...]) -> tuple[int | None, ...]:
        return (*inputs_shape[0][:-1], self.config.out_channels)


def _time_proj(config: Config) -> KerasLayer:
    """The layer from times (B,) to the input of the time embedding's MLP."""
    width = config.block_out_channels[0]
    if config.time_embedding_type == "fourier":
        return Fourier(width, name="time_proj")
    if config.time_embedding_type == "learned":
        return layers.Embedding(config.num_train_timesteps, width, name="time_proj")
    return Sinusoid(width, config.flip_sin_to_cos, config.freq_shift, name="time_proj")
