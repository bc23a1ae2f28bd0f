"""Known bugs of causal convolutions, and of norms by length."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import jax
import jax.numpy as jnp
import numpy as np

from wdport.families.faults import Change, Mutant, array_of, calling, holding
from wdport.model import Array, KerasLayer, KerasModel, KerasTensor

CONV = ("*/conv_in", "*/conv1", "*/conv2", "*/conv_out")
NORM = ("*/norm1", "*/norm2", "*/norm", "*/norm_out")

Past = KerasTensor | None


def convolution_mutants() -> list[Mutant]:
    """The mutants of every convolution with a window of three frames, three rows and three columns."""
    square = ("*/conv2",)  # as many channels in as out
    return [
        Mutant("convolution: frames padded on both sides", CONV, calling(_both_sides), quick=True),
        Mutant("convolution: past forgotten", CONV, calling(lambda layer, x, past=None: _own(layer, x)), quick=True),
        Mutant("convolution: past one frame too old", CONV, calling(_older), quick=True),
        Mutant("convolution: past of one frame", CONV, calling(_one)),
        Mutant("convolution: past frames exchanged", CONV, calling(_exchanged)),
        Mutant("convolution: first frame repeated for zeros", CONV, calling(_first_repeated)),
        Mutant("convolution: edges repeated for zeros", CONV, calling(_edges_repeated)),
        Mutant("convolution: kernel's frames in reverse", CONV, _kernel(lambda k: k[::-1]), quick=True),
        Mutant("convolution: kernel's height and width swapped", CONV, _kernel(lambda k: np.swapaxes(k, 1, 2))),
        Mutant("convolution: kernel's channels swapped", square, _kernel(lambda k: np.swapaxes(k, 3, 4))),
        Mutant("convolution: bias dropped", CONV, lambda layer, _: holding((layer.bias, array_of(layer.bias) * 0.0))),
        Mutant("convolution: operands in TF32", CONV, _tf32, gate="B"),
    ]


def norm_mutants() -> list[Mutant]:
    """The mutants of every norm."""
    return [
        Mutant("norm: root of the channels left out", NORM, calling(_without_root), quick=True),
        Mutant("norm: scale left out", NORM, lambda layer, _: holding((layer.scale, array_of(layer.scale) * 0 + 1))),
        Mutant("norm: epsilon added to the mean square", NORM, calling(_mean_square), quick=True),
        Mutant("norm: mean subtracted", NORM, calling(lambda layer, x: _own(layer, x - x.mean(-1, keepdims=True)))),
        Mutant("norm: over rows and channels", NORM, calling(_over_rows)),
        Mutant("norm: one plus the scale", NORM, lambda layer, _: holding((layer.scale, array_of(layer.scale) + 1))),
    ]


def _own(layer: KerasLayer, *inputs: KerasTensor) -> KerasTensor:
    return type(layer).call(layer, *inputs)


def _kernel(function: Callable[[Array], Array]) -> Change:
    def change(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
        return holding((layer.kernel, function(array_of(layer.kernel))))

    return change


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

    from wdport.families.faults import attributes

    return attributes(layer, convolve=convolve)


def _without_root(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return _own(layer, x) / x.shape[-1] ** 0.5


def _mean_square(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """As most RMS norms are."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * layer.scale


def _over_rows(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    axes = (x.ndim - 3, x.ndim - 1)
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=axes, keepdims=True)) * layer.scale
