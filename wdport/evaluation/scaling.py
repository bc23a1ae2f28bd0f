"""Scale series to [0, 1] by the minimum and maximum of the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from wdport.model import Array

LARGEST: Final = 1e9
"""Of a scaled value: beyond it squares of single precision overflow in a judge."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """The minimum and the maximum (F,) of real windows over windows and time; constant features have a range of 1."""

    least: Array
    largest: Array

    @staticmethod
    def of(real: Array) -> Scaling:
        """From real windows (n, N, F)."""
        least, largest = real.min((0, 1)), real.max((0, 1))
        return Scaling(least, np.where(largest > least, largest, least + 1.0))

    def __call__(self, series: Array) -> Array:
        """Scaled series (n, N, F), float64; generated values may leave [0, 1]."""
        scaled: Array = (np.asarray(series, np.float64) - self.least) / (self.largest - self.least)
        return scaled
