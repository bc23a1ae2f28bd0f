"""What rounding explains: the errors that one rounding of every value between layers causes, and the samples whose
result it decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wdport.compare.calls import Case, leaves
from wdport.compare.findings import OUTPUT
from wdport.compare.gate_bounds import LEAK, LOGIC, NUMERICS
from wdport.compare.layer_errors import floors_of, output_errors
from wdport.compare.measure import largest_error, relative_errors
from wdport.models.interface import Array
from wdport.recording.calls import MASKING, Outputs
from wdport.recording.conditioning import Conditioning, Spread
from wdport.recording.observation import Observation
from wdport.recording.sample_rows import by_sample, squares_by_sample


@dataclass(frozen=True)
class Explained:
    """Relative float64 errors of a tap that one rounding explains: of its inputs, its isolated outputs and its outputs
    in the running network."""

    fed: float = 0.0
    isolated: float = 0.0
    running: float = 0.0


NOTHING = Explained()


def explained(
    conditioning: Conditioning, observation: Observation, floors: Sequence[float]
) -> tuple[dict[str, Explained], Explained]:
    """The explained errors by the reference's names, and of the output: the effect of one rounding times the ratio that
    float32 (B) allows, but at most :data:`LEAK`. ``floors`` are those of the case."""
    by_tap = {}
    for name, spread in conditioning.taps.items():
        if name not in observation.calls:
            continue
        call = observation.calls[name]
        parts = {"fed": call.inputs, "made": call.outputs, "running": call.outputs}
        by_tap[name] = Explained(*(_explained(_effect(spread, part, side, floors)) for part, side in parts.items()))
    moved = tuple(output + moves for output, moves in zip(observation.outputs, conditioning.outputs, strict=True))
    output_error = _explained(max(output_errors(moved, observation.outputs, floors)))
    return by_tap, Explained(output_error, output_error, output_error)


Loose = dict[str, dict[str, set[int]]]
"""Samples of a batch by tap and by part: "fed", "made" and "running"."""


def undetermined(conditioning: Conditioning, observation: Observation, case: Case) -> Loose:
    """The samples in which one rounding changes the reference's own result by more than :data:`LEAK`, such as
    the place of the maximum of numbers that are equal but for their rounding: those of such a layer, and of all after
    it."""
    floors, kinds = floors_of(case) or (0.0,) * case.samples, case.extremes or ("",) * case.samples
    # Odd multiples of 1/2 and so on are exact, and are there to show how numbers are rounded.
    doubtful = [index for index, kind in enumerate(kinds) if kind != "whole"]

    def lost(moves: Sequence[float], values: Sequence[object]) -> set[int]:
        sizes = _sizes(values, len(floors))
        if sizes is None or len(moves) != len(sizes):
            return set()
        if len(sizes) != len(floors):
            scales = np.maximum(sizes, np.median(sizes)) + np.finfo(np.float64).tiny
            return set(doubtful) & _samples_of(np.flatnonzero(np.sqrt(moves) / scales > LEAK), len(sizes), len(floors))
        errors = relative_errors(np.sqrt(moves), sizes, floors)
        return {index for index in doubtful if errors[index] > LEAK}

    before, within = set[int](), defaultdict[str, set[int]](set)
    loose: Loose = {}
    for name, spread in conditioning.taps.items():  # in order of completion
        call = observation.calls.get(name)
        if call is None:
            continue
        isolated, running = (lost(spread.samples.get(part, []), call.outputs) for part in ("made", "running"))
        isolated |= within[name]
        within[call.caller] |= isolated | running
        before |= isolated | running
        inputs = lost(spread.samples.get("fed", []), call.inputs)
        loose[name] = {"fed": inputs | before, "made": isolated, "running": running | before}
    moved = squares_by_sample(conditioning.outputs, len(floors))
    loose[OUTPUT] = {"made": before | (lost(moved.tolist(), observation.outputs) if moved is not None else set())}
    return loose


KERAS_MASK: Final = 1e9
"""The scores of tokens that a mask hides in ``keras.layers.MultiHeadAttention`` with dropout are the negative of it."""


def hidden_scores_win(query: Array, key: Array) -> set[int]:
    """The samples in which a score of attention is below -:data:`KERAS_MASK`, so that Keras's own layer sees what a
    mask hides; ``query`` and ``key`` are (batch, time, heads, features)."""
    if not query.ndim == key.ndim == 4 or query.shape[3] != key.shape[3] or query.shape[2] != key.shape[2]:
        return set()
    scores = np.einsum("bthd,bshd->bhts", query, key) / query.shape[3] ** 0.5
    return set(np.flatnonzero(scores.min((1, 2, 3), initial=0.0) < -KERAS_MASK).tolist())


def _explained(effect: float) -> float:
    # At most LEAK: the weakest logic fault known, a wrong epsilon, shows 1e-5.
    return min(NUMERICS * effect, LEAK)


def _effect(spread: Spread, part: str, values: Sequence[object], floors: Sequence[float]) -> float:
    """The effect of one rounding on a part of a layer's values, measured as its errors are: relative to all of them or,
    in a case with extreme values, to each sample if that is more."""
    arrays = list(_unmasked(values))
    size = float(sum(np.sum(array * array) for array in arrays))
    overall: float = (getattr(spread, part)[0] / max(size, float(np.finfo(np.float64).tiny))) ** 0.5
    moves, batch = spread.samples.get(part, []), len(floors)
    sizes = _sizes(values, batch)
    if sizes is None or len(moves) != batch:
        return overall
    return max(overall, largest_error(np.sqrt(moves), sizes, floors))


def _sizes(values: Sequence[object], batch: int) -> Array | None:
    """The norm of every sample of a batch, or row, as of :func:`squares_by_sample`; ``None`` if there are none."""
    squares = squares_by_sample(list(_unmasked(values)), batch)
    return None if squares is None else np.sqrt(squares)


MOST_MOVED: Final = 64.0
"""A sample that rounding decides may differ by this many times what the roundings that were tried change."""


def beyond_rounding(
    outputs: Outputs, reference: Outputs, moved: Outputs, samples: Collection[int], case: Case
) -> Iterator[tuple[int, float]]:
    """The outputs, by their places, that differ in one of these ``samples``, which rounding decides, by more than
    :data:`MOST_MOVED` allows, with the relative error; ``moved`` is what the roundings that were tried change."""
    for place, (ours, theirs, change) in enumerate(zip(outputs, reference, moved, strict=False)):
        if theirs.dtype.kind != "f" or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
            continue
        rows = [by_sample(array, case.samples) for array in (ours - theirs, theirs, change)]
        if any(row is None for row in rows):
            continue
        differences, sizes, moves = (np.linalg.norm(row, axis=1) for row in rows if row is not None)
        errors = relative_errors(differences, sizes, floors_of(case) or (0.0,) * case.samples)
        if further := [errors[index] for index in samples if differences[index] > MOST_MOVED * moves[index]]:
            yield place, max(further)


def _samples_of(rows: Array, length: int, count: int) -> set[int]:
    """The fewest samples that have these rows of a first axis of this length, by either order of its rows."""
    adjacent, apart = ({int(row) // (length // count) for row in rows}, {int(row) % count for row in rows})
    return min(adjacent, apart, key=len)


def counted(error: float, allowed: float) -> tuple[float, float]:
    """The error as it counts, and as it is explained: one of the two is 0."""
    # Negated, so that NaN is returned as it is and fails.
    return (error, 0.0) if error <= LOGIC or not error <= allowed else (0.0, error)


def _unmasked(values: Sequence[object]) -> Iterator[Array]:
    """All arrays, with 0 for the lowest numbers of the dtype, which masks hold and whose square is infinite."""
    for leaf in leaves(list(values)):
        array = np.asarray(leaf, dtype=np.float64)
        yield np.where(np.abs(array) < MASKING, array, 0.0)
