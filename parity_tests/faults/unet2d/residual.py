"""Known bugs of residual blocks, and of embeddings of times and classes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import jax.numpy as jnp
import keras
import numpy as np
from keras import ops

from parity_tests.faults.changes import DROPOUT, frequencies, nonlinearity
from parity_tests.faults.unet2d.places import NETWORK, plain
from wdport.families.faults import Change, Mutant, array_of, calling, holding, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.unet2d.config import Config
from wdport.uses.unet2d.port import LONGEST
from wdport.uses.unet2d.port import frequencies as exact

Parts = Callable[[KerasLayer, KerasTensor, KerasTensor], KerasTensor]
"""Maps (layer, output of ``conv1``, projected time (B, 1, 1, C or 2C)) to the input of the next activation."""


def residual_mutants(config: Config) -> list[Mutant]:
    """The mutants of residual blocks at one resolution."""
    same = ("*/resnet_?",)
    found = [
        Mutant("residual: embedding not activated", same, calling(_not_activated)),
        Mutant("residual: dropout on", ("*/resnet_?/dropout",), DROPOUT),
    ]
    if places := plain(config):
        found.append(Mutant("residual: input not added", places, calling(_not_added)))
        found.append(Mutant("residual: normed input added", places, calling(_normed_added)))
        found.append(Mutant("residual: input and result averaged", places, calling(_averaged)))
    if config.mid_block_type is not None and config.mid_block_scale_factor != 1:
        found.append(Mutant("residual: output not divided", ("mid/resnet_?",), setting(factor=1.0)))
    if config.resnet_time_scale_shift == "scale_shift":
        found += [
            Mutant("residual: scale without the one", same, calling(_timed(_without_one))),
            Mutant("residual: scale and shift swapped", same, calling(_timed(_swapped))),
            Mutant("residual: scale and shift before the norm", same, calling(_timed(_before))),
            Mutant("residual: scale and shift alternating", same, calling(_timed(_alternating))),
        ]
    else:
        found += [
            Mutant("residual: time added after the norm", same, calling(_timed(lambda s, h, t: s.norm2(h) + t))),
            Mutant("residual: time subtracted", same, calling(_timed(lambda s, h, t: s.norm2(h - t)))),
            Mutant("residual: time of the first sample for all", same,
                   calling(_timed(lambda s, h, t: s.norm2(h + t[:1])))),
        ]  # fmt: skip
    return found


def activation_mutants(config: Config) -> list[Mutant]:
    """The mutants of activations: those of the blocks, each used three times per block and also visible at the block,
    and those that are always SiLU."""
    blocks, fixed = ("*/resnet_?",), ("time_embedding/act", "conv_act")
    tanh = nonlinearity(lambda x: ops.gelu(x, approximate=True))
    found = [Mutant("activation: identity for SiLU", fixed, setting(activation=keras.activations.linear))]
    if config.act_fn == "silu":
        found.append(Mutant("activation: GELU by tanh for SiLU", blocks, tanh, shares=True))
    if config.act_fn == "gelu":
        found.append(Mutant("activation: GELU by tanh", blocks, tanh, shares=True))
    if config.act_fn != "relu":
        found.append(Mutant("activation: ReLU", blocks, nonlinearity(ops.relu), shares=True))
    if config.act_fn != "silu":
        found.append(Mutant("activation: SiLU in the blocks", blocks, nonlinearity(ops.silu), shares=True))
        own = setting(activation=keras.activations.get(config.act_fn))
        found.append(Mutant("activation: the blocks' for SiLU", fixed, own))
    return found


def _timed(function: Parts) -> Callable[[KerasLayer, KerasTensor, KerasTensor], KerasTensor]:
    """The block at one resolution, conditioned on time by ``function``."""

    def call(layer: KerasLayer, x: KerasTensor, embedding: KerasTensor) -> KerasTensor:
        hidden = layer.conv1(layer.nonlinearity(layer.norm1(x)))
        time = layer.time_emb_proj(layer.nonlinearity(embedding))[:, None, None, :]
        return _added(layer, x, function(layer, hidden, time))

    return call


def _added(layer: KerasLayer, x: KerasTensor, hidden: KerasTensor) -> KerasTensor:
    hidden = layer.conv2(layer.dropout(layer.nonlinearity(hidden)))
    x = x if layer.conv_shortcut is None else layer.conv_shortcut(x)
    return (x + hidden) / layer.factor


def _scaled(layer: KerasLayer, hidden: KerasTensor, time: KerasTensor) -> KerasTensor:
    """The correct conditioning, for either kind."""
    if not layer.scales:
        return layer.norm2(hidden + time)
    scale, shift = jnp.split(time, 2, axis=-1)
    return layer.norm2(hidden) * (1 + scale) + shift


def _not_activated(layer: KerasLayer, x: KerasTensor, embedding: KerasTensor) -> KerasTensor:
    hidden = layer.conv1(layer.nonlinearity(layer.norm1(x)))
    time = layer.time_emb_proj(embedding)[:, None, None, :]
    return _added(layer, x, _scaled(layer, hidden, time))


def _without_one(layer: KerasLayer, hidden: KerasTensor, time: KerasTensor) -> KerasTensor:
    scale, shift = jnp.split(time, 2, axis=-1)
    return layer.norm2(hidden) * scale + shift


def _swapped(layer: KerasLayer, hidden: KerasTensor, time: KerasTensor) -> KerasTensor:
    shift, scale = jnp.split(time, 2, axis=-1)
    return layer.norm2(hidden) * (1 + scale) + shift


def _before(layer: KerasLayer, hidden: KerasTensor, time: KerasTensor) -> KerasTensor:
    scale, shift = jnp.split(time, 2, axis=-1)
    return layer.norm2(hidden * (1 + scale) + shift)


def _alternating(layer: KerasLayer, hidden: KerasTensor, time: KerasTensor) -> KerasTensor:
    return layer.norm2(hidden) * (1 + time[..., 0::2]) + time[..., 1::2]


def _made(layer: KerasLayer, x: KerasTensor, embedding: KerasTensor) -> tuple[KerasTensor, KerasTensor]:
    """The residual that the block adds to its input, and its normed input."""
    normed = layer.nonlinearity(layer.norm1(x))
    time = layer.time_emb_proj(layer.nonlinearity(embedding))[:, None, None, :]
    hidden = _scaled(layer, layer.conv1(normed), time)
    return layer.conv2(layer.dropout(layer.nonlinearity(hidden))), normed


def _not_added(layer: KerasLayer, x: KerasTensor, embedding: KerasTensor) -> KerasTensor:
    return _made(layer, x, embedding)[0] / layer.factor


def _normed_added(layer: KerasLayer, x: KerasTensor, embedding: KerasTensor) -> KerasTensor:
    made, normed = _made(layer, x, embedding)
    return (normed + made) / layer.factor


def _averaged(layer: KerasLayer, x: KerasTensor, embedding: KerasTensor) -> KerasTensor:
    return (x + _made(layer, x, embedding)[0]) / (2.0 * layer.factor)


TIME = ("time_proj",)
CLASS = ("class_embedding",)


def time_mutants(config: Config) -> list[Mutant]:
    """The mutants of this configuration's kind of time embedding."""
    kind = config.time_embedding_type
    if kind == "learned":
        return [Mutant("time: off by one", NETWORK, _later)]  # its table may be that of the classes, too
    found = [
        Mutant("time: of the first sample for all", TIME, _fed(lambda t: jnp.broadcast_to(t[:1], t.shape))),
        Mutant("time: in bfloat16", TIME, _fed(lambda t: ops.cast(ops.cast(t, "bfloat16"), "float32"))),
        Mutant("time: sines and cosines swapped", TIME, calling(_halves_swapped)),
        Mutant("time: sines and cosines alternating", TIME, calling(_interleaved)),
    ]
    if kind == "fourier":
        return [
            *found,
            Mutant("time: not by its logarithm", TIME, _fed(jnp.exp)),
            Mutant("time: 2 pi left out", TIME, calling(_without_turns)),
            Mutant("time: output not divided by it", NETWORK, _not_divided),
        ]
    half, shift = config.block_out_channels[0] // 2, config.freq_shift
    other = 0.0 if shift else 1.0
    return [
        *found,
        Mutant("time: off by one", TIME, _fed(lambda t: t + 1)),
        Mutant("time: divided by 1000", TIME, _fed(lambda t: ops.cast(t, "float32") / 1000.0)),
        *([Mutant(f"time: freq_shift {other:g}", TIME, frequencies(exact(half, other)))] if half != other else []),
        Mutant("time: frequencies by the whole width", TIME, frequencies(exact(2 * half, shift)[:half])),
        Mutant("time: longest period 1000", TIME,
               frequencies(exact(half, shift) ** (np.log(1e3) / np.log(LONGEST)))),
    ]  # fmt: skip


