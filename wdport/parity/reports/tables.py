"""The tables of a verdict, as data: heads and cells, which ``templates/parts.html`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wdport.compare.gate_bounds import NUMERICS
from wdport.families.registry import known_bounds
from wdport.parity.reports import phrases
from wdport.parity.reports.phrases import LEVELS, optional, percent, place
from wdport.parity.verdict import TapResult, Verdict


@dataclass(frozen=True)
class Cell:
    """The text of a table cell, with the styles ``path`` and ``said`` of names between whose parts lines may break.

    ``value`` is the sort value of a number, ``strong`` the text before it in bold, and ``port`` that below it.
    """

    text: str
    value: float | None = None
    style: str = ""
    strong: str = ""
    port: str = ""

    @property
    def classes(self) -> str:
        return " ".join(filter(None, ("" if self.value is None else "n", self.style)))


@dataclass(frozen=True)
class Head:
    """The head of a column: text, a second line below it, and whether the column has numbers."""

    text: str
    unit: str = ""
    number: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table: ``label`` describes it to screen readers, ``style`` is its CSS class."""

    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    label: str
    style: str = ""


def numeric(text: str, unit: str = "") -> Head:
    return Head(text, unit, True)


def amount(value: float | None, bad: bool = False) -> Cell:
    """A number, marked if it exceeds its bound."""
    return Cell(optional(value), value, "bad" if bad else "n" if value is None else "")


def settings_table(verdict: Verdict) -> ReportTable:
    read = {"differs": Cell("inference", None, "bad"), "training": Cell("training only")}
    rows = [
        (Cell(setting.reference, None, "path"), Cell(setting.candidate, None, "path"), Cell(setting.text), read[level])
        for level in LEVELS
        for setting in verdict.settings.of(level)
    ]
    return ReportTable(
        [Head("layer"), Head("layer of the port"), Head("what differs"), Head("read by")], rows, "settings"
    )


def gates_table(verdict: Verdict) -> ReportTable:
    """Every gate with its outcome, its count and its worst value."""
    rows = []
    for gate in verdict.gates:
        count = Cell(
            f"{gate.compared} of {gate.expected}", float(gate.compared), "bad" if phrases.shortfall(gate) else ""
        )
        over = gate.worst is not None and gate.bound is not None and not gate.worst <= gate.bound
        mark = Cell(gate.outcome, None, "good" if gate.passed else "bad")
        worst = Cell(phrases.largest(gate), None, "bad" if over else "")
        rows.append((Cell("", strong=gate.title), mark, count, worst, Cell(gate.where, None, "path")))
    heads = [Head("gate"), Head("outcome"), numeric("compared"), Head("largest error"), Head("at")]
    return ReportTable(heads, rows, "gates")


def faults_table(verdict: Verdict) -> ReportTable:
    """Every layer that differs from the reference when tested on its own, in order of computation."""
    rows, waivers = [], phrases.waivers_of(verdict)
    for fault in verdict.faults:
        logic = amount(fault.logic, not fault.logic <= verdict.bound("logic"))
        ratio = amount(fault.ratio, not fault.ratio <= verdict.bound("numerics"))
        cause = Cell(phrases.remark(verdict, fault, waivers) or "not found")
        rows.append((Cell(place(fault), None, "path"), cause, logic, ratio))
    heads = [
        Head("layer"),
        Head("probable cause"),
        numeric("float64 error"),
        numeric("times PyTorch's", "rounding error"),
    ]
    return ReportTable(heads, rows, "faulty layers")


