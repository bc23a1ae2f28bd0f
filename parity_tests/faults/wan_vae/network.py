"""Known bugs of the autoencoder as a whole, and of the steps between its levels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from parity_tests.faults.changes import copied, rounded
from wdport.families.faults import Change, Mutant, calling, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.wan_vae import blocks as streams
from wdport.uses.wan_vae import port as ports
from wdport.uses.wan_vae.blocks import Frames, Stream, each_frame
from wdport.uses.wan_vae.config import GROUP, Config, down_stages, flat, up_stages

NETWORK = ("",)


def network_mutants(config: Config) -> list[Mutant]:
    """The mutants that this configuration can have."""
    centre, spread = (np.asarray(each) for each in (config.latents_mean, config.latents_std))
    found = [
        Mutant("network: mean and log-variance exchanged", NETWORK, _split(lambda mean, logvar: (logvar, mean))),
        Mutant("network: deviation for log-variance", NETWORK,
               _split(lambda mean, logvar: (mean, jnp.exp(0.5 * logvar)))),
        Mutant("network: latents in reverse order", NETWORK, _latents(lambda x: x[:, ::-1])),
        Mutant("network: channels of latents in reverse", NETWORK, _latents(lambda x: x[..., ::-1])),
        Mutant("network: latents' height and width exchanged", NETWORK, _latents(_turned)),
        Mutant("network: convolution of the moments left out", NETWORK, _left_out("quant_conv"), gate="0"),
        Mutant("network: convolution of the latents left out", NETWORK, _left_out("post_quant_conv"), gate="0"),
        Mutant("network: bfloat16 weights", NETWORK, rounded("bfloat16"), shares=True),
        Mutant("middle: attention first", ("*/mid",), calling(_attention_first)),
        Mutant("middle: both blocks with the first's weights", ("*/mid",),
               lambda layer, _: copied(layer.resnet_1, layer.resnet_0), shares=True),
    ]  # fmt: skip
    if not config.is_residual:  # whose shortcuts do not take such a part
        found.append(Mutant("network: first part not special", NETWORK, _whole_groups, shares=True))
    if config.z_dim == 1:
        found = [each for each in found if "channels of latents" not in each.name]
    if config.normalises:
        found.append(Mutant("network: latents normalised", NETWORK, _latents(lambda x: (x - centre) / spread)))
    if config.patch > 1:
        found += [
            Mutant("patches: rows before columns, encoder", NETWORK, _patches("patchify")),
            Mutant("patches: rows before columns, decoder", NETWORK, _patches("unpatchify")),
        ]
    return found


def _split(function: Callable[[KerasTensor, KerasTensor], tuple[KerasTensor, KerasTensor]]) -> Change:
    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        own = model.split
        return patch.object(model, "split", lambda moments: function(*own(moments)))

    return change


def _latents(function: Callable[[KerasTensor], KerasTensor]) -> Change:
    """What is decoded is a function of the mean."""

    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        own = model._decoded
        return patch.object(model, "_decoded", lambda mean: own(function(mean)))

    return change


def _turned(x: KerasTensor) -> KerasTensor:
    """As if flattened by rows and read by columns."""
    batch, frames, height, width, channels = x.shape
    return jnp.reshape(jnp.swapaxes(x, 2, 3), (batch, frames, height, width, channels))


def _whole_groups(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    """The encoder takes the frames in groups from the first on."""

    def moments(x: KerasTensor) -> KerasTensor:
        stream, made = Frames(), []
        for at in range(0, x.shape[1], GROUP):
            last = min(at + GROUP, x.shape[1])
            made.append(model.encoder(x[:, last - GROUP : last], stream=stream))
            stream.next()
        count = (x.shape[1] - 1) // model.config.frames + 1
        return model.quant_conv(jnp.concatenate(made, axis=1)[:, :count])

    return patch.object(model, "_moments", moments)


def _left_out(name: str) -> Change:
    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        return patch.dict(model.__dict__, {name: lambda x: x})

    return change


def _patches(name: str) -> Change:
    """Patches whose rows and columns are exchanged."""
    own = getattr(ports, name)

    def wrong(x: KerasTensor, size: int) -> KerasTensor:
        return jnp.swapaxes(own(jnp.swapaxes(x, 2, 3), size), 2, 3)

    return lambda _, model: patch.object(ports, name, wrong)


def _attention_first(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    return layer.resnet_1(layer.resnet_0(layer.attention_0(x), stream=stream), stream=stream)


SAME = "at twice the size, both take the same pixel"


def down_steps(config: Config, temporal: bool = False) -> tuple[str, ...]:
    """The encoder's steps; with ``temporal``, those that halve the frames."""
    stages = down_stages(config)
    places = enumerate(flat(config))
    levels = ([(at, stage, f"encoder/down_{at}/resampler") for at, stage in enumerate(stages) if stage.resized]
              if config.is_residual else
              [(level, stages[level], f"encoder/down_{at}") for at, (level, block) in places if block is None]
              )  # fmt: skip
    return tuple(path for _, stage, path in levels if stage.temporal or not temporal)


