"""Which steps or noise levels a sampler visits, by the names of diffusers and k-diffusion.

Sources: whole steps, arXiv 2305.08891, table 2; ``karras``, arXiv 2206.00364, eq. 5; ``beta``, arXiv 2407.12173.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log
from typing import Final

import numpy as np

from wdport.diffusion.schedules import STEPS
from wdport.model import Array
from wdport.options import require_number

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