def parts_table(verdict: Verdict) -> ReportTable:
    """Every part of the output and the decoded whole, with gradients if they were compared."""
    rows: list[tuple[Cell, ...]] = []
    slopes = any(part.gradient is not None for part in verdict.parts)
    logic, numerics, gradient = map(verdict.bound, ("logic", "numerics", "gradient"))
    for index, part in enumerate(verdict.parts):
        layers_cell = _or_nothing(phrases.layers_error(verdict, index), logic)
        decoded = amount(part.decoded, part.decoded is not None and not part.decoded <= logic)
        values = amount(part.values, not part.values <= logic)
        ratio = amount(part.ratio, not part.ratio <= numerics)
        energy = Cell(percent(part.energy), part.energy, "n" if part.energy is None else "")
        slope = part.gradient
        more = (amount(slope, slope is not None and not slope <= gradient),) if slopes else ()
        rows.append((Cell(part.name), layers_cell, values, decoded, ratio, energy, *more))
    total = amount(verdict.decoded, verdict.decoded is not None and not verdict.decoded <= logic)
    rows.append((Cell("all"), Cell(""), Cell(""), total, Cell(""), Cell(""), *((Cell(""),) if slopes else ())))
    one = verdict.words.one
    heads = [Head(one), numeric("layers", "float64"), numeric(verdict.words.values, "float64"),
             numeric(verdict.words.decoded, "float64"), numeric("times PyTorch's", "rounding error"), numeric("energy"),
             *([numeric("gradient", "float64")] * slopes)]  # fmt: skip
    return ReportTable(heads, rows, f"{one}s")


def taps_table(verdict: Verdict) -> ReportTable:
    """Every tap with all its numbers, in the order of the computation, including those of a full run."""
    full = any(tap.gradient is not None for tap in verdict.taps)
    findings = phrases.said_of(verdict, [tap.reference for tap in verdict.taps], ("A", "B", "0"))
    parts = any(tap.part is not None for tap in verdict.taps)
    rows = [_tap(verdict, index, tap, full, parts) for index, tap in enumerate(verdict.taps)]
    if findings:
        texts = ["; ".join(findings.get(tap.reference, [])) for tap in verdict.taps]
        rows = [(*row, Cell(text, None, "said")) for row, text in zip(rows, texts, strict=True)]
    heads = [numeric("no."), Head("layer, and the port's"), *([Head(verdict.words.one)] * parts),
             numeric("alone", "float64"), numeric("inputs", "float64"), numeric("network", "float64"),
             numeric("mean", "float32"), numeric("worst", "float32"), numeric("inputs", "float32"),
             *([numeric("gradient", "float64"), numeric("worst", "bfloat16")] if full else []),
             numeric("of the", "bound"),
             *([Head("what is off")] * bool(findings))]  # fmt: skip
    return ReportTable(heads, rows, "layers", "sort")


def _tap(verdict: Verdict, index: int, tap: TapResult, full: bool, parts: bool) -> Sequence[Cell]:
    logic, numerics = verdict.bound("logic"), verdict.bound("numerics")
    errors = [amount(error, not error <= logic) for error in (tap.isolated, tap.inputs, tap.cumulative)]
    ratios = [amount(ratio, not ratio <= numerics) for ratio in (tap.rms_ratio, tap.max_ratio, tap.inputs_ratio)]
    near = phrases.nearness(verdict, tap)
    layer = Cell(tap.reference, None, "path", port=tap.candidate)
    names = [Cell(str(index + 1), float(index)), layer, *([Cell(phrases.part_name(verdict, tap.part))] * parts)]
    # A policy's bound on float32 does not apply to bfloat16.
    more = [_or_nothing(tap.gradient, verdict.bound("gradient")), _or_nothing(tap.bfloat16, NUMERICS)] if full else []
    return (*names, *errors, *ratios, *more, amount(near, not near <= 1.0))


def _or_nothing(value: float | None, bound: float) -> Cell:
    """A number that only some taps have."""
    return Cell("") if value is None else amount(value, not value <= bound)


def bounds_table(verdict: Verdict) -> ReportTable:
    """The bounds of the gates that ran and those that a policy changed, with their defaults, and their meanings."""
    declared, changed = known_bounds(), phrases.changed_bounds(verdict)
    used = {measure.bound for gate in verdict.gates for measure in gate.measures} | set(changed)
    rows = []
    for name, value in verdict.bounds.items():
        if name in used or (name == "leak" and "logic" in used):
            usual = [amount(changed[name][1]) if name in changed else Cell("")] if changed else []
            meaning = declared[name].meaning if name in declared else ""
            rows.append((Cell(meaning, None, "said"), amount(value), *usual, Cell(name, None, "path")))
    heads = [Head("what is bounded"), numeric("at most"), *([numeric("default")] if changed else []),
             Head("in a policy")]  # fmt: skip
    return ReportTable(heads, rows, "bounds")
