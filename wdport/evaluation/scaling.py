"""Scale series to [0, 1] by the minimum and maximum of the real ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wdport.errors import UsageError
from wdport.model import Array


@dataclass(frozen=True, eq=False)
class Scaling:
    """The minimum and the maximum (F,) of real windows over windows and time; constant features have a range of 1."""

    least: Array
    most: Array

    @staticmethod
    def of(real: Array) -> Scaling:
        """From real windows (n, N, F)."""
        least, most = real.min((0, 1)), real.max((0, 1))
        return Scaling(least, np.where(most > least, most, least + 1.0))

    def __call__(self, series: Array) -> Array:
        """Scaled series (n, N, F), float64; generated values may leave [0, 1]."""
        scaled: Array = (np.asarray(series, np.float64) - self.least) / (self.most - self.least)
        return scaled


def require_series(name: str, series: object) -> Array:
    """Return the series (n, N, F); raises :class:`UsageError` for anything else, or values that are not finite."""
    if not isinstance(series, np.ndarray) or series.dtype.kind not in "iuf":
        raise UsageError(name, "are not an array of real numbers", "give series (n, length, features)")
    if series.ndim != 3 or 0 in series.shape:
        raise UsageError(name, f"have shape {series.shape}", "give series (n, length, features)")
    if not np.isfinite(series).all():
        count = int((~np.isfinite(series)).any((1, 2)).sum())
        raise UsageError(name, f"have NaN or infinite values in {count} of {len(series)}", "leave these series out")
    return series
