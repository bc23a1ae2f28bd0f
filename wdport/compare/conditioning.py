"""Compute from the reference's conditioning how large an error one rounding explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wdport.compare.bounds import LEAK, LOGIC, NUMERICS
from wdport.compare.calls import leaves
from wdport.compare.measure import relative_l2
from wdport.compare.results import TapResult
from wdport.recorder import MASKING, Conditioning, Observation


@dataclass(frozen=True)
class Explained:
    """Relative float64 errors of a tap that one rounding explains: of its inputs, its isolated outputs and its outputs
    in the running network."""

    fed: float = 0.0
    isolated: float = 0.0
    running: float = 0.0


NOTHING = Explained()


def explained(conditioning: Conditioning, observation: Observation) -> tuple[dict[str, Explained], Explained]:
    """The explained errors by the reference's names, and of the output: the effect of one rounding times the ratio that
    float32 (B) allows, but at most :data:`LEAK`."""
    by_tap = {}
    for name, spread in conditioning.taps.items():
        if name not in observation.calls:
            continue
        sizes = [_size(side) for side in (observation.calls[name].inputs, observation.calls[name].outputs)]
        squares = (spread.fed[0] / sizes[0], spread.made[0] / sizes[1], spread.running[0] / sizes[1])
        by_tap[name] = Explained(*(min(NUMERICS * square**0.5, LEAK) for square in squares))
    pairs = zip(observation.outputs, conditioning.outputs, strict=True)
    output_error = min(NUMERICS * max(relative_l2(output + moves, output) for output, moves in pairs), LEAK)
    return by_tap, Explained(output_error, output_error, output_error)


def beyond(result: TapResult, error: float, allowed: float) -> float:
    """The error, or 0 if it exceeds the bound and is explained; the result then records it."""
    if error <= LOGIC or not error <= allowed:
        return error
    result.conditioned = max(result.conditioned, error)
    return 0.0


def _size(values: Sequence[object]) -> float:
    """Sum of squares of all arrays, without the lowest numbers that masks hold; always positive."""
    arrays = (np.asarray(leaf, dtype=np.float64) for leaf in leaves(list(values)))
    squares = (np.square(array, where=np.abs(array) < MASKING, out=np.zeros_like(array)) for array in arrays)
    return max(float(sum(np.sum(square) for square in squares)), float(np.finfo(np.float64).tiny))
