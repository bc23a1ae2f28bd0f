"""The diffusion steps that a sampler visits for a number of steps, from the last one down to 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wdport.diffusion.schedules import STEPS, Array
from wdport.errors import UsageError

FEW = 20
"""Steps of :func:`even_steps` if no number is given."""

SIGNAL = 0.03
"""Least signal of its first step. The clean state that follows from a predicted noise is off by the error of the noise
divided by the signal, which is 0.003 at the last step of the default schedule."""


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


def even_steps(alpha_bar: Array, count: int | None, last: int) -> Array:
    """(S,) int64: exactly ``count`` steps, 20 if None, evenly spaced in the logarithm of signal / noise.

    They fall from the last step, ``last`` at most, whose signal is at least 0.03, or from ``last`` if that is more, to
    1; where two would be the same step, the earlier one moves. Raises :class:`UsageError` if there are fewer steps.

    Args:
        alpha_bar: (T+1,), index 0 a dummy.
        count: number of steps.
        last: the last step on which the network was trained.
    """
    values = np.asarray(alpha_bar, np.float64)[1 : last + 1]
    heard = np.flatnonzero(values >= SIGNAL**2)
    start = int(heard[-1]) + 1 if heard.size else last
    count = FEW if count is None else count
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= start:
        raise UsageError("steps", f"invalid step count {count!r}", f"give a whole number from 1 to {start}")
    ratios = np.log(values[:start]) - np.log1p(-values[:start])
    targets = np.linspace(ratios[-1], ratios[0], count)
    nearest = np.abs(ratios - targets[:, None]).argmin(1) + 1
    room = np.arange(count)[::-1]  # steps that must fit below each
    moved = np.maximum.accumulate((nearest - room)[::-1])[::-1] + room
    return np.minimum(moved, start - np.arange(count)).astype(np.int64)


def checked_steps(steps: Sequence[int] | Array, last: int) -> Array:
    """``steps`` as (S,) int64; raises :class:`UsageError` unless they fall from at most ``last`` to at least 1."""
    listed = np.asarray(steps)
    if listed.ndim != 1 or listed.size == 0 or listed.dtype.kind not in "iu":
        raise UsageError("steps", "must be a list of whole numbers", "give for example step_list(50)")
    listed = listed.astype(np.int64)
    if listed[0] > last or listed[-1] < 1 or np.any(np.diff(listed) >= 0):
        raise UsageError("steps", f"do not fall from {last} at most to 1 at least", "give for example step_list(50)")
    return listed
