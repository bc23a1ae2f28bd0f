"""Known bugs of residual blocks, of attention within frames, of shortcuts, and of convolutions and norms."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax
import jax.numpy as jnp
import numpy as np
from keras import ops

from parity_tests.faults.changes import kernel, nonlinearity, without_bias
from wdport.families.faults import Mutant, array_of, attributes, calling, holding
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.nets.attention import attend
from wdport.uses.wan_vae.blocks import Stream
from wdport.uses.wan_vae.config import CoderStage, Config, down_stages, flat, up_stages


def residuals(config: Config) -> tuple[str, ...]:
    """The paths of residual blocks without a convolution in the shortcut."""
    found = ["encoder/mid/resnet_0", "decoder/mid/resnet_1"]
    down, up = down_stages(config), up_stages(config)
    if config.is_residual:
        found += [f"encoder/down_{at}/resnet_{i}" for at, stage in enumerate(down)
                  for i, inputs in enumerate(stage.inputs) if inputs == stage.channels]  # fmt: skip
    else:
        found += [f"encoder/down_{at}" for at, (level, i) in enumerate(flat(config))
                  if i is not None and down[level].inputs[i] == down[level].channels]  # fmt: skip
    found += [f"decoder/up_{at}/resnet_{i}" for at, stage in enumerate(up)
              for i, inputs in enumerate(stage.inputs) if inputs == stage.channels]  # fmt: skip
    return tuple(found)


def residual_mutants(config: Config) -> list[Mutant]:
    """The mutants of residual blocks; an activation is used twice in each, and is visible at the block."""
    plain = residuals(config)
    return [
        Mutant("residual: input not added", plain, calling(lambda layer, x, stream: _made(layer, x, stream)[0])),
        Mutant("residual: normed input added", plain, calling(_normed_added)),
        Mutant("residual: activation before the norm", plain, calling(_activated_first), shares=True),
        Mutant("residual: GELU for SiLU", plain, nonlinearity(ops.gelu), shares=True),
        Mutant("residual: ReLU for SiLU", plain, nonlinearity(ops.relu), shares=True),
    ]


def attention_mutants(config: Config) -> list[Mutant]:
    """The mutants of attention; the encoder's sees several frames at a time where it does not halve them twice."""
    every = ("*/attention_0",)
    found = [
        Mutant("attention: query and key exchanged", every, calling(_attending(lambda q, k, v: attend(k, q, v)))),
        Mutant("attention: scale left out", every, calling(_attending(_unscaled))),
        Mutant("attention: input not added", every, calling(lambda layer, x: type(layer).call(layer, x) - x)),
        Mutant("attention: pixels in columns", every, calling(_transposed)),
    ]
    if config.frames < 4:
        over = Mutant("attention: among all frames", ("encoder/mid/attention_0",), calling(_over_frames))
        found.append(over)
    return found


def shortcut_mutants(config: Config) -> list[Mutant]:
    """The mutants of the shortcuts of Wan 2.2."""
    if not config.is_residual:
        return []
    down, up = down_stages(config), up_stages(config)
    averages = tuple(f"encoder/down_{at}/avg_shortcut" for at, stage in enumerate(down) if stage.resized)
    early = tuple(f"encoder/down_{at}/avg_shortcut" for at, stage in enumerate(down) if stage.temporal)
    copies = tuple(f"decoder/up_{at}/avg_shortcut" for at, stage in enumerate(up) if stage.resized)
    timed = tuple(f"decoder/up_{at}/avg_shortcut" for at, stage in enumerate(up) if stage.temporal and _differ(stage))
    levels = tuple(path.rpartition("/")[0] for path in (*averages, *copies))
    found = [
        Mutant("shortcut: left out", levels, lambda layer, _: attributes(layer, avg_shortcut=None), gate="0"),
        Mutant("shortcut: averages of rows before frames", averages, calling(_rows_first)),
        Mutant("shortcut: sums for averages", averages, calling(_sums)),
        Mutant("shortcut: zeros after the first frame", early, calling(_after)),
        Mutant("shortcut: channels tiled for repeated", copies, calling(_tiled)),
    ]
    if timed:
        found.append(Mutant("shortcut: first copy of the first frame", timed, calling(_first_copy)))
    return found


def _differ(stage: CoderStage) -> bool:
    """Whether the two frames that become of one differ: each channel is repeated less often than it has copies."""
    return stage.channels * 8 // stage.inputs[0] % 8 != 0


