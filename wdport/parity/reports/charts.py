"""A verdict in; its pictures out, as HTML: errors by tap and part, by depth, along sampling runs; decoded outputs."""

from __future__ import annotations

from itertools import groupby
from math import isfinite, isnan, log10

from wdport.compare.bounds import LOGIC, TRAJECTORY
from wdport.parity.reports.axes import LinearAxis, LogAxis
from wdport.parity.reports.svg import Line, Span, chart, figure, legend, text
from wdport.parity.reports.words import doubts, number, part_name
from wdport.parity.verdict import Overlay, TapResult, Trajectory, Verdict

_MIN_COLUMNS, _COLUMNS = 24, 64
"""Cells beside one another in the heat strip, at least and at most; further ones go into the part's next line."""

_DOTTED = 100
"""Layers whose errors are drawn as dots on the line; more of them would hide the line."""

_AIR = 30.0
"""How far beyond the bound an axis reaches at least, so that the bound's label has room over its line."""

_WITHIN = (-5, -4, -3, -2, -1, 0)
_BEYOND = (2, 4, 6)
"""Upper ends of the colours, as powers of ten of error / bound: six shades within the bound, four beyond it."""


def logic_bound(verdict: Verdict) -> float:
    """The bound of the float64 errors that was in force."""
    return verdict.bounds.get("logic", LOGIC)


