"""The canary's faults: known bugs of WaveletDiff ports and of wavelet transforms, at least one for every gate, in
the smallest port.

Most faults of transforms affect both directions, so that the round trip is still exact: only a comparison with
PyWavelets detects them.

`verify` tries all of these faults when it judges by a policy, and `wdport selftest --quick` shows them. A source
checkout has all known bugs, in ``parity_tests/faults``, which are built from the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import inf, log10
from typing import Final
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from keras import ops

from wdport.families.faults import (
    Bounds,
    Change,
    FaultGroup,
    FaultSet,
    Kill,
    Mutant,
    array_of,
    attributes,
    calling,
    holding,
    setting,
)
from wdport.models.interface import Array, KerasLayer, KerasModel, KerasTensor
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.reference import random_tensors
from wdport.uses.wavelets.check import BOUNDS, bound_name, wavelet_errors
from wdport.uses.wavelets.plan import FilterBank, TransformPlan
from wdport.uses.wavelets.transform import WaveletTransform, apply_matrix

Matrices = tuple[Array, Array]
"""Analysis (C, N) and synthesis (N, C)."""

BOTH = ("analysis", "synthesis")


@dataclass(frozen=True)
class WaveletFault:
    """A fault: maps a correct transform to wrong matrices, ``None`` if not applicable; ``ways`` are the affected
    directions."""

    name: str
    change: Callable[[WaveletTransform], Matrices | None]
    ways: tuple[str, ...] = BOTH


@dataclass(frozen=True)
class _Broken(WaveletTransform):
    """A transform with these matrices instead of the correct ones."""

    matrices: Matrices = field(kw_only=True, compare=False)

    def decompose(self, x: Array | Tensor, axis: int = -2) -> Tensor:
        return apply_matrix(self.matrices[0], x, axis % x.ndim)

    def reconstruct(self, c: Array | Tensor, axis: int = -2) -> Tensor:
        return apply_matrix(self.matrices[1], c, axis % c.ndim)


def run_wavelet_faults(
    transforms: Sequence[WaveletTransform], faults: Sequence[WaveletFault], held: Mapping[str, float] | None = None
) -> Iterator[Kill]:
    """Run every one of these faults in every transform to which it applies."""
    limits = {**{name: bound.value for name, bound in BOUNDS.items()}, **(held or {})}
    for transform in transforms:
        for fault in faults:
            matrices = fault.change(transform)
            if matrices is not None:
                yield _judge(transform, fault, matrices, limits)


def _judge(transform: WaveletTransform, fault: WaveletFault, matrices: Matrices, held: Mapping[str, float]) -> Kill:
    t = transform
    errors = wavelet_errors(_Broken(t.length, t.wavelet, t.mode, t.level, matrices=matrices))
    limit = held[bound_name(t.mode)]
    ways = {"analysis": errors.analysis, "synthesis": errors.synthesis}
    # `not <=`, so that an error of NaN is over the limit.
    sites = tuple(way for way, way_errors in ways.items() if not max(way_errors.values()) <= limit)
    over = errors.worst / limit
    # log10 raises for 0, and for an infinite error the margin is infinite.
    margin = log10(over) if 0.0 < over < inf else (inf if over else -inf)
    name = f"{t.length}/{t.wavelet}, {t.mode}"
    return Kill(name, fault.name, " and ".join(fault.ways), "F" if sites else "", "F", sites, sites == fault.ways,
                margin)  # fmt: skip


def with_filters(change: Callable[[FilterBank], FilterBank]) -> Callable[[WaveletTransform], Matrices]:
    """The transform with other filters in every stage."""

    def altered(transform: WaveletTransform) -> Matrices:
        stages = tuple(replace(stage, bank=change(stage.bank)) for stage in transform.plan.stages)
        plan = TransformPlan(transform.length, stages)
        return plan.analysis(), plan.synthesis()

    return altered


def _reversed(bank: FilterBank) -> FilterBank:
    return FilterBank(bank.dec_lo[::-1], bank.dec_hi[::-1], bank.rec_lo[::-1], bank.rec_hi[::-1])


FILTERS_REVERSED = WaveletFault("filters reversed", with_filters(_reversed))
"""The canary's fault of the transform."""