def class_mutants(config: Config) -> list[Mutant]:
    """The mutants of class conditioning, if present."""
    if not config.classes:
        return []
    gate = "A" if config.classes == "identity" else "0"  # its layers are not run
    found = [
        Mutant("class: dropped", NETWORK, _embedding(0.0), gate=gate),
        Mutant("class: added twice", NETWORK, _embedding(2.0)),
    ]
    if config.classes == "table":
        found.append(Mutant("class: off by one", CLASS, _rolled))
        found.append(
            Mutant("class: of the first sample for all", CLASS, _fed(lambda y: ops.broadcast_to(y[:1], y.shape)))
        )
    return found


def _fed(function: Callable[[KerasTensor], KerasTensor]) -> Change:
    """The layer with its input changed."""
    return calling(lambda layer, given: type(layer).call(layer, function(given)))


def _halves_swapped(layer: KerasLayer, times: KerasTensor) -> KerasTensor:
    made = type(layer).call(layer, times)
    half = made.shape[-1] // 2
    return jnp.concatenate([made[:, half : 2 * half], made[:, :half], made[:, 2 * half :]], axis=-1)


def _interleaved(layer: KerasLayer, times: KerasTensor) -> KerasTensor:
    made = type(layer).call(layer, times)
    half = made.shape[-1] // 2
    mixed = jnp.stack([made[:, :half], made[:, half : 2 * half]], axis=-1).reshape(made.shape[0], -1)
    return jnp.concatenate([mixed, made[:, 2 * half :]], axis=-1)


