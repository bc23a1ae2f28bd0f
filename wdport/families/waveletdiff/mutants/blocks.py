"""Known bugs of the parts of a transformer block other than attention: norms, MLPs, residuals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from keras import ops

from wdport.families.mutants import Change, Mutant, array_of, calling, holding, setting
from wdport.families.waveletdiff.mutants.places import ADAPTIVE, BLOCK, DENSE, GELU, NORM
from wdport.model import KerasLayer, KerasModel, KerasTensor


def norm_mutants() -> list[Mutant]:
    """The mutants of layer norms and of their adaptive scale and shift."""
    return [
        Mutant("layer norm epsilon 1e-3", NORM, setting(epsilon=1e-3)),
        Mutant("layer norm epsilon 1e-6", NORM, setting(epsilon=1e-6), quick=True),
        Mutant("unbiased variance", NORM, calling(_unbiased)),
        Mutant("layer norm in float32", NORM, calling(_single), quick=True),
        Mutant("adaptive halves swapped", ADAPTIVE, calling(_halves_swapped), quick=True),
        Mutant("adaptive halves interleaved", ADAPTIVE, calling(_halves_interleaved)),
        Mutant("adaptive scale plus one", ADAPTIVE, calling(_one_plus)),
        Mutant("SiLU before the adaptive layer", ADAPTIVE, calling(_silu_first)),
        Mutant("norm1's weights in norm2", BLOCK, _norm1_in_norm2, shares=True),
    ]


def mlp_mutants() -> list[Mutant]:
    """The mutants of dense layers, of activations and of the residual around the MLP."""
    time = ("time_embedding/mlp/activation",)
    return [
        Mutant("GELU by tanh", GELU, _activation(lambda x: ops.gelu(x, approximate=True)), quick=True),
        Mutant("ReLU for GELU", GELU, _activation(ops.relu)),
        Mutant("SiLU for GELU", GELU, _activation(ops.silu)),
        Mutant("GELU for SiLU", time, _activation(lambda x: ops.gelu(x, approximate=False))),
        Mutant("residual from the normed input", BLOCK, calling(_normed_residual)),
        Mutant("dense bias dropped", DENSE, _without_bias),
    ]


def _activation(function: Callable[[KerasTensor], KerasTensor]) -> Change:
    return setting(activation=function)


def _without_bias(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return holding((layer.bias, array_of(layer.bias) * 0.0))


def _unbiased(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    mean, variance = ops.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * ops.rsqrt(variance * (x.shape[-1] / (x.shape[-1] - 1)) + layer.epsilon)


def _single(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """The computation of Keras's own LayerNormalization in a float64 model."""
    narrow = ops.cast(x, "float32")
    mean, variance = ops.moments(narrow, axes=[-1], keepdims=True)
    return ops.cast((narrow - mean) * ops.rsqrt(variance + layer.epsilon), x.dtype)


def _halves(layer: KerasLayer, time: KerasTensor) -> tuple[KerasTensor, KerasTensor]:
    return ops.split(layer.ada_lin(time)[:, None, :], 2, axis=-1)


def _halves_swapped(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    shift, scale = _halves(layer, time)
    return scale * layer.norm(tokens) + shift


def _halves_interleaved(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    both = layer.ada_lin(time)[:, None, :]
    return both[..., 0::2] * layer.norm(tokens) + both[..., 1::2]


def _one_plus(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    scale, shift = _halves(layer, time)
    return (1.0 + scale) * layer.norm(tokens) + shift


def _silu_first(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    scale, shift = _halves(layer, ops.silu(time))
    return scale * layer.norm(tokens) + shift


def _norm1_in_norm2(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    one, two = layer.norm1.ada_lin, layer.norm2.ada_lin
    return holding((two.kernel, array_of(one.kernel)), (two.bias, array_of(one.bias)))


def _normed_residual(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    a = layer.norm1(tokens, time)
    tokens = tokens + layer.dropout(layer.attention(a, a, a))
    m = layer.norm2(tokens, time)
    return m + layer.mlp(m)
