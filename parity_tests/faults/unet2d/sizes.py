"""Known bugs of layers that halve and double an image: padding, means, the order of pixels."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from parity_tests.faults.unet2d.places import steps
from wdport.families.faults import Change, Mutant, calling, setting
from wdport.families.unet2d.config import Config
from wdport.model import KerasLayer, KerasTensor

EVEN = "where height and width are even, the last row and column of zeros are not read"


def size_mutants(config: Config) -> list[Mutant]:
    """The mutants of the steps of this configuration. The library's convolution may pad itself: padding faults are then
    seen there."""
    found = []
    if halves := steps(config, "down", "conv"):
        if config.downsample_padding:
            found.append(Mutant("halving: padded below and on the right alone", halves, setting(before=0), shares=True,
                                quick=True))  # fmt: skip
            found.append(Mutant("halving: padded above and on the left alone", halves, calling(_above),
                                equivalent=EVEN))  # fmt: skip
        else:
            found.append(Mutant("halving: padded on all sides", halves, setting(before=1), shares=True, quick=True))
    if means := steps(config, "down", "resnet"):
        found.append(Mutant("halving: the largest of four pixels", means, _mean(_largest), shares=True))
        found.append(Mutant("halving: every second pixel", means, _mean(lambda _, x: x[:, ::2, ::2]), shares=True))
    doubles = steps(config, "up", "conv")
    if doubles:
        found.append(Mutant("doubling: after the convolution", doubles, calling(_after), quick=True))
    doubles += tuple(f"{path}/upsample" for path in steps(config, "up", "resnet"))
    if doubles:
        found.append(Mutant("doubling: bilinear", doubles, calling(_bilinear), quick=True))
        found.append(Mutant("doubling: the image tiled", doubles, calling(_tiled)))
    return found


def _mean(function: Callable[[KerasLayer, KerasTensor], KerasTensor]) -> Change:
    """The block with another mean of four pixels, for its input and its hidden features."""
    return lambda layer, model: calling(function)(layer.downsample.conv, model)


def _above(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return layer.conv(jnp.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0))))


def _largest(_: KerasLayer, x: KerasTensor) -> KerasTensor:
    return jnp.maximum(*(jnp.maximum(x[:, at::2, ::2], x[:, at::2, 1::2]) for at in (0, 1)))


def _convolved(layer: KerasLayer, larger: KerasTensor) -> KerasTensor:
    return larger if layer.conv is None else layer.conv(larger)


def _after(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return jnp.repeat(jnp.repeat(layer.conv(x), 2, axis=1), 2, axis=2)


def _bilinear(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    batch, height, width, channels = x.shape
    return _convolved(layer, jax.image.resize(x, (batch, 2 * height, 2 * width, channels), "bilinear"))


def _tiled(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return _convolved(layer, jnp.tile(x, (1, 2, 2, 1)))
