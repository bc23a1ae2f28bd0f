"""Map values to positions on an axis: a logarithmic axis with room for 0 and infinity, and a linear one.

Positions are integers from 0 at the bottom or left to :data:`SIZE` at the top or right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Final

SIZE: Final = 1000

_RAIL: Final = 110
"""Distance of zeros below the lowest decade, and of infinities above the highest: room for the labels."""

_MAX_TICKS: Final = 6

_FLAT: Final = 1e-300
"""Values that differ by less are drawn as equal, since no axis can be divided between them."""


@dataclass(frozen=True)
class LogAxis:
    """Decades ``low`` to ``high``; zeros are drawn on a line below them, infinities and NaN on one above."""

    low: int
    high: int
    zeros: bool
    infinities: bool

    @classmethod
    def over(cls, values: Iterable[float]) -> LogAxis:
        """The axis that covers all these values."""
        values = list(values)
        decades = [log10(value) for value in values if isfinite(value) and value > 0.0] or [0.0]
        low, high = floor(min(decades)), ceil(max(decades))
        zeros = any(value <= 0.0 for value in values)
        return cls(low, max(high, low + 1), zeros, not all(map(isfinite, values)))

    def place(self, value: float) -> int:
        """The position of a value."""
        if not isfinite(value):
            return SIZE
        if value <= 0.0:
            return 0
        bottom, top = _RAIL * self.zeros, SIZE - _RAIL * self.infinities
        share = (log10(value) - self.low) / (self.high - self.low)
        return round(bottom + share * (top - bottom))

    def ticks(self) -> list[tuple[int, str]]:
        """Positions and their labels, from the bottom."""
        step = ceil((self.high - self.low + 1) / _MAX_TICKS)
        marks = [(self.place(0.0), "0")] if self.zeros else []
        marks += [
            (self._decade(power), f"1e{power}" if power else "1") for power in range(self.low, self.high + 1, step)
        ]
        return [*marks, (self.place(float("inf")), "inf")] if self.infinities else marks

    def _decade(self, power: int) -> int:
        """Position of a decade, without computing 10**power, which is 0 for the smallest float64."""
        bottom, top = _RAIL * self.zeros, SIZE - _RAIL * self.infinities
        return round(bottom + (power - self.low) / (self.high - self.low) * (top - bottom))


@dataclass(frozen=True)
class LinearAxis:
    """From ``low`` to ``high``, both included."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> LinearAxis:
        """The axis that covers all finite values among these, with a small margin."""
        finite = [value for value in values if isfinite(value)] or [0.0]
        low, high = min(finite), max(finite)
        air = 0.05 * (high - low) if high - low > _FLAT else max(abs(high), 1.0)
        return cls(max(low - air, -1.7e308), min(high + air, 1.7e308))

    def place(self, value: float) -> int:
        """The position of a finite value; halving first keeps the difference of huge values finite."""
        return round(SIZE * ((value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)))

    def ticks(self) -> list[tuple[int, str]]:
        """The two ends, and zero if it is between them."""
        marks = [self.low, *([0.0] if self.low < 0.0 < self.high else []), self.high]
        return [(self.place(mark), f"{mark:.2g}") for mark in marks]


def column(index: int, count: int) -> int:
    """The middle of column ``index`` of ``count`` equal ones."""
    return round(SIZE * (index + 0.5) / count)
