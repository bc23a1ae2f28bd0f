"""Known bugs of the other parts of a transformer block: norms, MLPs, residuals, and their precision."""

from __future__ import annotations

from contextlib import AbstractContextManager

from keras import ops

from parity_tests.faults.waveletdiff.attention import weights_of
from wdport.families.faults import Mutant, array_of, calling, holding, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.waveletdiff.canary import (
    ADAPTIVE,
    ATTENTION,
    DENSE,
    FLOAT32_ANGLES,
    GELU,
    GELU_BY_TANH,
    HALVES_SWAPPED,
    NORM,
    NORM_EPSILON,
    NORM_SINGLE,
    TF32,
    activation,
    adaptive_halves,
    in_float32,
    scaled_bias,
)

BLOCK = ("level_?/block_?",)


def norm_mutants() -> list[Mutant]:
    """The mutants of layer norms and of their adaptive scale and shift."""
    return [
        Mutant("layer norm epsilon 1e-3", NORM, setting(epsilon=1e-3)),
        NORM_EPSILON,
        Mutant("unbiased variance", NORM, calling(_unbiased)),
        NORM_SINGLE,
        HALVES_SWAPPED,
        Mutant("adaptive halves interleaved", ADAPTIVE, calling(_halves_interleaved)),
        Mutant("adaptive scale plus one", ADAPTIVE, calling(_one_plus)),
        Mutant("SiLU before the adaptive layer", ADAPTIVE, calling(_silu_first)),
        Mutant("norm1's weights in norm2", BLOCK, _norm1_in_norm2, shares=True),
    ]


def mlp_mutants() -> list[Mutant]:
    """The mutants of dense layers, of activations and of the residual around the MLP."""
    time = ("time_embedding/mlp/activation",)
    return [
        GELU_BY_TANH,
        Mutant("ReLU for GELU", GELU, activation(ops.relu)),
        Mutant("SiLU for GELU", GELU, activation(ops.silu)),
        Mutant("GELU for SiLU", time, activation(lambda x: ops.gelu(x, approximate=False))),
        Mutant("residual from the normed input", BLOCK, calling(_normed_residual)),
        Mutant("dense bias dropped", DENSE, scaled_bias(0.0)),
    ]


def _unbiased(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    mean, variance = ops.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * ops.rsqrt(variance * (x.shape[-1] / (x.shape[-1] - 1)) + layer.epsilon)


def _halves_interleaved(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    both = layer.ada_lin(time)[:, None, :]
    return both[..., 0::2] * layer.norm(tokens) + both[..., 1::2]


def _one_plus(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    scale, shift = adaptive_halves(layer, time)
    return (1.0 + scale) * layer.norm(tokens) + shift


def _silu_first(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    scale, shift = adaptive_halves(layer, ops.silu(time))
    return scale * layer.norm(tokens) + shift


def _norm1_in_norm2(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    one, two = layer.norm1.ada_lin, layer.norm2.ada_lin
    return holding((two.kernel, array_of(one.kernel)), (two.bias, array_of(one.bias)))


def _normed_residual(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    a = layer.norm1(tokens, time)
    tokens = tokens + layer.dropout(layer.attention(a, a, a))
    m = layer.norm2(tokens, time)
    return m + layer.mlp(m)


def numerics_mutants() -> list[Mutant]:
    """All mutants of numerics."""
    return [
        TF32,
        Mutant("softmax in bfloat16", ATTENTION, in_float32(calling(_rough_softmax)), gate="B"),
        FLOAT32_ANGLES,
    ]


def _rough_softmax(layer: KerasLayer, query: KerasTensor, key: KerasTensor, value: KerasTensor) -> KerasTensor:
    weights = ops.cast(ops.cast(weights_of(layer, query, key), "bfloat16"), "float32")
    return layer.out(ops.einsum("bhqs,bshk->bqhk", layer.dropout(weights), layer.value(value)))