def heat_strip(verdict: Verdict) -> str:
    """Every tap as one cell, part by part in the order of the computation, coloured by its isolated error."""
    bound, doubted = logic_bound(verdict), doubts(verdict)
    parts = sorted({tap.part for tap in verdict.taps if tap.part is not None})
    groups = [(part, [tap for tap in verdict.taps if tap.part == part]) for part in (None, *parts)]
    groups = [(part, taps) for part, taps in groups if taps]
    columns = min(max(_MIN_COLUMNS, *(len(taps) for _, taps in groups)), _COLUMNS)
    rows = []
    for part, taps in groups:
        name = part_name(verdict, part) or f"no {verdict.words.one}"
        cells = [_cell(index, tap, columns, bound, tap.reference in doubted) for index, tap in enumerate(taps)]
        lines = -(-len(taps) // columns)
        frame = f'viewBox="0 0 {10 * columns} {20 * lines}" preserveAspectRatio="none" style="height:{22 * lines}px"'
        picture = f'<svg {frame} role="img" aria-label="layers of {text(name)}">{"".join(cells)}</svg>'
        rows.append(f'<div class="heatrow"><span title="{text(name)}">{text(name)}</span>{picture}</div>')
    return f'<div class="heat">{"".join(rows)}</div>{_heat_legend(bound)}'


def _cell(index: int, tap: TapResult, columns: int, bound: float, doubted: bool) -> str:
    row, column = divmod(index, columns)
    place = f'x="{10 * column}" y="{20 * row}" width="9" height="18"'
    style = f"{shade(tap.isolated, bound)}{' doubted' if doubted else ''}"
    tip = f"{tap.reference}: {number(tap.isolated)} alone{', not to be relied on' if doubted else ''}"
    return f'<rect class="cell {style}" {place}><title>{text(tip)}</title></rect>'


def shade(error: float, bound: float) -> str:
    """The colour class of an error: ``zero``, ``in0`` to ``in5`` within the bound, ``out0`` to ``out3`` beyond."""
    if error <= 0.0:
        return "zero"
    if not isfinite(error) or bound <= 0.0:
        return f"out{len(_BEYOND)}"
    power = log10(error) - log10(bound)
    if error <= bound:
        return f"in{sum(power > end for end in _WITHIN[:-1])}"
    return f"out{sum(power > end for end in _BEYOND)}"


def _heat_legend(bound: float) -> str:
    power = log10(bound) if bound > 0.0 else 0.0
    within = [(f"in{i}", "≤ " + number(10.0 ** (power + end))) for i, end in enumerate(_WITHIN)]
    beyond = [(f"out{i}", "≤ " + number(10.0 ** (power + end))) for i, end in enumerate(_BEYOND)]
    keys = [("zero", "0"), *within, *beyond, (f"out{len(_BEYOND)}", "more, or inf")]
    shown = "".join(f'<span><i class="swatch {style}"></i>{text(name)}</span>' for style, name in keys)
    return f'<p class="legend">{shown}<span>blue: within the bound of {number(bound)}; red: beyond it</span></p>'


def depth_chart(verdict: Verdict) -> str:
    """Isolated against cumulative float64 error, tap by tap in the order of the computation."""
    taps, bound = verdict.taps, logic_bound(verdict)
    lines = (
        Line("within the network, errors adding up", "under", [tap.cumulative for tap in taps]),
        Line("alone, fed the reference's inputs", "first", [tap.isolated for tap in taps]),
    )
    axis = LogAxis.over([_AIR * bound, *(value for line in lines for value in line.values)])
    tips = [f"{t.reference}: {number(t.isolated)} alone, {number(t.cumulative)} within the network" for t in taps]
    picture = chart(
        "float64 error of every layer",
        lines,
        axis,
        tips,
        bound=(bound, f"bound {number(bound)}"),
        spans=_part_spans(verdict),
        ends=("first layer", "output"),
        dots=len(taps) <= _DOTTED,
    )
    return legend(lines) + f'<div class="tall">{picture}</div>'


def _part_spans(verdict: Verdict) -> list[Span]:
    """Runs of taps that belong to one part."""
    spans, start = [], 0
    for part, run in groupby(verdict.taps, key=_part):
        stop = start + len(list(run))
        spans.append(Span(part_name(verdict, part), start, stop))
        start = stop
    return spans


def _part(tap: TapResult) -> int | None:
    return tap.part


def trajectory_charts(verdict: Verdict) -> str:
    """Error growth along every sampling run, one chart per sampler; "" where no sampler was run."""
    drawn = [each for each in verdict.trajectories if each.logic or each.single]
    if not drawn:
        return ""
    bound = verdict.bounds.get("trajectory", TRAJECTORY)
    axis = LogAxis.over([_AIR * bound, *(value for each in drawn for value in (*each.logic, *each.single))])
    figures = [_trajectory(each, axis, bound) for each in drawn]
    return legend(_trajectory_lines(drawn[0])) + f'<div class="small">{"".join(figures)}</div>'


def _trajectory_lines(trajectory: Trajectory) -> tuple[Line, Line]:
    return (
        Line("float32 port against float64, for information", "second", trajectory.single),
        Line("float64, held against the bound", "first", trajectory.logic),
    )


def _trajectory(trajectory: Trajectory, axis: LogAxis, bound: float) -> str:
    steps, (single, logic) = trajectory.steps, _trajectory_lines(trajectory)
    count = min(len(steps), len(logic.values), len(single.values))
    tips = [
        f"step {steps[i]}: {number(logic.values[i])} in float64, {number(single.values[i])} in float32"
        for i in range(count)
    ]
    ends = (f"step {steps[0]}", f"step {steps[-1]}") if steps else ("", "")
    worst = max(logic.values, key=_nan_last, default=0.0)
    caption = f"<b>{text(trajectory.sampler)}</b> {len(steps)} steps, worst float64 error {number(worst)}"
    name = f"error growth along {trajectory.sampler}"
    return figure(caption, chart(name, (single, logic), axis, tips, bound=(bound, f"bound {number(bound)}"), ends=ends))


def _nan_last(value: float) -> float:
    return float("inf") if isnan(value) else value


def overlay_charts(verdict: Verdict) -> str:
    """One channel decoded from each part alone, the port over the reference; "" where there are none."""
    figures = [_overlay(each, verdict.words.decoded) for each in verdict.overlays if each.reference or each.candidate]
    if not figures:
        return ""
    keys = (Line("reference, float64", "thick", ()), Line("port, float32", "thin", ()))
    return legend(keys) + f'<div class="small">{"".join(figures)}</div>'


def _overlay(overlay: Overlay, decoded: str) -> str:
    lines = (Line("reference", "thick", overlay.reference), Line("port", "thin", overlay.candidate))
    axis = LinearAxis.over([*overlay.reference, *overlay.candidate])
    pairs = list(zip(overlay.reference, overlay.candidate, strict=False))
    tips = [f"sample {i}: reference {r:.6g}, port {c:.6g}" for i, (r, c) in enumerate(pairs)]
    furthest = max((_nan_last(abs(c - r)) for r, c in pairs), default=0.0)
    said = f"<b>{text(overlay.part)}</b> largest difference {number(furthest)}"
    if lost := sum(not isfinite(value) for value in (*overlay.reference, *overlay.candidate)):
        said += f", {lost} value{'s' if lost > 1 else ''} not finite"
    if len(overlay.reference) != len(overlay.candidate):
        said += f", {len(overlay.reference)} samples against {len(overlay.candidate)}"
    ends = ("sample 0", f"sample {max(len(overlay.reference), len(overlay.candidate)) - 1}")
    return figure(said, chart(f"{decoded} of {overlay.part}", lines, axis, tips, ends=ends, dots=False))