ATTENTION: Final = ("*/attention", "cross_level/attention_?")
NORM: Final = ("*/norm1/norm", "*/norm2/norm", "cross_level/norm_?/norm")
ADAPTIVE: Final = ("*/norm1", "*/norm2", "cross_level/norm_?")
DENSE: Final = ("*/mlp/hidden", "*/mlp/out", "level_?/input_proj", "level_?/output_proj", "cross_level/projection_?")
GELU: Final = ("level_?/*/mlp/activation", "cross_level/aggregator_?/activation")
TIME: Final = ("time_embedding",)
POSITION: Final = ("level_?/position",)
CROSS_LEVEL: Final = ("cross_level",)
NETWORK: Final = ("",)

Parts = Callable[[list[KerasTensor]], list[KerasTensor]]
"""A change of one array for each level."""

Time = Callable[[KerasTensor], KerasTensor]
"""A change of the time (B,)."""

Embedding = Callable[..., KerasTensor]
"""A function of the model, the time (B,) and, if given, the scale (B,) to the embedding (B, T)."""

Waves = Callable[[KerasTensor], KerasTensor]
"""An angle (B, T / 2) to the embedding (B, T)."""


def below(part: str) -> tuple[str, ...]:
    """One part of every attention."""
    return tuple(f"{place}/{part}" for place in ATTENTION)