def _without_turns(layer: KerasLayer, times: KerasTensor) -> KerasTensor:
    angles = jnp.log(times)[:, None] * ops.convert_to_tensor(layer.weight)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _rolled(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    """Every index looks up the next row."""
    return holding((layer.embeddings, np.roll(array_of(layer.embeddings), -1, axis=0)))


def _later(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    embed, steps = model.embed, model.config.steps
    return patch.object(model, "embed", lambda times, *labels: embed((times + 1) % steps, *labels))


def _not_divided(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    denoise = model.denoise

    def call(state: KerasTensor, embedding: KerasTensor) -> KerasTensor:
        return denoise(state, embedding.at[:, model.config.time_width :].set(1.0))

    return patch.object(model, "denoise", call)


def _embedding(factor: float) -> Change:
    """The class embedding times ``factor``; not even looked up if that is zero. The time of a Fourier embedding is
    kept."""

    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        def call(times: KerasTensor, labels: KerasTensor) -> KerasTensor:
            made = model.time_embedding(model.time_proj(times))
            if factor:
                made = made + factor * _looked_up(model, labels)
            if model.config.time_embedding_type != "fourier":
                return made
            return jnp.concatenate([made, ops.cast(times, made.dtype)[:, None]], axis=-1)

        return patch.object(model, "embed", call)

    return change


def _looked_up(model: KerasModel, labels: KerasTensor) -> KerasTensor:
    if model.config.classes == "timestep":
        labels = model.time_proj(labels)
    return labels if model.class_embedding is None else model.class_embedding(labels)
