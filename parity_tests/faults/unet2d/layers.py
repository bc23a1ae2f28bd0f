"""Known bugs of group norms, and of convolutions that keep the image's size."""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax.numpy as jnp
import numpy as np
from jax import lax

from parity_tests.faults.changes import kernel, without_bias
from parity_tests.faults.unet2d.places import CONV, NORM
from wdport.families.faults import Change, Mutant, array_of, attributes, calling, holding, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.unet2d.config import Config

KERAS_EPSILON = 1e-3
"""That of Keras's own norms."""


def norm_mutants(config: Config) -> list[Mutant]:
    """The mutants of every norm."""
    found = [
        Mutant("group norm: groups of every n-th channel", NORM, calling(_strided)),
        Mutant("group norm: a group for every channel", NORM, _each_channel),
        Mutant("group norm: statistics over the batch", NORM, calling(_over_batch)),
        Mutant("group norm: unbiased variance", NORM, calling(_unbiased)),
        Mutant("group norm: epsilon outside the root", NORM, calling(_outside)),
        Mutant("group norm: scale dropped", NORM, _constant("gamma", 1.0)),
        Mutant("group norm: shift dropped", NORM, _constant("beta", 0.0)),
    ]
    if config.norm_eps != KERAS_EPSILON:
        found.append(Mutant("group norm: epsilon 1e-3", NORM, setting(epsilon=KERAS_EPSILON)))
    if config.norm_num_groups > 1:
        usual = ("*/norm1", "*/norm2", "conv_norm_out")  # attention in the middle may have other groups
        found.append(Mutant("group norm: one group", usual, setting(groups=1)))
    return found


def _each_channel(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return attributes(layer, groups=int(layer.gamma.shape[0]))


def _constant(name: str, value: float) -> Change:
    def change(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
        variable = getattr(layer, name)
        return holding((variable, np.full_like(array_of(variable), value)))

    return change


def _grouped(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    *places, channels = x.shape
    return jnp.reshape(x, (*places, layer.groups, channels // layer.groups))


def _mean(grouped: KerasTensor) -> KerasTensor:
    """Mean over all axes of (B, ..., G, C / G) except those of samples and groups."""
    return jnp.mean(grouped, axis=(*range(1, grouped.ndim - 2), -1), keepdims=True)


def _scaled(layer: KerasLayer, normal: KerasTensor, shape: tuple[int, ...]) -> KerasTensor:
    return jnp.reshape(normal, shape) * layer.gamma + layer.beta


def _strided(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """The channels of a group are G apart, as if reshaped to (C / G, G)."""
    grouped = jnp.swapaxes(jnp.reshape(x, (*x.shape[:-1], -1, layer.groups)), -1, -2)
    centred = grouped - _mean(grouped)
    normal = centred * lax.rsqrt(_mean(jnp.square(centred)) + layer.epsilon)
    return _scaled(layer, jnp.swapaxes(normal, -1, -2), x.shape)


def _over_batch(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    grouped = _grouped(layer, x)
    axes = (*range(grouped.ndim - 2), grouped.ndim - 1)
    centred = grouped - jnp.mean(grouped, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=axes, keepdims=True)
    return _scaled(layer, centred * lax.rsqrt(variance + layer.epsilon), x.shape)


def _unbiased(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    grouped = _grouped(layer, x)
    count = grouped[0].size // layer.groups
    centred = grouped - _mean(grouped)
    variance = _mean(jnp.square(centred)) * count / (count - 1)
    return _scaled(layer, centred * lax.rsqrt(variance + layer.epsilon), x.shape)


def _outside(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    grouped = _grouped(layer, x)
    centred = grouped - _mean(grouped)
    return _scaled(layer, centred / (jnp.sqrt(_mean(jnp.square(centred))) + layer.epsilon), x.shape)


def convolution_mutants() -> list[Mutant]:
    """The mutants of every convolution; kernels are (H, W, in, out)."""
    square = ("*/conv2",)  # as many channels in as out
    return [
        Mutant("convolution: kernel flipped", CONV, kernel(lambda k: k[::-1, ::-1])),
        Mutant("convolution: kernel's height and width swapped", CONV, kernel(lambda k: np.swapaxes(k, 0, 1))),
        Mutant("convolution: kernel's channels swapped", square, kernel(lambda k: np.swapaxes(k, 2, 3))),
        Mutant("convolution: bias dropped", CONV, without_bias),
        Mutant("convolution: edges repeated for zeros", square, calling(_repeated)),
    ]


def _repeated(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """Padding by the nearest pixel: the image is extended, and the output cropped."""
    larger = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    return type(layer).call(layer, larger)[:, 1:-1, 1:-1]