def _made(layer: KerasLayer, x: KerasTensor, stream: Stream) -> tuple[KerasTensor, KerasTensor]:
    """What the block adds to its input, and its normed input."""
    normed = layer.nonlinearity(layer.norm1(x))
    hidden = stream.causal(layer.conv1, normed)
    hidden = layer.dropout(layer.nonlinearity(layer.norm2(hidden)))
    return stream.causal(layer.conv2, hidden), normed


def _normed_added(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    made, normed = _made(layer, x, stream)
    return made + normed


def _activated_first(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    hidden = stream.causal(layer.conv1, layer.norm1(layer.nonlinearity(x)))
    hidden = layer.dropout(layer.nonlinearity(layer.norm2(hidden)))
    return stream.causal(layer.conv2, hidden) + x


def _attending(function: object, frames: bool = False):  # type: ignore[no-untyped-def]
    """The block with another attention (N, L, C) x 3 -> (N, L, C)."""

    def call(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
        batch, count, height, width, channels = x.shape
        images = jnp.reshape(x, (batch * count, height, width, channels))
        projected = layer.to_qkv(layer.norm(images))
        shape = (batch, -1) if frames else (batch * count, height * width)
        read = function(*jnp.split(jnp.reshape(projected, (*shape, 3 * channels)), 3, axis=-1))  # type: ignore[operator]
        return jnp.reshape(layer.proj(jnp.reshape(read, images.shape)), x.shape) + x

    return call


def _unscaled(q: KerasTensor, k: KerasTensor, v: KerasTensor) -> KerasTensor:
    return attend(q * q.shape[-1] ** 0.5, k, v)


_over_frames = _attending(attend, frames=True)


def _transposed(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """Pixels are read row by row and written column by column."""
    made = type(layer).call(layer, x) - x
    batch, frames, height, width, channels = x.shape
    return jnp.swapaxes(jnp.reshape(made, (batch, frames, width, height, channels)), 2, 3) + x


def _divided(layer: KerasLayer, x: KerasTensor, after: bool = False) -> KerasTensor:
    """(B, T / time, time, H / space, space, W / space, space, C)"""
    lacking = -x.shape[1] % layer.time
    x = jnp.pad(x, ((0, 0), (0, lacking) if after else (lacking, 0), (0, 0), (0, 0), (0, 0)))
    batch, frames, height, width, channels = x.shape
    time, space = layer.time, layer.space
    return jnp.reshape(x, (batch, frames // time, time, height // space, space, width // space, space, channels))


def _averaged(layer: KerasLayer, x: KerasTensor, order: tuple[int, ...] = (7, 2, 4, 6)) -> KerasTensor:
    x = jnp.transpose(x, (0, 1, 3, 5, *order))
    return jnp.mean(jnp.reshape(x, (*x.shape[:4], layer.channels, -1)), axis=-1)


def _rows_first(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """Rows, columns, frames, and then channels."""
    return _averaged(layer, _divided(layer, x), (4, 6, 2, 7))


def _sums(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    groups = layer.time * layer.space**2 * x.shape[-1] // layer.channels
    return type(layer).call(layer, x) * groups


def _after(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return _averaged(layer, _divided(layer, x, after=True))


def _tiled(layer: KerasLayer, x: KerasTensor, first: bool = False) -> KerasTensor:
    """The copies of all channels follow each other."""
    batch, frames, height, width, channels = x.shape
    times = layer.channels * layer.time * 4 // channels
    x = jnp.reshape(jnp.tile(x, (1, 1, 1, 1, times)), (batch, frames, height, width, layer.channels, layer.time, 2, 2))
    x = jnp.transpose(x, (0, 1, 5, 2, 6, 3, 7, 4))
    x = jnp.reshape(x, (batch, frames * layer.time, 2 * height, 2 * width, layer.channels))
    return x[:, layer.time - 1 :] if first else x


def _first_copy(layer: KerasLayer, x: KerasTensor, first: bool = False) -> KerasTensor:
    made = type(layer).call(layer, x)
    return made[:, : 1 + made.shape[1] - layer.time] if first else made


CONV = ("*/conv_in", "*/conv1", "*/conv2", "*/conv_out")
NORM = ("*/norm1", "*/norm2", "*/norm", "*/norm_out")

Past = KerasTensor | None


def convolution_mutants() -> list[Mutant]:
    """The mutants of every convolution with a window of three frames, three rows and three columns."""
    square = ("*/conv2",)  # as many channels in as out
    return [
        Mutant("convolution: frames padded on both sides", CONV, calling(_both_sides)),
        Mutant("convolution: past forgotten", CONV, calling(lambda layer, x, past=None: _own(layer, x))),
        Mutant("convolution: past one frame too old", CONV, calling(_older)),
        Mutant("convolution: past of one frame", CONV, calling(_one)),
        Mutant("convolution: past frames exchanged", CONV, calling(_exchanged)),
        Mutant("convolution: first frame repeated for zeros", CONV, calling(_first_repeated)),
        Mutant("convolution: edges repeated for zeros", CONV, calling(_edges_repeated)),
        Mutant("convolution: kernel's frames in reverse", CONV, kernel(lambda k: k[::-1])),
        Mutant("convolution: kernel's height and width swapped", CONV, kernel(lambda k: np.swapaxes(k, 1, 2))),
        Mutant("convolution: kernel's channels swapped", square, kernel(lambda k: np.swapaxes(k, 3, 4))),
        Mutant("convolution: bias dropped", CONV, without_bias),
        Mutant("convolution: operands in TF32", CONV, _tf32, gate="B"),
    ]


def norm_mutants() -> list[Mutant]:
    """The mutants of every norm."""
    return [
        Mutant("norm: root of the channels left out", NORM, calling(_without_root)),
        Mutant("norm: scale left out", NORM, lambda layer, _: holding((layer.scale, array_of(layer.scale) * 0 + 1))),
        Mutant("norm: epsilon added to the mean square", NORM, calling(_mean_square)),
        Mutant("norm: mean subtracted", NORM, calling(lambda layer, x: _own(layer, x - x.mean(-1, keepdims=True)))),
        Mutant("norm: over rows and channels", NORM, calling(_over_rows)),
        Mutant("norm: one plus the scale", NORM, lambda layer, _: holding((layer.scale, array_of(layer.scale) + 1))),
    ]


def _own(layer: KerasLayer, *inputs: KerasTensor) -> KerasTensor:
    return type(layer).call(layer, *inputs)


def _padded(x: KerasTensor, before: int, after: int = 0) -> KerasTensor:
    return jnp.pad(x, ((0, 0), (before, after), (0, 0), (0, 0), (0, 0)))


def _both_sides(layer: KerasLayer, x: KerasTensor, past: Past = None) -> KerasTensor:
    """Every part of the video is padded like an image."""
    return layer.convolve(_padded(x, 1, 1))


def _older(layer: KerasLayer, x: KerasTensor, past: Past = None) -> KerasTensor:
    return _own(layer, x) if past is None else _own(layer, x, _padded(past, 1)[:, :-1])


def _one(layer: KerasLayer, x: KerasTensor, past: Past = None) -> KerasTensor:
    return _own(layer, x) if past is None else _own(layer, x, past[:, -1:])


def _exchanged(layer: KerasLayer, x: KerasTensor, past: Past = None) -> KerasTensor:
    return _own(layer, x) if past is None else _own(layer, x, past[:, ::-1])


def _first_repeated(layer: KerasLayer, x: KerasTensor, past: Past = None) -> KerasTensor:
    known = x if past is None else jnp.concatenate([past, x], axis=1)
    lacking = layer.memory - (known.shape[1] - x.shape[1])
    return layer.convolve(jnp.concatenate([*[known[:, :1]] * lacking, known], axis=1))


def _edges_repeated(layer: KerasLayer, x: KerasTensor, past: Past = None) -> KerasTensor:
    sides = ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0))
    given = [jnp.pad(each, sides, mode="edge") for each in (x, past) if each is not None]
    return _own(layer, *given)[:, :, 1:-1, 1:-1]


def _tf32(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    """Operands rounded to ten mantissa bits, in a float32 model, as in TF32 matrix units by default."""
    if layer.compute_dtype != "float32":
        return nullcontext()
    own = layer.convolve

    def convolve(x: KerasTensor) -> KerasTensor:
        rounded = np.asarray(jax.lax.reduce_precision(jnp.asarray(layer.kernel.value), 8, 10))
        with holding((layer.kernel, rounded)):
            return own(jax.lax.reduce_precision(x, 8, 10))

    return attributes(layer, convolve=convolve)


def _without_root(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return _own(layer, x) / x.shape[-1] ** 0.5


def _mean_square(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """As most RMS norms are."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * layer.scale


def _over_rows(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    axes = (x.ndim - 3, x.ndim - 1)
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=axes, keepdims=True)) * layer.scale
