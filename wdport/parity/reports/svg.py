"""Draw columns of values as a chart: HTML around inline SVG.

The SVG holds only marks and is stretched to the available width; all text is HTML beside it, positioned in per cent,
and stays readable on a narrow screen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite

from wdport.errors import printable
from wdport.parity.reports.axes import SIZE, LinearAxis, LogAxis, column
from wdport.parity.reports.words import TEXT_CHARS

Axis = LogAxis | LinearAxis

_BREAKS, _UNDERSCORES = re.compile(r"(?<=[./])(?=[^./])"), re.compile(r"(?<=_)(?=[^_])")
_LONG = 24

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


def text(value: object, limit: int = TEXT_CHARS) -> str:
    """Text from a file as HTML, for an element or a quoted attribute."""
    return escape(printable(value, limit), quote=True)


def name(value: object, limit: int = TEXT_CHARS) -> str:
    """A path or a name as HTML in which a line may break after a dot or a slash, in a long part also after an
    underscore, but never within a word."""
    parts = _BREAKS.split(printable(value, limit))
    pieces = [piece for part in parts for piece in ([part] if len(part) <= _LONG else _UNDERSCORES.split(part))]
    return "<wbr>".join(escape(piece, quote=True) for piece in pieces)


def chart(
    title: str,
    lines: Sequence[Line],
    axis: Axis,
    tips: Sequence[str],
    *,
    bound: tuple[float, str] | None = None,
    spans: Sequence[Span] = (),
    ends: tuple[str, str] = ("", ""),
    dots: bool = True,
) -> str:
    """A line chart: ``tips`` are the tooltips of the columns, ``bound`` is a dashed line with its label,
    ``spans`` are the bands under the columns, and ``ends`` are the labels at the left and right of the axis."""
    count = max((len(line.values) for line in lines), default=0)
    marks = [f'<path class="grid" d="M0 {SIZE - at}h{SIZE}"/>' for at, _ in axis.ticks()]
    marks += [_band(span, count) for span in spans[1::2]]
    if bound is not None:
        marks.append(f'<path class="bound" d="M0 {SIZE - axis.place(bound[0])}h{SIZE}"/>')
    for line in lines:
        marks.append(f'<path class="line {line.style}" d="{_path(line.values, axis)}"/>')
        if dots:
            marks.append(f'<path class="dots {line.style}" d="{_dots(line.values, axis)}"/>')
    marks += [_hit(index, count, tip) for index, tip in enumerate(tips)]
    label = (
        f'<span class="limit" style="bottom:{_percent(axis.place(bound[0]))}">{text(bound[1])}</span>' if bound else ""
    )
    ticks = "".join(f'<span style="bottom:{_percent(at)}">{text(name)}</span>' for at, name in axis.ticks())
    plot = (
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" role="img" aria-label="{text(title)}">'
        f"{''.join(marks)}</svg>{label}"
    )
    under = "".join(_label(span, count) for span in spans)
    foot = f'<div class="spans">{under}</div>' if under else ""
    foot += f'<div class="ends"><span>{text(ends[0])}</span><span>{text(ends[1])}</span></div>' if any(ends) else ""
    return f'<div class="chart"><div class="ticks">{ticks}</div><div class="plot">{plot}</div>{foot}</div>'


def legend(lines: Sequence[Line]) -> str:
    """The legend of a chart."""
    keys = [f'<span><i class="key {line.style}"></i>{text(line.name)}</span>' for line in lines]
    return f'<p class="legend">{"".join(keys)}</p>'


def figure(caption: str, body: str) -> str:
    """A chart under its caption, which is HTML."""
    return f"<figure><figcaption>{caption}</figcaption>{body}</figure>"


def _path(values: Sequence[float], axis: Axis) -> str:
    """A line through all columns; on a linear axis, which has no position for non-finite values, it breaks there."""
    parts, pen = [], "M"
    for index, value in enumerate(values):
        if isinstance(axis, LinearAxis) and not isfinite(value):
            pen = "M"
            continue
        parts.append(f"{pen}{column(index, len(values))} {SIZE - axis.place(value)}{'h0' if pen == 'M' else ''}")
        pen = "L"
    return "".join(parts)


def _dots(values: Sequence[float], axis: Axis) -> str:
    """Strokes of zero length, drawn as dots by round caps: a circle would be stretched with the chart."""
    places = [
        (column(i, len(values)), axis.place(v))
        for i, v in enumerate(values)
        if isinstance(axis, LogAxis) or isfinite(v)
    ]
    return "".join(f"M{x} {SIZE - y}h0" for x, y in places)


def _hit(index: int, count: int, tip: str) -> str:
    left, right = round(SIZE * index / count), round(SIZE * (index + 1) / count)
    return (
        f'<rect class="hit" x="{left}" y="0" width="{right - left}" height="{SIZE}"><title>{text(tip)}</title></rect>'
    )


def _band(span: Span, count: int) -> str:
    left, width = round(SIZE * span.start / count), round(SIZE * (span.stop - span.start) / count)
    return f'<rect class="band" x="{left}" y="0" width="{width}" height="{SIZE}"/>'


def _label(span: Span, count: int) -> str:
    wide = round(1000 * (span.stop - span.start) / count)
    name = text(span.label)
    return f'<span style="width:{_percent(wide)}" title="{name}">{name if wide >= _LABELLED else ""}</span>'


def _percent(place: int) -> str:
    return f"{100 * place / SIZE:g}%"
