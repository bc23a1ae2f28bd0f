"""Known bugs that float64 does not show: a port that is correct but computes in less than float32.

They change only a float32 model, like the settings and shortcuts that they represent. Tables that were made
in float32 show against their formulas (constants, A'), the rest in float32 against the reference (float32, B).
"""

from __future__ import annotations

from keras import ops

from parity_tests.faults.waveletdiff.attention import weights_of
from wdport.families.faults import Mutant, calling
from wdport.families.waveletdiff.canary import ATTENTION, FLOAT32_ANGLES, TF32, in_float32
from wdport.model import KerasLayer, KerasTensor


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
