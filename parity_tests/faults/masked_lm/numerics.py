"""Known bugs that float64 does not show: a float32 port that computes at lower precision (float32, B)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from keras import ops

from parity_tests.faults.masked_lm.attention import attending
from parity_tests.faults.masked_lm.places import ATTENTION, MLP, NORM, ROTARY
from wdport.families.faults import Change, Mutant, calling
from wdport.families.masked_lm.config import Config
from wdport.model import KerasLayer, KerasModel, KerasTensor


def numerics_mutants(config: Config) -> list[Mutant]:
    """All of them; the only angle of a head of two features is the position, which bfloat16 holds exactly."""
    dense = tuple(f"{place}/{part}" for place in MLP for part in ("gate", "up", "down"))
    found = [
        Mutant("products in TF32", dense, _in_float32(calling(_tf32)), gate="B", quick=True),
        Mutant("norm: root in bfloat16", NORM, _in_float32(calling(_rough_root)), gate="B"),
        Mutant("attention: logits in bfloat16", ATTENTION, _in_float32(attending(hide=_rough_logits)), gate="B"),
    ]
    if config.width > 2:
        found.append(Mutant("rotary: angles in bfloat16", ROTARY, _in_float32(calling(_rough_angles)), gate="B"))
    return found


def _in_float32(change: Change) -> Change:
    """``change`` in a float32 model, nothing in a float64 one."""

    def chosen(layer: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        return change(layer, model) if layer.compute_dtype == "float32" else nullcontext()

    return chosen


def _rough(x: KerasTensor) -> KerasTensor:
    return ops.cast(ops.cast(x, "bfloat16"), "float32")


def _tf32(layer: KerasLayer, x: KerasTensor, **_: object) -> KerasTensor:
    """Operands rounded to ten mantissa bits, as in TF32 matrix units by default."""
    x, kernel = (jax.lax.reduce_precision(part, 8, 10) for part in (x, jnp.asarray(layer.kernel.value)))
    return x @ kernel if layer.bias is None else x @ kernel + layer.bias


def _rough_root(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    root = lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + layer.epsilon)
    return x * _rough(root) * layer.scale


def _rough_angles(layer: KerasLayer, positions: KerasTensor) -> tuple[KerasTensor, KerasTensor]:
    angles = _rough(ops.cast(positions, "float32")[..., None] * layer.frequencies)
    angles = jnp.concatenate([angles, angles], axis=-1)
    return jnp.cos(angles), jnp.sin(angles)


def _rough_logits(logits: KerasTensor, seen: KerasTensor) -> KerasTensor:
    return jnp.where(seen[:, None, None], _rough(logits), np.finfo(logits.dtype).min)
