"""Noise schedules: the arrays beta, alpha and alpha_bar by name, and falling steps of them.

All arrays are float64 and 1001 long: index t is step t, index 0 a dummy (beta 0, alpha 1, alpha_bar 1). Formulas: the
three schedules of arXiv 2510.11839; the cosine one is Nichol and Dhariwal's (arXiv 2102.09672, eq. 17) with offset
0.008.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wdport.errors import UsageError
from wdport.model import Array

STEPS = 1000
NAMES = ("exponential", "linear", "cosine")
_BETA_MIN, _BETA_MAX, _BETA_CAP = 1e-4, 0.02, 0.9999


class NoiseSchedule(NamedTuple):
    """beta, alpha = 1 - beta, and alpha_bar = the running product of alpha; each (1001,) float64."""

    beta: Array
    alpha: Array
    alpha_bar: Array


def per_mille(last: int) -> Array:
    """(T+1,) times step / T, divided here because XLA would multiply by the inverse instead."""
    times: Array = np.arange(last + 1) / last
    return times


def noise_schedule(name: str) -> NoiseSchedule:
    """The schedule with this name, in float64; raises ``KeyError`` for an unknown one."""
    beta = np.concatenate([[0.0], {"exponential": _exponential, "linear": _linear, "cosine": _cosine}[name]()])
    return NoiseSchedule(beta, 1.0 - beta, np.cumprod(1.0 - beta))


def identify_schedule(beta: Array, tolerance: Mapping[str, float], relative: float = 0.0) -> str | None:
    """The schedule whose beta is everywhere within its tolerance (absolute, plus ``relative``) of ``beta``."""
    if beta.shape != (STEPS + 1,):
        return None
    for name in NAMES:
        expected = noise_schedule(name).beta
        if np.all(np.abs(beta - expected) <= tolerance[name] + relative * expected):
            return name
    return None


def _exponential() -> Array:
    u = np.linspace(0.0, 1.0, STEPS)
    beta = _BETA_MIN + (_BETA_MAX - _BETA_MIN) * (1.0 - np.exp(-2.0 * u))
    # The running maximum belongs to the published formula; this curve rises anyway.
    clipped: Array = np.clip(np.maximum.accumulate(beta), _BETA_MIN, _BETA_CAP)
    return clipped


def _linear() -> Array:
    return np.linspace(_BETA_MIN, _BETA_MAX, STEPS)


def _cosine() -> Array:
    x = np.arange(STEPS + 1)
    f = np.cos((x / STEPS + 0.008) / 1.008 * np.pi / 2.0) ** 2
    clipped: Array = np.clip(1.0 - f[1:] / f[:-1], _BETA_MIN, _BETA_CAP)
    return clipped


def checked_steps(steps: Sequence[int] | Array, last: int) -> Array:
    """``steps`` as (S,) int64; raises :class:`UsageError` unless they fall from at most ``last`` to at least 1."""
    listed = np.asarray(steps)
    if listed.ndim != 1 or listed.size == 0 or listed.dtype.kind not in "iu":
        raise UsageError("steps", "must be a list of whole numbers", "give for example step_list(50)")
    listed = listed.astype(np.int64)
    if listed[0] > last or listed[-1] < 1 or np.any(np.diff(listed) >= 0):
        raise UsageError("steps", f"do not fall from {last} at most to 1 at least", "give for example step_list(50)")
    return listed
