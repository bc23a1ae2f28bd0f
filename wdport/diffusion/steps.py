"""The diffusion steps that a sampler visits for a number of steps, from the last one down to 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wdport.diffusion.schedules import STEPS, Array
from wdport.errors import UsageError


def step_list(count: int | None = None) -> Array:
    """(S,) int64: the checkpoint's own rule for ``count`` steps; every step from 1000 to 1 if None.

    Below 1000 it strides by 1000 // count from 1000 and appends 1 if the stride does not end there, so S often differs
    from ``count``: 50 gives 51 steps, 300 gives 334. Raises :class:`UsageError` outside 1 to 1000.
    """
    if count is None:
        count = STEPS
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= STEPS:
        raise UsageError("steps", f"invalid step count {count!r}", f"give a whole number from 1 to {STEPS}")
    steps = np.arange(STEPS, 0, -(STEPS // int(count)))
    return steps if steps[-1] == 1 else np.append(steps, 1)


def checked_steps(steps: Sequence[int] | Array, last: int) -> Array:
    """``steps`` as (S,) int64; raises :class:`UsageError` unless they fall from at most ``last`` to at least 1."""
    listed = np.asarray(steps)
    if listed.ndim != 1 or listed.size == 0 or listed.dtype.kind not in "iu":
        raise UsageError("steps", "must be a list of whole numbers", "give for example step_list(50)")
    listed = listed.astype(np.int64)
    if listed[0] > last or listed[-1] < 1 or np.any(np.diff(listed) >= 0):
        raise UsageError("steps", f"do not fall from {last} at most to 1 at least", "give for example step_list(50)")
    return listed
