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


def scaled_pair(real: Array, generated: Array) -> tuple[Array, Array]:
    """Both sets (n, N, F), scaled by the real one; raises :class:`UsageError` if they do not fit together."""
    for name, series in (("real", real), ("generated", generated)):
        if np.ndim(series) != 3 or 0 in np.shape(series):
            raise UsageError(name, f"have shape {np.shape(series)}", "give series (n, length, features)")
        if not np.isfinite(series).all():
            raise UsageError(name, "have NaN or infinite values", "give finite ones")
    if real.shape[1:] != generated.shape[1:]:
        what = f"have length and features {generated.shape[1:]}, and the real ones {real.shape[1:]}"
        raise UsageError("generated", what, "give samples of these data")
    scale = Scaling.of(np.asarray(real, np.float64))
    return scale(real), scale(generated)
