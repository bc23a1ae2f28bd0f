"""The charts of a verdict, as data: errors by tap and part, by depth, along sampling runs; decoded outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite, isnan, log10

from wdport.parity.reports.phrases import doubts, float64_errors, number, own_error, part_name
from wdport.parity.reports.svg import AxisSpan, Chart, Line, LinearAxis, LogAxis
from wdport.parity.verdict import Overlay, TapResult, Trajectory, Verdict

_MIN_COLUMNS, _COLUMNS = 24, 64
"""Minimum and maximum number of cells in a row of the heat strip; further ones go into the part's next row."""

_FED, _FOOT = 6, 4
"""Heights of the stripes at the top and the bottom of a cell, which is 18 high."""

_MOST_SPANS = 10
"""Maximum number of names below the axis, of equal width: more do not fit."""

_DOTTED = 100
"""Maximum number of layers that are drawn with dots on the line; more dots would hide the line."""

_AIR = 30.0
"""Minimum factor by which an axis extends beyond the bound, so that the bound's label fits above its line."""

_WITHIN = (-5, -4, -3, -2, -1, 0)
_BEYOND = (2, 4, 6)
"""Upper ends of the colours, as powers of ten of error / bound: six shades within the bound, four beyond it."""


@dataclass(frozen=True)
class Stripe:
    """A coloured part of a cell: its CSS classes, its top edge and its height."""

    style: str
    y: int
    height: int


@dataclass(frozen=True)
class HeatCell:
    """One tap: its tooltip, whether its numbers are not reliable, its left edge and its stripes."""

    tip: str
    doubted: bool
    x: int
    stripes: Sequence[Stripe]


@dataclass(frozen=True)
class HeatRow:
    """The taps of one part, in lines of so many columns; ``label`` describes the picture in words."""

    name: str
    label: str
    columns: int
    lines: int
    cells: Sequence[HeatCell]


@dataclass(frozen=True)
class Heat:
    """The heat strip: a row for every part, the bound of float64, and CSS classes with their meanings."""

    rows: Sequence[HeatRow]
    bound: str
    keys: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Figure:
    """A chart with its caption, which begins with a name."""

    name: str
    caption: str
    chart: Chart


@dataclass(frozen=True)
class Figures:
    """Charts with one legend, that of these lines."""

    legend: Sequence[Line]
    figures: Sequence[Figure]


