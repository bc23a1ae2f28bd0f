"""Noise schedules, the arrays beta, alpha and alpha_bar by name; and which steps or noise levels a sampler visits, by
the names of diffusers and k-diffusion.

All arrays are float64 and 1001 long: index t is step t, index 0 a dummy (beta 0, alpha 1, alpha_bar 1). Formulas: the
three schedules of arXiv 2510.11839; the cosine one is Nichol and Dhariwal's (arXiv 2102.09672, eq. 17) with offset
0.008.

Sources of spacings: whole steps, arXiv 2305.08891, table 2; ``karras``, arXiv 2206.00364, eq. 5; ``beta``, arXiv
2407.12173.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Final, NamedTuple

import numpy as np

from wdport.base.errors import UsageError
from wdport.base.options import require_number
from wdport.models.interface import Array

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


RHO: Final = 7.0
"""Default exponent of :func:`karras`."""

SHAPE: Final = 0.6
"""Both parameters of the distribution of :func:`beta`."""


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
    steps = np.arange(STEPS, 0, -(STEPS // step_count(count, STEPS, STEPS)))
    return steps if steps[-1] == 1 else np.append(steps, 1)


def step_count(count: int | None, default: int, largest: int) -> int:
    """``count``, or ``default`` for None; raises :class:`UsageError` unless it is a whole number up to ``largest``."""
    count = default if count is None else count
    require_number((1, largest), steps=count)
    return int(count)


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
    count = step_count(count, FEW, start)
    # log1p keeps the digits of 1 - alpha_bar where alpha_bar is small.
    ratios = np.log(values[:start]) - np.log1p(-values[:start])
    targets = np.linspace(ratios[-1], ratios[0], count)
    # (count, start) distances, of which argmin takes the first minimum: the smaller step.
    nearest = np.abs(ratios - targets[:, None]).argmin(1) + 1
    room = np.arange(count)[::-1]  # steps that must fit below each
    # Steps must fall strictly. The running maximum from the end pushes equal ones up; the minimum below keeps the
    # first ones within ``start``.
    moved = np.maximum.accumulate((nearest - room)[::-1])[::-1] + room
    return np.minimum(moved, start - np.arange(count)).astype(np.int64)


def whole_steps(spacing: str, count: int, last: int, offset: int = 0) -> Array:
    """(count,) int64 falling steps out of 1 to ``last``, for one of :data:`WHOLE`; ``offset`` is added to those of
    ``leading``, which may then lie beyond ``last``."""
    if spacing == "linspace":
        # Halves are rounded to even, as in diffusers, which also uses NumPy here.
        steps = np.linspace(0, last - 1, count).round()[::-1]
    elif spacing == "trailing":
        # Cut to ``count``: by rounding, arange may have one more element, which would be step 0.
        steps = np.round(np.arange(last, 0, -last / count))[:count] - 1
    else:
        steps = np.arange(float(count))[::-1] * (last // count) + offset
    listed: Array = steps.astype(np.int64) + 1
    return listed


def karras(sigma_max: float, sigma_min: float, count: int, rho: float = RHO) -> Array:
    """Evenly spaced in the root of the noise level, by default the seventh."""
    roots = np.linspace(sigma_max ** (1.0 / rho), sigma_min ** (1.0 / rho), count)
    return np.asarray(roots**rho)


def exponential(sigma_max: float, sigma_min: float, count: int) -> Array:
    """Evenly spaced in the logarithm of the noise level."""
    return np.exp(np.linspace(log(sigma_max), log(sigma_min), count))


def beta(sigma_max: float, sigma_min: float, count: int) -> Array:
    """Quantiles of a beta distribution, which are dense at both ends."""
    from scipy.special import betaincinv  # imported late, in 0.2 s; scipy.stats takes 0.7 s

    quantiles = betaincinv(SHAPE, SHAPE, 1.0 - np.linspace(0.0, 1.0, count))
    return np.asarray(sigma_min + (sigma_max - sigma_min) * quantiles)


WHOLE: Final = ("leading", "linspace", "trailing")
LEVELS: Final[Mapping[str, Callable[[float, float, int], Array]]] = {
    "karras": karras,
    "exponential": exponential,
    "beta": beta,
}
"""(largest, smallest, their number) to falling noise levels, noise / signal, from the largest to the smallest."""

SPACINGS: Final = (*WHOLE, *LEVELS)
