"""Known bugs that float64 does not show: a float32 port that computes at lower precision (float32, B)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax
import jax.numpy as jnp
from keras import ops

from parity_tests.faults.unet2d.places import CONV, attention
from wdport.families.faults import Change, Mutant, calling
from wdport.families.unet2d.config import Config
from wdport.model import KerasLayer, KerasModel, KerasTensor


def numerics_mutants(config: Config) -> list[Mutant]:
    """All of them."""
    found = [Mutant("convolutions in TF32", CONV, _in_float32(calling(_tf32)), gate="B", quick=True)]
    if places := attention(config):
        found.append(Mutant("attention: softmax in bfloat16", places, _in_float32(calling(_rough)), gate="B"))
    return found


def _in_float32(change: Change) -> Change:
    """``change`` in a float32 model, nothing in a float64 one."""

    def chosen(layer: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        return change(layer, model) if layer.compute_dtype == "float32" else nullcontext()

    return chosen


def _tf32(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """Operands rounded to ten mantissa bits, as in TF32 matrix units by default."""
    x, kernel = (jax.lax.reduce_precision(part, 8, 10) for part in (x, jnp.asarray(layer.kernel.value)))
    return ops.conv(x, kernel, padding="same") + layer.bias


def _rough(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    pixels = jnp.reshape(x if layer.norm is None else layer.norm(x), (x.shape[0], -1, x.shape[-1]))
    q, k, v = (layer._heads(projection(pixels)) for projection in (layer.query, layer.key, layer.value))
    logits = jnp.einsum("bqhk,bshk->bhqs", q * layer.head_width**-0.5, k)
    weights = ops.cast(ops.cast(jax.nn.softmax(logits, axis=-1), "bfloat16"), "float32")
    read = jnp.einsum("bhqs,bshk->bqhk", weights, v)
    made = layer.dropout(layer.out(jnp.reshape(read, (*pixels.shape[:2], layer.num_heads * layer.head_width))))
    return (jnp.reshape(made, x.shape) + x) / layer.factor
