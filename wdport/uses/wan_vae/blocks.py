"""The blocks of the autoencoder, one Keras layer each, and how a video passes through them in parts: what each keeps of
the frames before. Videos are (B, T, H, W, C).

Without a stream a block takes its input for the beginning of a video, as its first part.

:class:`Frames` is the library's way: the first frame alone, whose steps in time are skipped, then the others in groups,
with as many past frames as there are. :class:`Chunk` computes the same in chunks that are all alike, for one compiled
program: zeros come before the video, whose first frame is the *last* of the slots of the first latent frame, and the
skipped steps are selected by the frames' numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import jax.numpy as jnp
from keras import layers

from wdport.models.interface import KerasLayer
from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.attention import attend
from wdport.nets.composed import Composed, Shape
from wdport.nets.convolutions import CausalConv3D, Double, Halve
from wdport.nets.norms import LengthNorm
from wdport.uses.wan_vae.config import CoderStage

KEPT = 2
"""Past frames that a layer keeps: the window of every convolution in time is three."""


class Stream(Protocol):
    """The past of every layer while a video (B, T, H, W, C) passes in parts."""

    first: bool
    """Whether this part is known to be the first frame alone."""

    def clean(self, x: Tensor) -> Tensor:
        """``x`` with zeros in place of frames before the video."""

    def causal(self, layer: KerasLayer, x: Tensor) -> Tensor:
        """A causal convolution of the next frames."""

    def double(self, layer: KerasLayer, x: Tensor) -> Tensor:
        """Twice as many frames, by a causal convolution ``layer`` with a frame's two halves in its channels; the
        video's first frame stays one, and is not seen by those after it."""

    def halve(self, layer: KerasLayer, x: Tensor) -> Tensor:
        """Half as many frames, by a strided convolution ``layer`` over one past frame and these; the video's first
        frame stays as it is."""


class Frames:
    """See :class:`Stream`; call :meth:`next` before every part but the first."""

    def __init__(self) -> None:
        self.first = True
        # By the layer's id: a stream lives no longer than one call of the model.
        self._held: dict[int, Tensor] = {}

    def next(self) -> None:
        """From now on, it is not the first frame."""
        self.first = False

    def clean(self, x: Tensor) -> Tensor:
        return x

    def causal(self, layer: KerasLayer, x: Tensor) -> Tensor:
        past = self._exchange(layer, x, KEPT)
        return layer(x) if past is None else layer(x, past)

    def double(self, layer: KerasLayer, x: Tensor) -> Tensor:
        if self.first:
            return x
        past = self._held.get(id(layer))
        if past is None:
            # The skipped first frame counts as zeros: the library marks it as "Rep" and puts zeros in its place.
            self._held[id(layer)] = jnp.zeros_like(x[:, :1])
        self._exchange(layer, x, KEPT)
        return paired(layer(x) if past is None else layer(x, past))

    def halve(self, layer: KerasLayer, x: Tensor) -> Tensor:
        past = self._exchange(layer, x, 1)
        return x if past is None else layer(jnp.concatenate([past, x], axis=1))

    def _exchange(self, layer: KerasLayer, x: Tensor, count: int) -> Tensor | None:
        """The past frames of a layer; from now on they are the last ``count`` of these and ``x``."""
        past = self._held.get(id(layer))
        self._held[id(layer)] = (x if past is None else jnp.concatenate([past, x], axis=1))[:, -count:]
        return past


class Chunk:
    """See :class:`Stream`. ``held`` is the past of every layer in the order of their use, empty for none, and ``kept``
    what the next chunk holds. The chunk has the slots of ``latents`` latent frames, of which the first has the number
    ``start``; the video's first one is number 0."""

    first = False

    def __init__(self, held: Sequence[Tensor], latents: int, start: Tensor) -> None:
        self.kept: list[Tensor] = []
        self._held: Iterator[Tensor] | None = iter(held) if held else None
        self._latents, self._start = latents, start

    def clean(self, x: Tensor) -> Tensor:
        return _where(self._numbers(x) >= 0, x, 0)

    def causal(self, layer: KerasLayer, x: Tensor) -> Tensor:
        x = self.clean(x)
        return layer(x, self._exchange(x, KEPT))

    def double(self, layer: KerasLayer, x: Tensor) -> Tensor:
        numbers = self._numbers(x)
        # Not >= 0: the video's first frame is no past of later ones here, as the library skips the step for it.
        visible = _where(numbers > 0, x, 0)
        doubled = paired(layer(visible, self._exchange(visible, KEPT)))
        return _where(jnp.repeat(numbers == 0, 2), jnp.repeat(x, 2, axis=1), doubled)

    def halve(self, layer: KerasLayer, x: Tensor) -> Tensor:
        # The slots of the first latent frame end with the video's first frame, hence x[:, 1::2] for it.
        halved = layer(jnp.concatenate([self._exchange(x, 1), x], axis=1))
        return _where(self._numbers(halved) == 0, x[:, 1::2], halved)

    def _numbers(self, x: Tensor) -> Tensor:
        """The numbers of the frames (T,): 0 is the video's first one, and those before it are below zero."""
        # At this layer: the number of slots of a latent frame changes with every step in time.
        slots = x.shape[1] // self._latents
        return slots * self._start + jnp.arange(x.shape[1]) - (slots - 1)

    def _exchange(self, x: Tensor, count: int) -> Tensor:
        past = jnp.zeros_like(x[:, :1], shape=(x.shape[0], count, *x.shape[2:])) if self._held is None else (
            next(self._held))  # fmt: skip
        self.kept.append(jnp.concatenate([past, x], axis=1)[:, -count:])
        return past