def up_steps(config: Config, temporal: bool = False) -> tuple[str, ...]:
    """The decoder's steps; with ``temporal``, those that double the frames."""
    stages = enumerate(up_stages(config))
    return tuple(f"decoder/up_{at}/resampler" for at, stage in stages
                 if stage.resized and (stage.temporal or not temporal))  # fmt: skip


def step_mutants(config: Config) -> list[Mutant]:
    """The mutants of both kinds of steps."""
    halves = tuple(f"{path}/resample" for path in down_steps(config))
    doubles = tuple(f"{path}/resample" for path in up_steps(config))
    found = [
        Mutant("halving: padded above and on the left", halves,
               calling(lambda layer, x: layer.conv(jnp.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0))))), shares=True),
        Mutant("halving: padded on all sides", halves, setting(before=1), shares=True),
        Mutant("doubling: bilinear", doubles, calling(_resized("bilinear"))),
        Mutant("doubling: the image tiled", doubles, calling(lambda s, x: s.conv(jnp.tile(x, (1, 2, 2, 1))))),
        Mutant("doubling: after the convolution", doubles,
               calling(lambda s, x: jnp.repeat(jnp.repeat(s.conv(x), 2, axis=1), 2, axis=2))),
        Mutant("doubling: nearest for nearest-exact", doubles, calling(_resized("nearest")), equivalent=SAME),
    ]  # fmt: skip
    if earlier := down_steps(config, temporal=True):
        found += [
            Mutant("frames halved: the first one too", earlier, calling(_first_halved), shares=True),
            Mutant("frames halved: past forgotten", earlier, calling(_halved_alone), shares=True),
            Mutant("frames halved: every second one taken", earlier, calling(_every_second), gate="0"),
        ]
    if later := up_steps(config, temporal=True):
        found += [
            Mutant("frames doubled: the first one too", later, calling(_first_doubled), shares=True),
            Mutant("frames doubled: first frame seen", later, calling(_first_seen), shares=True),
            Mutant("frames doubled: halves exchanged", later, calling(_pairing(_exchanged))),
            Mutant("frames doubled: channels alternating", later, calling(_pairing(_alternating))),
            Mutant("frames doubled: each one repeated", later, calling(_repeated), gate="0"),
        ]
    if any(each.temporal for each in up_stages(config)[1:]):  # at the latents' size, a call has one frame
        second = tuple(
            f"decoder/up_{at}/resampler" for at, each in enumerate(up_stages(config)) if at and each.temporal
        )
        found.append(Mutant("frames doubled: halves in a row", second, calling(_pairing(_in_a_row))))
    return found


def _resized(method: str) -> Callable[[KerasLayer, KerasTensor], KerasTensor]:
    def call(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
        batch, height, width, channels = x.shape
        return layer.conv(jax.image.resize(x, (batch, 2 * height, 2 * width, channels), method))

    return call


def _first_halved(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    """Zeros come before the first frame, as in a plain causal convolution."""
    if not stream.first:
        return type(layer).call(layer, x, stream=stream)
    x = each_frame(layer.resample, x)
    stream.halve(layer.time_conv, x)  # keeps it
    return layer.time_conv(jnp.concatenate([jnp.zeros_like(x), jnp.zeros_like(x), x], axis=1))


def _halved_alone(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    if stream.first:
        return type(layer).call(layer, x, stream=stream)
    x = each_frame(layer.resample, x)
    return layer.time_conv(jnp.concatenate([jnp.zeros_like(x[:, :1]), x], axis=1))


def _every_second(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    x = each_frame(layer.resample, x)
    return x if stream.first else x[:, 1::2]


def _first_doubled(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    made = type(layer).call(layer, x, stream=stream)
    return jnp.repeat(made, 2, axis=1) if stream.first else made


def _first_seen(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    """The second frame's convolution sees the first one, where the library has zeros."""
    if stream.first:
        stream._exchange(layer.time_conv, x, streams.KEPT)  # type: ignore[attr-defined]
    return type(layer).call(layer, x, stream=stream)


def _pairing(wrong: Callable[[KerasTensor], KerasTensor]) -> Callable[..., KerasTensor]:
    def call(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
        with patch.object(streams, "paired", wrong):
            return type(layer).call(layer, x, stream=stream)

    return call


def _halves(x: KerasTensor) -> tuple[KerasTensor, KerasTensor]:
    first, second = jnp.split(x, 2, axis=-1)
    return first, second


def _together(first: KerasTensor, second: KerasTensor) -> KerasTensor:
    both = jnp.stack([first, second], axis=2)
    return jnp.reshape(both, (first.shape[0], -1, *first.shape[2:]))


def _exchanged(x: KerasTensor) -> KerasTensor:
    return _together(*_halves(x)[::-1])


def _alternating(x: KerasTensor) -> KerasTensor:
    return _together(x[..., 0::2], x[..., 1::2])


def _in_a_row(x: KerasTensor) -> KerasTensor:
    return jnp.concatenate(_halves(x), axis=1)


def _repeated(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    return each_frame(layer.resample, x if stream.first else jnp.repeat(x, 2, axis=1))
