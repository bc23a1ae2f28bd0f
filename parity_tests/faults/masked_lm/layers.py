"""Known bugs of norms by the root mean square, and of the gated network: its two halves, its activation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import jax.numpy as jnp
import numpy as np
from jax import lax
from keras import ops

from parity_tests.faults.changes import swapped, without_bias
from wdport.families.faults import Mutant, array_of, calling, holding, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.masked_lm.config import Config

# Places of the port's layers, as patterns of structural paths.
NORM = ("block_*/attention_norm", "block_*/mlp_norm", "norm")
ATTENTION = ("block_*/attention",)
MLP = ("block_*/mlp",)
BLOCK = ("block_?",)
ROTARY = ("rotary",)
HEAD = ("lm_head",)
EMBEDDING = ("embed_tokens",)
NETWORK = ("",)

OTHER_EPSILON = 1e-3
ROUNDED = "float32 and float64 are not rounded before the scale; only 16 bits are"


def norm_mutants(config: Config) -> list[Mutant]:
    """The mutants of every norm."""
    found = [
        Mutant("norm: mean subtracted", NORM, calling(_centred)),
        Mutant("norm: scale dropped", NORM, _without_scale),
        Mutant("norm: scaled by one more", NORM, calling(lambda s, x: _normal(s, x) * (1 + s.scale))),
        Mutant("norm: scaled before it is divided", NORM, calling(lambda s, x: _normal(s, x * s.scale))),
        Mutant("norm: scaled before it is rounded", NORM, calling(_scaled_wide), equivalent=ROUNDED),
        Mutant("norm: epsilon outside the root", NORM, calling(_outside)),
        Mutant("norm: the sum for the mean", NORM, calling(_summed)),
        Mutant("norm: over the tokens too", NORM, calling(_over_tokens)),
    ]
    if config.rms_norm_eps != OTHER_EPSILON:
        found.append(Mutant("norm: epsilon 1e-3", NORM, setting(epsilon=OTHER_EPSILON)))
    return found


def _square(x: KerasTensor) -> KerasTensor:
    return jnp.mean(jnp.square(x), axis=-1, keepdims=True)


def _normal(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return x * lax.rsqrt(_square(x) + layer.epsilon)


def _centred(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return _normal(layer, x - jnp.mean(x, axis=-1, keepdims=True)) * layer.scale


def _without_scale(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return holding((layer.scale, np.ones_like(array_of(layer.scale))))


def _scaled_wide(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return ops.cast(_normal(layer, x) * ops.cast(layer.scale, x.dtype), x.dtype)


def _outside(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return x / (jnp.sqrt(_square(x)) + layer.epsilon) * layer.scale


def _summed(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return x * lax.rsqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + layer.epsilon) * layer.scale


def _over_tokens(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return x * lax.rsqrt(jnp.mean(jnp.square(x), axis=(1, 2), keepdims=True) + layer.epsilon) * layer.scale


FUNCTIONS: dict[str, Callable[[KerasTensor], KerasTensor]] = {
    "silu": ops.silu,
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, approximate=True),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "sigmoid": ops.sigmoid,
}


def feed_forward_mutants(config: Config) -> list[Mutant]:
    """The mutants of every gated network."""
    act = tuple(f"{place}/act" for place in MLP)
    found = [
        Mutant("gate: activation of the other half", MLP, calling(lambda s, x: s.down(s.gate(x) * s.act(s.up(x))))),
        Mutant("gate: weights of the halves swapped", MLP, swapped("gate", "up"), shares=True),
        Mutant("gate: no activation", MLP, calling(lambda s, x: s.down(s.gate(x) * s.up(x))), gate="0"),
        Mutant("gate: added, not multiplied", MLP, calling(lambda s, x: s.down(s.act(s.gate(x)) + s.up(x)))),
        Mutant("gate: activation of the product", MLP, calling(lambda s, x: s.down(s.act(s.gate(x) * s.up(x))))),
        Mutant("gate: left out", MLP, calling(lambda s, x: s.down(s.act(s.up(x)))), gate="0"),
    ]  # fmt: skip
    found += [
        Mutant(f"activation: {name} for {config.hidden_act}", act, setting(activation=function))
        for name, function in FUNCTIONS.items() if name != config.hidden_act
    ]  # fmt: skip
    if config.mlp_bias:
        places = tuple(f"{place}/{part}" for place in MLP for part in ("gate", "up", "down"))
        found.append(Mutant("gate: bias dropped", places, without_bias))
    return found