def paired(x: Tensor) -> Tensor:
    """(B, T, H, W, 2C) -> (B, 2T, H, W, C): the first half of the channels is the first of two frames."""
    batch, frames, height, width, channels = x.shape
    halves = jnp.reshape(x, (batch, frames, height, width, 2, channels // 2))
    return jnp.reshape(jnp.moveaxis(halves, 4, 2), (batch, 2 * frames, height, width, channels // 2))


def _where(frames: Tensor, x: Tensor, other: Tensor | int) -> Tensor:
    """``x`` at the frames (T,) that are true, ``other`` at the rest."""
    return jnp.where(frames[None, :, None, None, None], x, jnp.asarray(other, x.dtype))


WINDOW = (3, 3, 3)


def of(channels: int) -> Shape:
    """The shape of a video with this number of channels."""
    return (None, None, None, None, channels)


class Residual(Composed):
    """(B, T, H, W, C_in) -> (B, T, H, W, C), the input added, through a convolution of one pixel if C differs."""

    def __init__(self, inputs: int, channels: int, dropout: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.nonlinearity = layers.Activation("silu", name="nonlinearity")
        self.add(LengthNorm(name="norm1"), of(inputs))
        self.add(CausalConv3D(channels, WINDOW, name="conv1"), of(inputs))
        self.add(LengthNorm(name="norm2"), of(channels))
        self.dropout = layers.Dropout(dropout, name="dropout")
        self.add(CausalConv3D(channels, WINDOW, name="conv2"), of(channels))
        self.conv_shortcut: KerasLayer = None
        if inputs != channels:
            self.add(CausalConv3D(channels, (1, 1, 1), name="conv_shortcut"), of(inputs))

    def call(self, x: Tensor, stream: Stream | None = None) -> Tensor:
        stream = stream or Frames()
        # What is kept of past frames is the input of a convolution, after its norm and activation.
        hidden = stream.causal(self.conv1, self.nonlinearity(self.norm1(x)))
        hidden = self.dropout(self.nonlinearity(self.norm2(hidden)))
        hidden = stream.causal(self.conv2, hidden)
        return hidden + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class FrameAttention(Composed):
    """(B, T, H, W, C) plus self-attention among the pixels of each frame, with one head of all channels."""

    def __init__(self, channels: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.add(LengthNorm(name="norm"), of(channels))
        self.add(layers.Dense(3 * channels, name="to_qkv"), of(channels)[1:])
        self.add(layers.Dense(channels, name="proj"), of(channels)[1:])

    def call(self, x: Tensor) -> Tensor:
        batch, frames, height, width, channels = x.shape
        images = jnp.reshape(x, (batch * frames, height, width, channels))
        projected = jnp.reshape(self.to_qkv(self.norm(images)), (batch * frames, height * width, 3 * channels))
        # Among the pixels of one frame only, so attention needs no past.
        read = attend(*jnp.split(projected, 3, axis=-1))
        attended = self.proj(jnp.reshape(read, (batch * frames, height, width, channels)))
        return jnp.reshape(attended, x.shape) + x


class Mid(Composed):
    """The smallest size: two residual blocks with attention between them."""

    def __init__(self, channels: int, dropout: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.add(Residual(channels, channels, dropout, name="resnet_0"))
        self.add(FrameAttention(channels, name="attention_0"))
        self.add(Residual(channels, channels, dropout, name="resnet_1"))

    def call(self, x: Tensor, stream: Stream | None = None) -> Tensor:
        stream = stream or Frames()
        x = self.attention_0(self.resnet_0(x, stream=stream))
        return self.resnet_1(x, stream=stream)


class Smaller(Composed):
    """Half the height and width, and with ``temporal`` half the frames after that."""

    def __init__(self, channels: int, temporal: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        # Zeros below and on the right only, as the library's ZeroPad2d((0, 1, 0, 1)).
        self.add(Halve(channels, padding=0, name="resample"), of(channels)[1:])
        self.time_conv: KerasLayer = None
        if temporal:
            # Without padding in time: the stream puts the last past frame before these.
            self.add(CausalConv3D(channels, (3, 1, 1), stride=2, causal=False, name="time_conv"), of(channels))

    def call(self, x: Tensor, stream: Stream | None = None) -> Tensor:
        x = each_frame(self.resample, x)
        return x if self.time_conv is None else (stream or Frames()).halve(self.time_conv, x)


class Larger(Composed):
    """With ``temporal`` twice the frames, then twice the height and width, with ``resized`` channels."""

    def __init__(self, channels: int, resized: int, temporal: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.time_conv: KerasLayer = None
        if temporal:
            # The two halves of the channels are the two frames that one frame becomes.
            self.add(CausalConv3D(2 * channels, (3, 1, 1), name="time_conv"), of(channels))
        self.add(Double(resized, name="resample"), of(channels)[1:])

    def call(self, x: Tensor, stream: Stream | None = None) -> Tensor:
        if self.time_conv is not None:
            x = (stream or Frames()).double(self.time_conv, x)
        return each_frame(self.resample, x)


class Averages(layers.Layer):
    """The shortcut of a down block of Wan 2.2: frames, rows and columns become channels, whose groups are averaged.

    (B, T, H, W, C_in) -> (B, T / time, H / space, W / space, channels); zeros come before an odd first frame.
    """

    def __init__(self, channels: int, time: int, space: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.channels, self.time, self.space = channels, time, space

    def call(self, x: Tensor) -> Tensor:
        time, space = self.time, self.space
        # Before, not after: the first frame is alone in its group.
        x = jnp.pad(x, ((0, 0), (-x.shape[1] % time, 0), (0, 0), (0, 0), (0, 0)))
        batch, frames, height, width, channels = x.shape
        size = (frames // time, height // space, width // space)
        x = jnp.reshape(x, (batch, size[0], time, size[1], space, size[2], space, channels))
        x = jnp.transpose(x, (0, 1, 3, 5, 7, 2, 4, 6))  # channel, frame, row, column
        return jnp.mean(jnp.reshape(x, (batch, *size, self.channels, -1)), axis=-1)


class Copies(layers.Layer):
    """The shortcut of an up block of Wan 2.2: channels are repeated, and become frames, rows and columns.

    (B, T, H, W, C_in) -> (B, T * time, 2H, 2W, channels); of a ``first`` frame alone only the last copy remains.
    """

    def __init__(self, channels: int, time: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.channels, self.time = channels, time

    def call(self, x: Tensor, first: bool = False) -> Tensor:
        batch, frames, height, width, channels = x.shape
        # Each channel is repeated in place, as by torch's repeat_interleave.
        x = jnp.repeat(x, self.channels * self.time * 4 // channels, axis=-1)
        x = jnp.reshape(x, (batch, frames, height, width, self.channels, self.time, 2, 2))
        x = jnp.transpose(x, (0, 1, 5, 2, 6, 3, 7, 4))
        x = jnp.reshape(x, (batch, frames * self.time, 2 * height, 2 * width, self.channels))
        return x[:, self.time - 1 :] if first else x


class Level(Composed):
    """Residual blocks ``resnet_<i>``, then a step to the next size, if the stage has one: a level of the decoder, and
    in Wan 2.2 of the encoder, where ``averages`` or ``copies`` of the input are added."""

    def __init__(self, stage: CoderStage, down: bool, shortcut: bool, dropout: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.stage, self.down = stage, down
        for index, inputs in enumerate(stage.inputs):
            self.add(Residual(inputs, stage.channels, dropout, name=f"resnet_{index}"))
        self.resampler: KerasLayer = None
        if stage.resized:
            self.add(Smaller(stage.channels, stage.temporal, name="resampler") if down else
                     Larger(stage.channels, stage.resized, stage.temporal, name="resampler"))  # fmt: skip
        self.avg_shortcut: KerasLayer = None
        time = 2 if stage.temporal else 1
        if shortcut and down:
            self.avg_shortcut = Averages(stage.channels, time, 2 if stage.resized else 1, name="avg_shortcut")
        elif shortcut and stage.resized:
            self.avg_shortcut = Copies(stage.channels, time, name="avg_shortcut")

    def call(self, x: Tensor, stream: Stream | None = None) -> Tensor:
        stream = stream or Frames()
        before = x
        for index in range(len(self.stage.inputs)):
            x = getattr(self, f"resnet_{index}")(x, stream=stream)
        if self.resampler is not None:
            x = self.resampler(x, stream=stream)
        if self.avg_shortcut is None:
            return x
        if self.down:
            return x + self.avg_shortcut(stream.clean(before))
        return x + self.avg_shortcut(before, first=stream.first)


def each_frame(layer: KerasLayer, x: Tensor) -> Tensor:
    """A layer of images (N, H, W, C) on every frame of a video."""
    batch, frames, *image = x.shape
    outputs = layer(jnp.reshape(x, (batch * frames, *image)))
    return jnp.reshape(outputs, (batch, frames, *outputs.shape[1:]))
