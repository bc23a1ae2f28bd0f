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
    made: float = 0.0
    running: float = 0.0


NOTHING = Explained()


def explained(told: Conditioning, seen: Observation) -> tuple[dict[str, Explained], Explained]:
    """The explained errors by the reference's names, and of the output: the effect of one rounding times the ratio that
    float32 (B) allows, but at most :data:`LEAK`."""
    found = {}
    for name, spread in told.taps.items():
        if name not in seen.calls:
            continue
        sizes = [_size(side) for side in (seen.calls[name].inputs, seen.calls[name].outputs)]
        squares = (spread.fed[0] / sizes[0], spread.made[0] / sizes[1], spread.running[0] / sizes[1])
        found[name] = Explained(*(min(NUMERICS * square**0.5, LEAK) for square in squares))
    pairs = zip(seen.outputs, told.outputs, strict=True)
    whole = min(NUMERICS * max(relative_l2(output + moves, output) for output, moves in pairs), LEAK)
    return found, Explained(whole, whole, whole)


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
