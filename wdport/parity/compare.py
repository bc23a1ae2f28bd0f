"""Calls of both sides in, relative float64 errors per tap out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np

from wdport.model import Array
from wdport.parity.calls import Calls, leaves
from wdport.parity.measure import like, relative_l2
from wdport.parity.relations import arrangement
from wdport.parity.taps import Tap

Note = Callable[[str], None]


def tap_errors(tap: Tap, candidate: Calls, reference: Calls, note: Note) -> tuple[float, float] | None:
    """Relative errors of a tap's inputs and outputs, or ``None`` if one side did not run it.

    ``note`` is told in a sentence where shapes or counts differ, which counts as infinitely wrong.
    """
    own, call = candidate.get(tap.candidate), reference.get(tap.reference)
    if own is None or call is None:
        return None
    if own.inputs and not own.outputs:  # fed more or fewer tensors, so it could not be isolated
        return inf, 0.0
    outputs = [comparable(tap, side.outputs) for side in (own, call)]
    return _distance(tap, own.inputs, call.inputs, note), _distance(tap, outputs[0], outputs[1], note)


def rearranged(tap: Tap, candidate: Calls, reference: Calls) -> str | None:
    """How a tap's arrays are the reference's in another arrangement; "" if they are equal, ``None`` if they are not."""
    own, call = candidate.get(tap.candidate), reference.get(tap.reference)
    if own is None or call is None:
        return None
    found = ""
    for side in ("inputs", "outputs"):
        ours, theirs = (leaves(list(getattr(each, side))) for each in (own, call))
        if len(ours) != len(theirs):
            return None
        if side == "outputs":
            ours, theirs = comparable(tap, ours), comparable(tap, theirs)
        for c, r in zip(ours, theirs, strict=True):
            how = arrangement(*_alike(np.asarray(c), np.asarray(r)))
            if how is None:
                return None
            found = found or how
    return found


def _alike(candidate: Array, reference: Array) -> tuple[Array, Array]:
    """Both with as many axes, where one has the heads apart."""
    if candidate.ndim != reference.ndim and min(candidate.ndim, reference.ndim) > 2:
        return (array.reshape(*array.shape[:2], -1) for array in (candidate, reference))  # type: ignore[return-value]
    return candidate, reference


def comparable(tap: Tap, outputs: Sequence[Array]) -> list[Array]:
    """Outputs of either side without what the tap leaves open."""
    return [array - array.mean(axis=1, keepdims=True) for array in outputs] if tap.shift else list(outputs)


def _distance(tap: Tap, candidate: Sequence[Any], reference: Sequence[Any], note: Note) -> float:
    ours, theirs = leaves(list(candidate)), leaves(list(reference))
    if len(ours) != len(theirs):
        note(f"{tap.reference} has {len(theirs)} tensors, the port {len(ours)}")
        return inf
    try:
        return max(relative_l2(like(c, r), r) for c, r in zip(ours, theirs, strict=True))
    except ValueError as error:
        note(f"{tap.reference}: {error}")
        return inf
