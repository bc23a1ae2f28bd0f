"""Known bugs of the steps to another size: padding, nearest neighbours, and the first frame of a video."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import jax
import jax.numpy as jnp

from wdport.families.faults import Mutant, calling, setting
from wdport.families.wan_vae import stream as streams
from wdport.families.wan_vae.blocks import each_frame
from wdport.families.wan_vae.config import Config, down_stages, flat, up_stages
from wdport.families.wan_vae.stream import Stream
from wdport.model import KerasLayer, KerasTensor

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
        Mutant("halving: padded above and on the left", halves, calling(_above), quick=True, shares=True),
        Mutant("halving: padded on all sides", halves, setting(before=1), shares=True),
        Mutant("doubling: bilinear", doubles, calling(_resized("bilinear")), quick=True),
        Mutant("doubling: the image tiled", doubles, calling(lambda s, x: s.conv(jnp.tile(x, (1, 2, 2, 1))))),
        Mutant("doubling: after the convolution", doubles,
               calling(lambda s, x: jnp.repeat(jnp.repeat(s.conv(x), 2, axis=1), 2, axis=2))),
        Mutant("doubling: nearest for nearest-exact", doubles, calling(_resized("nearest")), equivalent=SAME),
    ]  # fmt: skip
    if earlier := down_steps(config, temporal=True):
        found += [
            Mutant("frames halved: the first one too", earlier, calling(_first_halved), shares=True, quick=True),
            Mutant("frames halved: past forgotten", earlier, calling(_halved_alone), shares=True),
            Mutant("frames halved: every second one taken", earlier, calling(_every_second), gate="0"),
        ]
    if later := up_steps(config, temporal=True):
        found += [
            Mutant("frames doubled: the first one too", later, calling(_first_doubled), shares=True, quick=True),
            Mutant("frames doubled: first frame seen", later, calling(_first_seen), shares=True, quick=True),
            Mutant("frames doubled: halves exchanged", later, calling(_pairing(_exchanged)), quick=True),
            Mutant("frames doubled: channels alternating", later, calling(_pairing(_alternating))),
            Mutant("frames doubled: each one repeated", later, calling(_repeated), gate="0"),
        ]
    if any(each.temporal for each in up_stages(config)[1:]):  # at the latents' size, a call has one frame
        second = tuple(
            f"decoder/up_{at}/resampler" for at, each in enumerate(up_stages(config)) if at and each.temporal
        )
        found.append(Mutant("frames doubled: halves in a row", second, calling(_pairing(_in_a_row)), quick=True))
    return found


def _above(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return layer.conv(jnp.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0))))


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
