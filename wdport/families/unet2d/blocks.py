"""The blocks of the U-Net, one Keras layer each; images are (B, H, W, C), the time embedding (B, T).

Every attribute that holds a layer has that layer's name, so a variable's path is the same in the code, in Keras and in
a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from keras import layers

from wdport.families.unet2d.config import Config, Stage, head_width, mid_groups
from wdport.model import KerasLayer
from wdport.model import KerasTensor as Tensor
from wdport.nets.attention import ImageAttention
from wdport.nets.convolutions import Double, Halve, conv
from wdport.nets.norms import GroupNorm

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Blocks:
    """Makes the blocks of one configuration; ``factor`` is the divisor of the outputs."""

    config: Config
    factor: float = 1.0

    def resnet(self, inputs: int, channels: int, name: str, resize: str = "") -> Resnet:
        return Resnet(self.config, inputs, channels, self.factor, resize, name=name)

    def attention(self, channels: int, groups: int | None, name: str) -> ImageAttention:
        config = self.config
        return ImageAttention(channels, head_width(config, channels), groups, config.norm_eps, self.factor, name=name)


class Resnet(layers.Layer):
    """(B, H, W, C_in), time embedding (B, T) -> (B, H, W, C), the input added; ``resize`` "halve" or "double" changes
    height and width of both after the first norm.

    The embedding is added to the input of ``norm2``, or with ``scale_shift`` applied to its output as 1 + scale and
    shift.
    """

    def __init__(
        self, config: Config, inputs: int, channels: int, factor: float, resize: str, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.inputs, self.channels, self.factor = inputs, channels, factor
        self.scales = config.resnet_time_scale_shift == "scale_shift"
        groups, epsilon = config.norm_num_groups, config.norm_eps
        self.nonlinearity = layers.Activation(config.act_fn, name="nonlinearity")
        self.norm1 = GroupNorm(groups, epsilon, name="norm1")
        self.downsample = Halve(name="downsample") if resize == "halve" else None
        self.upsample = Double(name="upsample") if resize == "double" else None
        self.conv1 = conv(channels, name="conv1")
        self.time_emb_proj = layers.Dense(channels * (2 if self.scales else 1), name="time_emb_proj")
        self.norm2 = GroupNorm(groups, epsilon, name="norm2")
        self.dropout = layers.Dropout(config.dropout, name="dropout")
        self.conv2 = conv(channels, name="conv2")
        self.conv_shortcut = None if inputs == channels else conv(channels, 1, name="conv_shortcut")

    def build(self, time_shape: Shape) -> None:
        input_shape, output_shape = (None, None, None, self.inputs), (None, None, None, self.channels)
        self.norm1.build(input_shape)
        self.conv1.build(input_shape)
        self.time_emb_proj.build(time_shape)
        self.norm2.build(output_shape)
        self.conv2.build(output_shape)
        if self.conv_shortcut is not None:
            self.conv_shortcut.build(input_shape)
        self.built = True

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


class Down(layers.Layer):
    """One resolution on the way down: (B, H, W, C_in), (B, T) -> the output of the last step, and all skip connections.

    ``resnet_<i>``, each followed by ``attention_<i>`` if the stage has it, then ``downsample``.
    """

    def __init__(self, config: Config, stage: Stage, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.stage, blocks = stage, Blocks(config)
        _steps(self, blocks, stage)
        self.downsample: KerasLayer = None
        if stage.step == "conv":
            self.downsample = Halve(stage.channels, config.downsample_padding, name="downsample")
        elif stage.step == "resnet":
            self.downsample = blocks.resnet(stage.channels, stage.channels, "downsample", "halve")

    def build(self, time_shape: Shape) -> None:
        _build_steps(self, self.stage, time_shape)
        _build_resize(self.downsample, self.stage, time_shape)
        self.built = True

    def call(self, x: Tensor, embedding: Tensor) -> tuple[Tensor, list[Tensor]]:
        skips = []
        for index in range(len(self.stage.inputs)):
            x = getattr(self, f"resnet_{index}")(x, embedding)
            if self.stage.attention:
                x = getattr(self, f"attention_{index}")(x)
            skips.append(x)
        if self.downsample is not None:
            x = _resized(self.downsample, x, embedding, self.stage)
            skips.append(x)
        return x, skips


class Mid(layers.Layer):
    """The smallest resolution: two residual blocks with attention between them, if the network has it."""

    def __init__(self, config: Config, attends: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.channels, blocks = config.block_out_channels[-1], Blocks(config, config.mid_block_scale_factor)
        self.resnet_0 = blocks.resnet(self.channels, self.channels, "resnet_0")
        self.attention = blocks.attention(self.channels, mid_groups(config), "attention") if attends else None
        self.resnet_1 = blocks.resnet(self.channels, self.channels, "resnet_1")

    def build(self, time_shape: Shape) -> None:
        self.resnet_0.build(time_shape)
        if self.attention is not None:
            self.attention.build((None, None, None, self.channels))
        self.resnet_1.build(time_shape)
        self.built = True

    def call(self, x: Tensor, embedding: Tensor) -> Tensor:
        x = self.resnet_0(x, embedding)
        if self.attention is not None:
            x = self.attention(x)
        return self.resnet_1(x, embedding)


class Up(layers.Layer):
    """One resolution on the way up: (B, H, W, C_in), its skip connections, and (B, T) -> the output of the last step.
    Every residual block concatenates the last unused skip connection to the channels of its input."""

    def __init__(self, config: Config, stage: Stage, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.stage, blocks = stage, Blocks(config)
        _steps(self, blocks, stage)
        self.upsample: KerasLayer = None
        if stage.step == "conv":
            self.upsample = Double(stage.channels, name="upsample")
        elif stage.step == "resnet":
            self.upsample = blocks.resnet(stage.channels, stage.channels, "upsample", "double")

    def build(self, time_shape: Shape) -> None:
        _build_steps(self, self.stage, time_shape)
        _build_resize(self.upsample, self.stage, time_shape)
        self.built = True

    def call(self, x: Tensor, skips: Sequence[Tensor], embedding: Tensor) -> Tensor:
        for index in range(len(self.stage.inputs)):
            # The skip connection comes second, which fixes the order of the next kernel's input channels.
            x = jnp.concatenate([x, skips[-1 - index]], axis=-1)
            x = getattr(self, f"resnet_{index}")(x, embedding)
            if self.stage.attention:
                x = getattr(self, f"attention_{index}")(x)
        return x if self.upsample is None else _resized(self.upsample, x, embedding, self.stage)


def _steps(layer: KerasLayer, blocks: Blocks, stage: Stage) -> None:
    """Give a stage its residual and attention blocks."""
    for index, inputs in enumerate(stage.inputs):
        setattr(layer, f"resnet_{index}", blocks.resnet(inputs, stage.channels, f"resnet_{index}"))
        if stage.attention:
            groups = blocks.config.norm_num_groups
            setattr(layer, f"attention_{index}", blocks.attention(stage.channels, groups, f"attention_{index}"))


def _build_steps(layer: KerasLayer, stage: Stage, time_shape: Shape) -> None:
    for index in range(len(stage.inputs)):
        getattr(layer, f"resnet_{index}").build(time_shape)
        if stage.attention:
            getattr(layer, f"attention_{index}").build((None, None, None, stage.channels))


def _build_resize(layer: KerasLayer, stage: Stage, time_shape: Shape) -> None:
    if stage.step == "resnet":
        layer.build(time_shape)
    elif stage.step:
        layer.build((None, None, None, stage.channels))


def _resized(layer: KerasLayer, x: Tensor, embedding: Tensor, stage: Stage) -> Tensor:
    return layer(x, embedding) if stage.step == "resnet" else layer(x)
