"""Known bugs that float64 does not show: a port that is correct but computes in less than float32.

They change only a float32 model, like the settings and shortcuts that they represent. Tables that were made
in float32 show against their formulas (constants, A'), the rest in float32 against the reference (float32, B).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax
import jax.numpy as jnp
import numpy as np
from keras import ops

from wdport.families.mutants import Change, Mutant, attributes, calling
from wdport.families.waveletdiff.mutants.attention import weights_of
from wdport.families.waveletdiff.mutants.places import ATTENTION, DENSE
from wdport.model import KerasLayer, KerasModel, KerasTensor


def numerics_mutants() -> list[Mutant]:
    """All mutants of numerics."""
    table = ("level_?/position",)
    return [
        Mutant("matrix products in TF32", DENSE, _in_float32(calling(_tf32)), gate="B", quick=True),
        Mutant("softmax in bfloat16", ATTENTION, _in_float32(calling(_rough_softmax)), gate="B"),
        Mutant("position angles in float32", table, _in_float32(_float32_table), gate="A'", quick=True),
    ]


def _in_float32(change: Change) -> Change:
    """``change`` in a float32 model, nothing in a float64 one."""

    def chosen(layer: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        return change(layer, model) if layer.compute_dtype == "float32" else nullcontext()

    return chosen


def _tf32(layer: KerasLayer, x: KerasTensor, **_: object) -> KerasTensor:
    """Operands rounded to ten mantissa bits, as in TF32 matrix units by default."""
    x, kernel = (jax.lax.reduce_precision(part, 8, 10) for part in (x, jnp.asarray(layer.kernel.value)))
    return ops.matmul(x, kernel) + layer.bias


def _rough_softmax(layer: KerasLayer, query: KerasTensor, key: KerasTensor, value: KerasTensor) -> KerasTensor:
    weights = ops.cast(ops.cast(weights_of(layer, query, key), "bfloat16"), "float32")
    return layer.out(ops.einsum("bhqs,bshk->bqhk", layer.dropout(weights), layer.value(value)))


def _float32_table(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    length, width = layer.table.shape
    frequency = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-np.log(10_000.0) / width))
    angle = np.arange(length, dtype=np.float32)[:, None] * frequency
    table = np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(length, width)
    return attributes(layer, table=table)
