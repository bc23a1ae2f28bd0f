"""The sliced Wasserstein distance of two sets of series (Bonneel et al., J. Math. Imaging Vis. 51, 2015)."""

from __future__ import annotations

from typing import Final

import numpy as np

from wdport.model import Array

DIRECTIONS: Final = 400


def sliced_wasserstein(real: Array, generated: Array, seed: int) -> float:
    """Return the distance of order 2 of two sets of as many series (n, N, F), each taken as a vector.

    Features are standardised over the real set's windows and time, and the vectors are projected on 400 random
    directions, in float64; the distance is the root of the mean of the squared distances along them.
    """
    mean, deviation = real.mean((0, 1)), real.std((0, 1))
    deviation = np.where(deviation > 0.0, deviation, 1.0)
    directions = np.random.default_rng(seed).normal(size=(real.shape[1] * real.shape[2], DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    one, other = (np.sort(((series - mean) / deviation).reshape(len(series), -1) @ directions, 0)
                  for series in (real, generated))  # fmt: skip
    return float(np.sqrt(((one - other) ** 2).mean()))
