"""The geometry of a chart of columns of values: axes, positions, and HTML around inline SVG, which
``templates/parts.html`` writes.

Positions are integers from 0 at the bottom or left to :data:`SIZE` at the top or right.

The SVG holds only marks and is stretched to the available width; all text is HTML next to it, positioned in per cent,
and stays readable on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        # At least one decade, or `place` would divide by zero.
        return cls(low, max(high, low + 1), zeros, not all(map(isfinite, values)))

    def place(self, value: float) -> int:
        if not isfinite(value):
            return SIZE
        if value <= 0.0:
            return 0
        return self._decade(log10(value))

    def ticks(self) -> list[tuple[int, str]]:
        """Positions and their labels, from the bottom."""
        step = ceil((self.high - self.low + 1) / _MAX_TICKS)
        marks = [(self.place(0.0), "0")] if self.zeros else []
        powers = range(self.low, self.high + 1, step)
        marks += [(self._decade(power), f"1e{power}" if power else "1") for power in powers]
        return [*marks, (self.place(float("inf")), "inf")] if self.infinities else marks

    def _decade(self, power: float) -> int:
        """Position of a power of ten, without computing 10**power, which is 0 for the smallest float64."""
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
        # The margin must not make an end infinite.
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


Axis = LogAxis | LinearAxis

_LABELLED = 90
"""Minimum width of a span, in thousandths, for its label to fit on a narrow screen."""


@dataclass(frozen=True)
class Line:
    """One series of a chart: its name, its CSS class and one value for every column."""

    name: str
    style: str
    values: Sequence[float]


@dataclass(frozen=True)
class AxisSpan:
    """A range of columns with one label under it."""

    label: str
    start: int
    stop: int


@dataclass(frozen=True)
class Chart:
    """A line chart: ``tips`` are the tooltips of the columns, ``bound`` is a dashed line with its label,
    ``spans`` are the bands under the columns, and ``ends`` are the labels at the left and right of the axis."""

    title: str
    lines: Sequence[Line]
    axis: Axis
    tips: Sequence[str]
    bound: tuple[float, str] | None = None
    spans: Sequence[AxisSpan] = ()
    ends: tuple[str, str] = ("", "")
    dots: bool = True

    @property
    def size(self) -> int:
        return SIZE

    @property
    def ticks(self) -> list[tuple[int, str, str]]:
        """Labels of the axis, from the bottom: y of the grid's line, the label, and its CSS position."""
        return [(SIZE - y, label, _percent(y)) for y, label in self.axis.ticks()]

    @property
    def limit(self) -> tuple[int, str, str] | None:
        """The bound: y of its line, its label, and the label's CSS position."""
        if self.bound is None:
            return None
        y = self.axis.place(self.bound[0])
        return SIZE - y, self.bound[1], _percent(y)

    @property
    def bands(self) -> list[tuple[int, int]]:
        """Left edge and width of every second span's band."""
        return [(_share(span.start, self._count), _share(span.stop - span.start, self._count))
                for span in self.spans[1::2]]  # fmt: skip

    @property
    def labels(self) -> list[tuple[str, str, bool]]:
        """Every span's label and CSS width, and whether the label fits."""
        widths = [_share(span.stop - span.start, self._count) for span in self.spans]
        return [(span.label, _percent(w), w >= _LABELLED) for span, w in zip(self.spans, widths, strict=True)]

    @property
    def hits(self) -> list[tuple[int, int, str]]:
        """Left edge and width of every column with a tooltip, and the tooltip."""
        edges = [_share(index, max(self._count, 1)) for index in range(len(self.tips) + 1)]
        return [(edges[i], edges[i + 1] - edges[i], tip) for i, tip in enumerate(self.tips)]

    @property
    def _count(self) -> int:
        return max((len(line.values) for line in self.lines), default=0)

    def path(self, line: Line) -> str:
        """A line through all columns; on a linear axis, which has no position for non-finite values, it breaks
        there."""
        parts, pen = [], "M"
        for index, value in enumerate(line.values):
            if isinstance(self.axis, LinearAxis) and not isfinite(value):
                pen = "M"
                continue
            x, y = column(index, len(line.values)), SIZE - self.axis.place(value)
            # A stroke of zero length makes a single point visible, by its round cap.
            parts.append(f"{pen}{x} {y}{'h0' if pen == 'M' else ''}")
            pen = "L"
        return "".join(parts)

    def strokes(self, line: Line) -> str:
        """Strokes of zero length, drawn as dots by round caps: a circle would be stretched with the chart."""
        places = [(column(i, len(line.values)), self.axis.place(v)) for i, v in enumerate(line.values)
                  if isinstance(self.axis, LogAxis) or isfinite(v)]  # fmt: skip
        return "".join(f"M{x} {SIZE - y}h0" for x, y in places)


def _share(index: int, count: int) -> int:
    return round(SIZE * index / count)


def _percent(place: int) -> str:
    return f"{100 * place / SIZE:g}%"
