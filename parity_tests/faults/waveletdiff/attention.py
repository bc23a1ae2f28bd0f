"""Known bugs of attention: projections, heads, scale, softmax, biases; and of that across levels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import numpy as np
from keras import ops

from parity_tests.faults.changes import swapped
from wdport.families.faults import Change, Mutant, array_of, attributes, calling, holding, setting
from wdport.models.interface import KerasLayer, KerasModel, KerasTensor
from wdport.uses.waveletdiff.canary import (
    ATTENTION,
    CROSS_LEVEL,
    MEAN_POOLING,
    OUTPUT_BIAS,
    OUTPUT_TRANSPOSED,
    below,
    scaled_bias,
    transposed,
)
from wdport.uses.waveletdiff.config import Config

IN_BLOCKS = ("*/attention",)
"""Attention with more than one query."""


def attention_mutants(config: Config) -> list[Mutant]:
    """The mutants of both kinds of attention, and of its norms if the configuration has them."""
    packed = "" if config.qk_norm else "every logit of a query moves alike, and softmax does not see that"
    found = [Mutant(f"{part} weight not transposed", below(part), transposed) for part in ("query", "key", "value")]
    found += [
        OUTPUT_TRANSPOSED,
        Mutant("query and key swapped", ATTENTION, swapped("query", "key"), shares=True),
        Mutant("key and value swapped", ATTENTION, swapped("key", "value"), shares=True),
        Mutant("value heads split as (head width, heads)", below("value"), _interleaved_heads),
        Mutant("heads merged without transposing", IN_BLOCKS, calling(_merged_wrongly)),
        Mutant("scale 1/sqrt(model width)", ATTENTION, _scaled(lambda layer: layer.out.kernel.shape[-1] ** -0.5)),
        Mutant("attention without scale", ATTENTION, _scaled(lambda layer: 1.0)),
        Mutant("softmax over queries", ATTENTION, calling(_softmax_over_queries)),
        Mutant("key bias dropped", below("key"), scaled_bias(0.0), equivalent=packed),
        Mutant("key bias added twice", below("key"), scaled_bias(2.0), equivalent=packed),
    ]
    for part in ("query", "value", "out"):
        dropped = Mutant(f"{part} bias dropped", below(part), scaled_bias(0.0))
        found.append(OUTPUT_BIAS if part == "out" else dropped)
        found.append(Mutant(f"{part} bias added twice", below(part), scaled_bias(2.0)))
    if config.qk_norm:
        norms = ("*/query_norm", "*/key_norm")
        found.append(Mutant("RMS norm epsilon 1e-5", norms, setting(epsilon=1e-5)))
        found.append(Mutant("query and key not normalised", ATTENTION, _bare, gate="0"))
    return found


def _bare(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return attributes(layer, query_norm=None, key_norm=None)


def _scaled(scale: Callable[[KerasLayer], float]) -> Change:
    return lambda layer, _: attributes(layer, scale=scale(layer))


def _interleaved_heads(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    kernel, bias = array_of(layer.kernel), array_of(layer.bias)
    width, heads, head = kernel.shape
    turned = kernel.reshape(width, head, heads).transpose(0, 2, 1)
    return holding((layer.kernel, turned), (layer.bias, bias.reshape(head, heads).T))


def weights_of(layer: KerasLayer, query: KerasTensor, key: KerasTensor, axis: int = -1) -> KerasTensor:
    """The attention weights (B, H, Lq, Lk), with the softmax over ``axis``."""
    q, k = layer.query(query), layer.key(key)
    if layer.query_norm is not None:
        q, k = layer.query_norm(q), layer.key_norm(k)
    return ops.softmax(ops.einsum("bqhk,bshk->bhqs", q * layer.scale, k), axis=axis)


def _softmax_over_queries(layer: KerasLayer, query: KerasTensor, key: KerasTensor, value: KerasTensor) -> KerasTensor:
    weights = layer.dropout(weights_of(layer, query, key, -2))
    return layer.out(ops.einsum("bhqs,bshk->bqhk", weights, layer.value(value)))


def _merged_wrongly(layer: KerasLayer, query: KerasTensor, key: KerasTensor, value: KerasTensor) -> KerasTensor:
    weights = layer.dropout(weights_of(layer, query, key))
    heads = ops.einsum("bhqs,bshk->bhqk", weights, layer.value(value))
    batch, count, length, width = heads.shape
    return layer.out(ops.reshape(heads, (batch, length, count, width)))


def cross_level_mutants() -> list[Mutant]:
    """All mutants of the cross-level block."""
    whole, dropped = CROSS_LEVEL, calling(lambda layer, tokens, time, **_: list(tokens))
    square = ("cross_level/projection_0", "cross_level/expander_0")  # the approximation's, as wide as this block
    return [
        Mutant("dense weight not transposed", square, transposed),
        Mutant("pooling softmax over the last axis", ("cross_level/aggregator_?/softmax",), setting(axis=-1)),
        MEAN_POOLING,
        Mutant("level embeddings permuted", whole, _permuted_embeddings),
        Mutant("a level attends to itself", whole, _with_itself),
        Mutant("one attention for all levels", whole, _shared_attention, gate="0"),
        Mutant("gate input in the other order", ("cross_level/gate_?",), calling(_gate_reversed)),
        Mutant("SiLU for sigmoid", ("cross_level/gate_?/sigmoid",), setting(activation=ops.silu)),
        Mutant("one minus the gate", ("cross_level/gate_?",), calling(_one_minus)),
        Mutant("cross-level path dropped", whole, dropped, gate="0"),
    ]


def _permuted_embeddings(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    rows = array_of(layer.level_position_embeddings)
    return holding((layer.level_position_embeddings, np.roll(rows, 1, axis=0)))


def _with_itself(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return attributes(layer, others=[tuple(range(len(layer.others)))] * len(layer.others))


def _shared_attention(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    part = layer._part
    return patch.object(layer, "_part", lambda name, level: part(name, 0 if name == "attention" else level))


def _one_minus(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    return 1.0 - layer.sigmoid(layer.linear(x))


def _gate_reversed(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    width = layer.linear.units
    return layer.sigmoid(layer.linear(ops.concatenate([x[..., width:], x[..., :width]], axis=-1)))
