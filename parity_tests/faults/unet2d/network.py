"""Known bugs of the network as a whole: skip connections, layers that halve and double an image, its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import jax
import jax.numpy as jnp

from parity_tests.faults.changes import copied, rounded
from parity_tests.faults.unet2d.places import NETWORK, steps
from wdport.families.faults import Change, Mutant, attributes, calling, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.unet2d.config import Config, attends

Join = Callable[[KerasTensor, KerasTensor], Sequence[KerasTensor]]
"""The current features and the skip connection, in the order of their channels."""


def network_mutants(config: Config) -> list[Mutant]:
    """The mutants that this configuration can have."""
    last = (f"up_{len(config.block_out_channels) - 1}",)  # all that it takes back has one shape
    word = "input not centred" if config.center_input_sample else "input centred"
    found = [
        Mutant("skips: kept before made", ("up_?",), calling(_joined(lambda x, kept: (kept, x)))),
        Mutant("skips: first kept first", last, calling(_in_order)),
        Mutant(f"network: {word}", NETWORK, _centred),
        Mutant("network: last norm and activation swapped", NETWORK, _ends_swapped),
        Mutant("network: bfloat16 weights", NETWORK, rounded("bfloat16"), shares=True),
        Mutant("network: float16 weights", NETWORK, rounded("float16"), shares=True),
    ]
    if config.mid_block_type is not None:
        found.append(Mutant("middle: both blocks with the first's weights", ("mid",),
                            lambda layer, _: copied(layer.resnet_1, layer.resnet_0), shares=True))  # fmt: skip
        found.append(Mutant("middle: left out", NETWORK, lambda _, model: attributes(model, mid=None), gate="0"))
    if attends(config):
        found.append(Mutant("middle: attention first", ("mid",), calling(_attention_first)))
    return found


def _joined(order: Join) -> Callable[..., KerasTensor]:
    def call(layer: KerasLayer, x: KerasTensor, kept: Sequence[KerasTensor], embedding: KerasTensor) -> KerasTensor:
        for at in range(len(layer.stage.inputs)):
            x = jnp.concatenate(order(x, kept[-1 - at]), axis=-1)
            x = getattr(layer, f"resnet_{at}")(x, embedding)
            if layer.stage.attention:
                x = getattr(layer, f"attention_{at}")(x)
        if layer.upsample is None:
            return x
        return layer.upsample(x, embedding) if layer.stage.step == "resnet" else layer.upsample(x)

    return call


def _in_order(layer: KerasLayer, x: KerasTensor, kept: Sequence[KerasTensor], embedding: KerasTensor) -> KerasTensor:
    return type(layer).call(layer, x, kept[::-1], embedding)


def _centred(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    config = model.config
    return attributes(model, config=replace(config, center_input_sample=not config.center_input_sample))


def _ends_swapped(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    return attributes(model, conv_norm_out=model.conv_act, conv_act=model.conv_norm_out)


def _attention_first(layer: KerasLayer, x: KerasTensor, embedding: KerasTensor) -> KerasTensor:
    return layer.resnet_1(layer.resnet_0(layer.attention(x), embedding), embedding)


EVEN = "where height and width are even, the last row and column of zeros are not read"


def size_mutants(config: Config) -> list[Mutant]:
    """The mutants of the steps of this configuration. The library's convolution may pad itself: padding faults are then
    seen there."""
    found = []
    if halves := steps(config, "down", "conv"):
        if config.downsample_padding:
            found.append(Mutant("halving: padded below and on the right alone", halves, setting(before=0), shares=True))
            found.append(Mutant("halving: padded above and on the left alone", halves, calling(_above),
                                equivalent=EVEN))  # fmt: skip
        else:
            found.append(Mutant("halving: padded on all sides", halves, setting(before=1), shares=True))
    if means := steps(config, "down", "resnet"):
        found.append(Mutant("halving: the largest of four pixels", means, _mean(_largest), shares=True))
        found.append(Mutant("halving: every second pixel", means, _mean(lambda _, x: x[:, ::2, ::2]), shares=True))
    doubles = steps(config, "up", "conv")
    if doubles:
        found.append(Mutant("doubling: after the convolution", doubles, calling(_after)))
    doubles += tuple(f"{path}/upsample" for path in steps(config, "up", "resnet"))
    if doubles:
        found.append(Mutant("doubling: bilinear", doubles, calling(_bilinear)))
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
