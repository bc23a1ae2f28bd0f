"""Which steps or noise levels a sampler visits, by the names of diffusers and k-diffusion.

Sources: whole steps, arXiv 2305.08891, table 2; ``karras``, arXiv 2206.00364, eq. 5; ``beta``, arXiv 2407.12173.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log
from typing import Final

import numpy as np

from wdport.diffusion.schedules import Array

RHO: Final = 7.0
"""Default exponent of :func:`karras`."""

SHAPE: Final = 0.6
"""Both parameters of the distribution of :func:`beta`."""


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
