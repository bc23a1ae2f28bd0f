"""Values in, places on an axis out: a logarithmic axis that has room for 0 and for infinity, and a linear one.

Places run from 0 at the bottom or left to :data:`SIZE` at the top or right, as whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Final

SIZE: Final = 1000

_RAIL: Final = 110
"""How far zeros lie below the lowest decade, and infinities above the highest: labels need the room."""

_MAX_TICKS: Final = 6

_FLAT: Final = 1e-300
"""Values that differ by less are drawn as one: no axis can be divided between them."""


@dataclass(frozen=True)
class LogAxis:
    """Decades ``low`` to ``high``; zeros lie on a rail below them and infinities and NaN on one above."""

    low: int
    high: int
    zeros: bool
    infinities: bool

    @classmethod
    def over(cls, values: Iterable[float]) -> LogAxis:
        """The axis that has room for all these values."""
        values = list(values)
        decades = [log10(value) for value in values if isfinite(value) and value > 0.0] or [0.0]
        low, high = floor(min(decades)), ceil(max(decades))
        zeros = any(value <= 0.0 for value in values)
        return cls(low, max(high, low + 1), zeros, not all(map(isfinite, values)))

    def place(self, value: float) -> int:
        """Where a value lies."""
        if not isfinite(value):
            return SIZE
        if value <= 0.0:
            return 0
        bottom, top = _RAIL * self.zeros, SIZE - _RAIL * self.infinities
        share = (log10(value) - self.low) / (self.high - self.low)
        return round(bottom + share * (top - bottom))

    def ticks(self) -> list[tuple[int, str]]:
        """Places and their labels, from the bottom."""
        step = ceil((self.high - self.low + 1) / _MAX_TICKS)
        marks = [(self.place(0.0), "0")] if self.zeros else []
        marks += [
            (self._decade(power), f"1e{power}" if power else "1") for power in range(self.low, self.high + 1, step)
        ]
        return [*marks, (self.place(float("inf")), "inf")] if self.infinities else marks

    def _decade(self, power: int) -> int:
        """Without 10**power, which is 0 for the least of float64."""
        bottom, top = _RAIL * self.zeros, SIZE - _RAIL * self.infinities
        return round(bottom + (power - self.low) / (self.high - self.low) * (top - bottom))


@dataclass(frozen=True)
class LinearAxis:
    """From ``low`` to ``high``, both included."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> LinearAxis:
        """The axis that has room for all these values that are finite, with a little air."""
        finite = [value for value in values if isfinite(value)] or [0.0]
        low, high = min(finite), max(finite)
        air = 0.05 * (high - low) if high - low > _FLAT else max(abs(high), 1.0)
        return cls(max(low - air, -1.7e308), min(high + air, 1.7e308))

    def place(self, value: float) -> int:
        """Where a finite value lies; the two halves keep the difference of huge values finite."""
        return round(SIZE * ((value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)))

    def ticks(self) -> list[tuple[int, str]]:
        """The two ends, and zero where it lies between them."""
        marks = [self.low, *([0.0] if self.low < 0.0 < self.high else []), self.high]
        return [(self.place(mark), f"{mark:.2g}") for mark in marks]


def column(index: int, count: int) -> int:
    """The middle of column ``index`` of ``count`` equal ones."""
    return round(SIZE * (index + 0.5) / count)
