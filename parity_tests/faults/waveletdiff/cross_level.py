"""Known bugs of cross-level attention: pooling, the attended levels, the gate."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

import numpy as np
from keras import ops

from wdport.families.faults import Mutant, array_of, attributes, calling, holding, setting
from wdport.families.waveletdiff.canary import CROSS_LEVEL, MEAN_POOLING
from wdport.model import KerasLayer, KerasModel, KerasTensor


def cross_level_mutants() -> list[Mutant]:
    """All mutants of the cross-level block."""
    whole, dropped = CROSS_LEVEL, calling(lambda layer, tokens, time, **_: list(tokens))
    square = ("cross_level/projection_0", "cross_level/expander_0")  # the approximation's, as wide as this block
    return [
        Mutant("dense weight not transposed", square, _transposed),
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


def _transposed(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return holding((layer.kernel, array_of(layer.kernel).T))


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
