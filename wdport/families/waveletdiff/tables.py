"""The model's sinusoid tables, in float64: positions of a level's coefficients, and diffusion time.

The two layouts differ: positions interleave sines and cosines; time has all sines first, and its frequencies divide by
one less. Both bases are 10,000 (Vaswani et al., arXiv 1706.03762, sec. 3.5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STEPS_PER_TIME = 1000.0
"""The network's time is step / 1000; this factor converts it to steps."""

_BASE = 10_000.0


def position_table(length: int, width: int) -> NDArray[np.float64]:
    """(length, width): [p, 2k] = sin(p w_k), [p, 2k+1] = cos(p w_k), w_k = 10000^(-2k/width)."""
    frequency = np.exp(-np.arange(0, width, 2) * np.log(_BASE) / width)
    angle = np.arange(length)[:, None] * frequency
    table = np.empty((length, width))
    table[:, 0::2] = np.sin(angle)
    # An odd width has one sine more than cosines.
    table[:, 1::2] = np.cos(angle)[:, : width // 2]
    return table


def time_frequencies(width: int) -> NDArray[np.float64]:
    """(width/2,): 10000^(-k / (width/2 - 1)), in radians per diffusion step."""
    half = width // 2
    # Divided by half - 1, not half as in the positions; so the width is at least 4.
    return np.exp(-np.arange(half) * np.log(_BASE) / (half - 1))