def transposed(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    """The kernel of one part of an attention, not transposed."""
    # The kernels are (D, H, K) or (H, K, D): the fault is one of the square matrix, whose shape hides it.
    kernel = array_of(layer.kernel)
    width = kernel.shape[0] if kernel.ndim == 2 or layer.name != "out" else kernel.shape[-1]
    return holding((layer.kernel, kernel.reshape(width, width).T.reshape(kernel.shape)))


def scaled_bias(factor: float) -> Change:
    """The bias times a factor."""
    return lambda layer, _: holding((layer.bias, array_of(layer.bias) * factor))


def _single(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """A norm that JAX computes in float32; a float32 that Keras code states is float64 in a float64 model."""
    narrow = jnp.asarray(x, "float32")
    mean, variance = jnp.mean(narrow, -1, keepdims=True), jnp.var(narrow, -1, keepdims=True)
    return jnp.asarray((narrow - mean) * jax.lax.rsqrt(variance + layer.epsilon), x.dtype)


def adaptive_halves(layer: KerasLayer, time: KerasTensor) -> tuple[KerasTensor, KerasTensor]:
    """The two halves of an adaptive norm's scale and shift."""
    return ops.split(layer.ada_lin(time)[:, None, :], 2, axis=-1)


def _halves_swapped(layer: KerasLayer, tokens: KerasTensor, time: KerasTensor) -> KerasTensor:
    # The scale is first in a correct port.
    shift, scale = adaptive_halves(layer, time)
    return scale * layer.norm(tokens) + shift


def activation(function: Callable[[KerasTensor], KerasTensor]) -> Change:
    """Another activation."""
    return setting(activation=function)


def _sines(angle: KerasTensor) -> KerasTensor:
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def embedded(layer: KerasLayer, step: KerasTensor, waves: Waves = _sines) -> KerasTensor:
    """The embedding of steps (B,), by other waves."""
    return layer.mlp(waves(step[:, None] * layer.frequencies))


def position_table(function: Callable[[Array], Array]) -> Change:
    """Another table of positions."""
    return lambda layer, _: attributes(layer, table=function(layer.table))


def _own_embedding(model: KerasModel, *tensors: KerasTensor) -> KerasTensor:
    return model.embedding_of(*tensors)


def network(
    inputs: Parts = list, outputs: Parts = list, time: Time = lambda t: t, embedding: Embedding = _own_embedding
) -> Change:
    """The network with its levels' inputs, its outputs, its time or its embedding changed."""

    def call(model: KerasModel, tensors: tuple[KerasTensor, ...], training: bool | None = None) -> KerasTensor:
        config = model.config
        embedded = embedding(model, time(tensors[1]), *tensors[2:])
        levels = [getattr(model, f"level_{i}") for i in range(config.groups)]
        parts = inputs([tensors[0][:, part] for part in config.level_slices])
        tokens = [level(part, embedded) for level, part in zip(levels, parts, strict=True)]
        if model.cross_level is not None:
            tokens = model.cross_level(tokens, embedded)
        projected = [level.output_proj(h) for level, h in zip(levels, tokens, strict=True)]
        return ops.concatenate(outputs(projected), axis=1)

    return lambda _, model: calling(call)(model, model)


def _shallow(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return attributes(layer, depth=layer.depth - 2)


def rounded(dtype: str) -> Change:
    """All weights rounded to 16 bits."""
    kind = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}[dtype]

    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        arrays = ((variable, array_of(variable)) for variable in model.trainable_variables)
        return holding(*((variable, array.astype(kind).astype(array.dtype)) for variable, array in arrays))

    return change


def in_float32(change: Change) -> Change:
    """``change`` in a float32 model, nothing in a float64 one."""

    def chosen(layer: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        # Its gate compares in float32; in float64 the model stays correct, so no earlier gate finds the fault.
        return change(layer, model) if layer.compute_dtype == "float32" else nullcontext()

    return chosen


def _tf32(layer: KerasLayer, x: KerasTensor, **_: object) -> KerasTensor:
    """Operands rounded to ten mantissa bits, as in TF32 matrix units by default."""
    # Simulated: a CPU has no TF32.
    x, kernel = (jax.lax.reduce_precision(part, 8, 10) for part in (x, jnp.asarray(layer.kernel.value)))
    return ops.matmul(x, kernel) + layer.bias


def _float32_table(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    length, width = layer.table.shape
    # As a port computes it that has no float64: the angles lose up to p * 2^-24 of a radian.
    frequency = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-np.log(10_000.0) / width))
    angle = np.arange(length, dtype=np.float32)[:, None] * frequency
    table = np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(length, width)
    return attributes(layer, table=table)


def _pooling(function: Callable[[KerasLayer, int, KerasTensor], KerasTensor]) -> Change:
    @contextmanager
    def change(layer: KerasLayer, _: KerasModel) -> Iterator[None]:
        with patch.object(layer, "_pool", lambda *inputs: function(layer, *inputs)):
            yield

    return change


def _mean_pool(layer: KerasLayer, level: int, tokens: KerasTensor) -> KerasTensor:
    return layer._part("projection", level)(ops.mean(tokens, axis=1)) + layer.level_position_embeddings[level]


OUTPUT_TRANSPOSED: Final = Mutant("output weight not transposed", below("out"), transposed)
OUTPUT_BIAS: Final = Mutant("out bias dropped", below("out"), scaled_bias(0.0))
NORM_EPSILON: Final = Mutant("layer norm epsilon 1e-6", NORM, setting(epsilon=1e-6))
NORM_SINGLE: Final = Mutant("layer norm in float32", NORM, calling(_single))
HALVES_SWAPPED: Final = Mutant("adaptive halves swapped", ADAPTIVE, calling(_halves_swapped))
GELU_BY_TANH: Final = Mutant("GELU by tanh", GELU, activation(lambda x: ops.gelu(x, approximate=True)))
TIME_UNSCALED: Final = Mutant("time not scaled by 1000", TIME, calling(embedded))
POSITIONS_OFF: Final = Mutant("positions off by one", POSITION, position_table(lambda t: np.roll(t, 1, axis=0)))
TOO_SHALLOW: Final = Mutant("approximation without its two extra blocks", ("level_0",), _shallow, gate="0")
LEVELS_SWAPPED: Final = Mutant(
    "levels 0 and 1 swapped", NETWORK, network(lambda parts: [parts[1], parts[0], *parts[2:]])
)
"""Only for levels of equal lengths."""
BFLOAT16_WEIGHTS: Final = Mutant("bfloat16 weights", NETWORK, rounded("bfloat16"), shares=True)
TF32: Final = Mutant("matrix products in TF32", DENSE, in_float32(calling(_tf32)), gate="B")
FLOAT32_ANGLES: Final = Mutant("position angles in float32", POSITION, in_float32(_float32_table), gate="A'")
MEAN_POOLING: Final = Mutant("mean pooling", CROSS_LEVEL, _pooling(_mean_pool), gate="0")

MUTANTS: Final = (
    OUTPUT_TRANSPOSED, OUTPUT_BIAS, NORM_EPSILON, NORM_SINGLE, HALVES_SWAPPED, GELU_BY_TANH, TIME_UNSCALED,
    POSITIONS_OFF, TOO_SHALLOW, LEVELS_SWAPPED, BFLOAT16_WEIGHTS, TF32, FLOAT32_ANGLES, MEAN_POOLING,
)  # fmt: skip

# Equal lengths, for the fault that swaps two levels.
SMALLEST: Final = Config((5, 5, 5), 3, 16, 2, 1, 8)


def _around(held: Bounds) -> Iterator[FaultGroup]:
    """A fault of the transform, under both of its bounds."""
    transform = WaveletTransform(24, level=3)
    both = (transform, replace(transform, mode="smooth"))
    yield FaultGroup("F", "the wavelet transform", run_wavelet_faults(both, (FILTERS_REVERSED,), held))


CANARY: Final = FaultSet(FAMILY, SMALLEST, random_tensors, lambda _: MUTANTS, around=_around)
"""The set that goes through every gate."""
