"""The geometry of a chart of columns of values: HTML around inline SVG, which ``templates/parts.html`` writes.

The SVG holds only marks and is stretched to the available width; all text is HTML beside it, positioned in per cent,
and stays readable on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from wdport.parity.reports.axes import SIZE, LinearAxis, LogAxis, column

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
class Span:
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
    spans: Sequence[Span] = ()
    ends: tuple[str, str] = ("", "")
    dots: bool = True

    @property
    def size(self) -> int:
        """Width and height of the SVG's coordinates."""
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
            parts.append(f"{pen}{x} {y}{'h0' if pen == 'M' else ''}")
            pen = "L"
        return "".join(parts)

    def strokes(self, line: Line) -> str:
        """Strokes of zero length, drawn as dots by round caps: a circle would be stretched with the chart."""
        places = [
            (column(i, len(line.values)), self.axis.place(v))
            for i, v in enumerate(line.values)
            if isinstance(self.axis, LogAxis) or isfinite(v)
        ]
        return "".join(f"M{x} {SIZE - y}h0" for x, y in places)


def _share(index: int, count: int) -> int:
    return round(SIZE * index / count)


def _percent(place: int) -> str:
    return f"{100 * place / SIZE:g}%"