def heat_strip(verdict: Verdict) -> Heat:
    """Every tap as one cell, part by part in the order of the computation, coloured by its float64 errors: at the top
    that of its inputs, at the bottom that of its outputs from the reference's inputs."""
    held, doubted = (verdict.bound("logic"), verdict.bound("numerics")), doubts(verdict)
    parts = sorted({tap.part for tap in verdict.taps if tap.part is not None})
    groups = [(part, [tap for tap in verdict.taps if tap.part == part]) for part in (None, *parts)]
    groups = [(part, taps) for part, taps in groups if taps]
    columns = min(max(_MIN_COLUMNS, *(len(taps) for _, taps in groups)), _COLUMNS)
    rows = []
    for part, taps in groups:
        name = part_name(verdict, part) or (f"no {verdict.words.one}" if verdict.parts else "all layers")
        cells = [_cell(index, tap, columns, held, tap.reference in doubted) for index, tap in enumerate(taps)]
        faulty = sum(not (tap.sound(*held) and tap.fed(*held)) for tap in taps)
        label = f"layers of {name}: {len(taps)} in all, {faulty or 'none'} beyond a bound"
        rows.append(HeatRow(name, label, columns, -(-len(taps) // columns), cells))
    return Heat(rows, number(held[0]), _heat_keys(held[0]))


def _cell(index: int, tap: TapResult, columns: int, held: tuple[float, float], doubted: bool) -> HeatCell:
    """Stripes for the errors of the inputs and of the isolated outputs, and a foot if float32 exceeds its bound."""
    (row, column), (logic, numerics) = divmod(index, columns), held
    y, ratio = 20 * row, max(tap.rms_ratio, tap.max_ratio, tap.inputs_ratio)
    stripes = [
        Stripe(f"fed {shade(tap.inputs, logic)}", y, _FED),
        Stripe(f"own {shade(tap.isolated, logic)}", y + _FED, 18 - _FED),
    ]
    if not ratio <= numerics:
        stripes.append(Stripe(f"single {shade(ratio, numerics)}", y + 18 - _FOOT, _FOOT))
    tip = f"{tap.reference}: {number(tap.isolated)} isolated, {number(tap.inputs)} in its inputs, "
    tip += f"{number(ratio)} times the reference's float32 error{', not reliable' if doubted else ''}"
    return HeatCell(tip, doubted, 10 * column, stripes)


def shade(error: float, bound: float) -> str:
    """The colour class of an error: ``zero``, ``in0`` to ``in5`` within the bound, ``out0`` to ``out3`` beyond."""
    if error <= 0.0:
        return "zero"
    if not isfinite(error) or bound <= 0.0:
        return f"out{len(_BEYOND)}"
    # The quotient could underflow to zero; the difference of logarithms cannot.
    power = log10(error) - log10(bound)
    if error <= bound:
        return f"in{sum(power > end for end in _WITHIN[:-1])}"
    return f"out{sum(power > end for end in _BEYOND)}"


def _heat_keys(bound: float) -> list[tuple[str, str]]:
    power = log10(bound) if bound > 0.0 else 0.0
    within = [(f"in{i}", "≤ " + number(10.0 ** (power + end))) for i, end in enumerate(_WITHIN)]
    beyond = [(f"out{i}", "≤ " + number(10.0 ** (power + end))) for i, end in enumerate(_BEYOND)]
    return [("zero", "0"), *within, *beyond, (f"out{len(_BEYOND)}", "more, or inf")]


def depth_chart(verdict: Verdict) -> Chart:
    """Isolated and cumulative float64 error, tap by tap in the order of the computation."""
    taps, bound = verdict.taps, verdict.bound("logic")
    lines = (
        Line("within the network, cumulative", "under", [tap.cumulative for tap in taps]),
        Line("isolated: fed the reference's inputs, or of its inputs", "first", list(map(own_error, taps))),
    )
    axis = LogAxis.over([_AIR * bound, *(value for line in lines for value in line.values)])
    tips = [f"{tap.reference}: {float64_errors(tap)}" for tap in taps]
    spans = _spans(verdict)
    ends = ("", "") if len(spans) == len(taps) else (taps[0].reference, taps[-1].reference)
    return Chart("float64 error of every layer", lines, axis, tips, bound=(bound, f"bound {number(bound)}"),
                 spans=spans, ends=ends, dots=len(taps) <= _DOTTED)  # fmt: skip


def _spans(verdict: Verdict) -> list[AxisSpan]:
    """The parts of the output that the layers belong to, or else their modules, as deep inside as there is room for
    names; of many layers in one module, the first of every few."""
    taps = verdict.taps
    if verdict.parts:
        return _runs([part_name(verdict, tap.part) for tap in taps])
    names = [tap.reference for tap in taps]
    depths = range(1, 1 + max(name.count(".") + 1 for name in names))
    by_depth = [_runs([".".join(name.split(".")[:depth]) for name in names]) for depth in depths]
    fitting = [spans for spans in by_depth if len(spans) <= _MOST_SPANS]
    step = -(-len(names) // _MOST_SPANS)
    return fitting[-1] if fitting else _runs([names[index - index % step] for index in range(len(names))])


def _runs(labels: Sequence[str]) -> list[AxisSpan]:
    """A span for every run of one label."""
    spans, start = [], 0
    for label, run in groupby(labels):
        stop = start + len(list(run))
        spans.append(AxisSpan(label, start, stop))
        start = stop
    return spans


def trajectory_charts(verdict: Verdict) -> Figures | None:
    """Error growth along every sampling run, one chart per sampler; ``None`` if no sampler was run."""
    drawn = [trajectory for trajectory in verdict.trajectories if trajectory.logic or trajectory.single]
    if not drawn:
        return None
    bound = verdict.bound("trajectory")
    errors = [error for trajectory in drawn for error in (*trajectory.logic, *trajectory.single)]
    axis = LogAxis.over([_AIR * bound, *errors])
    return Figures(_trajectory_lines(drawn[0]), [_trajectory(trajectory, axis, bound) for trajectory in drawn])


def _trajectory_lines(trajectory: Trajectory) -> tuple[Line, Line]:
    return (
        Line("float32 port against float64, for information", "second", trajectory.single),
        Line("float64, compared with the bound", "first", trajectory.logic),
    )


def _trajectory(trajectory: Trajectory, axis: LogAxis, bound: float) -> Figure:
    steps, (single, logic) = trajectory.steps, _trajectory_lines(trajectory)
    count = min(len(steps), len(logic.values), len(single.values))
    tips = [f"step {steps[i]}: {number(logic.values[i])} in float64, {number(single.values[i])} in float32"
            for i in range(count)]  # fmt: skip
    ends = (f"step {steps[0]}", f"step {steps[-1]}") if steps else ("", "")
    worst = max(logic.values, key=_nan_last, default=0.0)
    caption = f"{len(steps)} steps, worst float64 error {number(worst)}"
    title = f"error growth along {trajectory.sampler}"
    chart = Chart(title, (single, logic), axis, tips, bound=(bound, f"bound {number(bound)}"), ends=ends)
    return Figure(trajectory.sampler, caption, chart)


def _nan_last(value: float) -> float:
    return float("inf") if isnan(value) else value


def overlay_charts(verdict: Verdict) -> Figures | None:
    """One channel decoded from each part only, the port over the reference; ``None`` if there are none."""
    drawn = [overlay for overlay in verdict.overlays if overlay.reference or overlay.candidate]
    figures = [_overlay(overlay, verdict.words.decoded) for overlay in drawn]
    if not figures:
        return None
    return Figures((Line("reference, float64", "thick", ()), Line("port, float32", "thin", ())), figures)


def _overlay(overlay: Overlay, decoded: str) -> Figure:
    lines = (Line("reference", "thick", overlay.reference), Line("port", "thin", overlay.candidate))
    axis = LinearAxis.over([*overlay.reference, *overlay.candidate])
    pairs = list(zip(overlay.reference, overlay.candidate, strict=False))
    tips = [f"sample {i}: reference {r:.6g}, port {c:.6g}" for i, (r, c) in enumerate(pairs)]
    furthest = max((_nan_last(abs(c - r)) for r, c in pairs), default=0.0)
    caption = f"largest difference {number(furthest)}"
    if lost := sum(not isfinite(value) for value in (*overlay.reference, *overlay.candidate)):
        caption += f", {lost} value{'s' if lost > 1 else ''} not finite"
    if len(overlay.reference) != len(overlay.candidate):
        caption += f", {len(overlay.reference)} samples against {len(overlay.candidate)}"
    ends = ("sample 0", f"sample {max(len(overlay.reference), len(overlay.candidate)) - 1}")
    chart = Chart(f"{decoded} of {overlay.part}", lines, axis, tips, ends=ends, dots=False)
    return Figure(overlay.part, caption, chart)
