"""How a video passes through the layers in parts: what each layer keeps of the frames before.

:class:`Frames` is the library's way: the first frame alone, whose steps in time are skipped, then the others in groups,
with as many past frames as there are. :class:`Chunk` computes the same in chunks that are all alike, for one compiled
program: zeros come before the video, whose first frame is the *last* of the slots of the first latent frame, and the
skipped steps are selected by the frames' numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import jax.numpy as jnp

from wdport.model import KerasLayer
from wdport.model import KerasTensor as Tensor

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
