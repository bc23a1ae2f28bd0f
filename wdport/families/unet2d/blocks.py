"""The blocks of the U-Net, one Keras layer each; images are (B, H, W, C), the time embedding (B, T)."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from keras import layers

from wdport.families.unet2d.config import Config, Stage, head_width, mid_groups
from wdport.model import KerasLayer
from wdport.model import KerasTensor as Tensor
from wdport.nets.attention import ImageAttention
from wdport.nets.composed import Composed, Shape
from wdport.nets.convolutions import Double, Halve, conv
from wdport.nets.norms import GroupNorm


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
        self.dropout = layers.Dropout(config.dropout, name="dropout")
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
