"""Known bugs of TS2Vec ports, each in one place."""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax.numpy as jnp
from keras import ops

from parity_tests.faults.changes import without_bias
from wdport.families.faults import Mutant, array_of, attributes, calling, holding, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.ts2vec.config import Config

GELU = ("*/gelu?",)
CONVOLUTION = ("*/conv?/conv",)
DILATED = ("*/block_[1-9]*/conv?/conv",)
"""Convolutions with a dilation above 1."""


def mutants(config: Config) -> tuple[Mutant, ...]:
    """All mutants that this configuration can have."""
    last = (f"*/block_{config.depth}",)
    found = [
        Mutant("GELU by tanh", GELU, setting(activation=lambda x: ops.gelu(x, approximate=True)),
               facts="GELU by tanh where"),
        Mutant("ReLU for GELU", GELU, setting(activation=ops.relu), facts="ReLU where the reference has GELU"),
        Mutant("convolution bias dropped", CONVOLUTION, without_bias),
        Mutant("input added without projection", last, calling(_unprojected)),
        Mutant("mean over time for the maximum", ("pool",), calling(lambda _, x: jnp.mean(x, axis=1))),
        Mutant("last step for the maximum", ("pool",), calling(lambda _, x: x[:, -1])),
        Mutant("dropout on", ("repr_dropout",), calling(lambda _, x, **__: x / 0.9)),
    ]  # fmt: skip
    if config.kernel_size > 1:
        found += [
            Mutant("dilation halved", DILATED, _halved, facts="dilation"),
            Mutant("causal padding", CONVOLUTION, setting(padding="causal"), facts="padding"),
            Mutant("kernel flipped in time", CONVOLUTION, _flipped),
        ]
    return tuple(found)


def _halved(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return attributes(layer, dilation_rate=(layer.dilation_rate[0] // 2,))


def _flipped(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return holding((layer.kernel, array_of(layer.kernel)[::-1]))


def _unprojected(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """The network's last block without a projection, like the others; if channel counts differ, over the common
    channels."""
    made = layer.conv2(layer.gelu2(layer.conv1(layer.gelu1(x))))
    width = min(made.shape[-1], x.shape[-1])
    return made.at[..., :width].add(x[..., :width])
