"""Known bugs of residual blocks: time conditioning, addition, division, activation."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import keras
import numpy as np
from keras import ops

from parity_tests.faults.unet2d.places import plain
from wdport.families.faults import Change, Mutant, attributes, calling, setting
from wdport.families.unet2d.config import Config
from wdport.model import KerasLayer, KerasTensor

Parts = Callable[[KerasLayer, KerasTensor, KerasTensor], KerasTensor]
"""Maps (layer, output of ``conv1``, projected time (B, 1, 1, C or 2C)) to the input of the next activation."""


def residual_mutants(config: Config) -> list[Mutant]:
    """The mutants of residual blocks at one resolution."""
    same = ("*/resnet_?",)
    found = [
        Mutant("residual: embedding not activated", same, calling(_not_activated)),
        Mutant("residual: dropout on", ("*/resnet_?/dropout",), calling(lambda _, x, **__: x * _mask(x) / 0.9)),
    ]
    if places := plain(config):
        found.append(Mutant("residual: input not added", places, calling(_not_added), quick=True))
        found.append(Mutant("residual: normed input added", places, calling(_normed_added)))
        found.append(Mutant("residual: input and result averaged", places, calling(_averaged)))
    if config.mid_block_type is not None and config.mid_block_scale_factor != 1:
        found.append(Mutant("residual: output not divided", ("mid/resnet_?",), setting(factor=1.0)))
    if config.resnet_time_scale_shift == "scale_shift":
        found += [
            Mutant("residual: scale without the one", same, calling(_timed(_without_one)), quick=True),
            Mutant("residual: scale and shift swapped", same, calling(_timed(_swapped)), quick=True),
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
    tanh = _activation(lambda x: ops.gelu(x, approximate=True))
    found = [Mutant("activation: identity for SiLU", fixed, setting(activation=keras.activations.linear))]
    if config.act_fn == "silu":
        found.append(Mutant("activation: GELU by tanh for SiLU", blocks, tanh, shares=True))
    if config.act_fn == "gelu":
        found.append(Mutant("activation: GELU by tanh", blocks, tanh, shares=True))
    if config.act_fn != "relu":
        found.append(Mutant("activation: ReLU", blocks, _activation(ops.relu), shares=True, quick=True))
    if config.act_fn != "silu":
        found.append(Mutant("activation: SiLU in the blocks", blocks, _activation(ops.silu), shares=True))
        own = setting(activation=keras.activations.get(config.act_fn))
        found.append(Mutant("activation: the blocks' for SiLU", fixed, own))
    return found


def _activation(function: Callable[[KerasTensor], KerasTensor]) -> Change:
    return lambda layer, _: attributes(layer.nonlinearity, activation=function)


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


def _mask(x: KerasTensor) -> KerasTensor:
    keep = np.random.default_rng(0).random(tuple(x.shape)) < 0.9
    return ops.cast(keep, keras.backend.standardize_dtype(x.dtype))
