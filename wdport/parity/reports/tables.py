"""A verdict in; its tables out, as HTML, every text from a file escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wdport.compare.bounds import GRADIENT, LOGIC, NUMERICS
from wdport.compare.findings import Gate
from wdport.families.registry import known_bounds
from wdport.parity.reports.svg import text
from wdport.parity.reports.words import (
    LEVELS,
    NAME_CHARS,
    nearness,
    number,
    optional,
    part_name,
    percent,
    place,
    probable,
    said_of,
    settings_line,
    shortfall,
)
from wdport.parity.verdict import TapResult, Verdict

SHOWN_FINDINGS = 4
"""Findings of a gate that stand open; the further ones are folded away."""


@dataclass(frozen=True)
class Cell:
    """What a table cell shows, as HTML, and, where it is a number, the value that sorts it."""

    html: str
    value: float | None = None
    style: str = ""


def words(value: object, style: str = "") -> Cell:
    """Text from a file."""
    return Cell(text(value), None, style)


def amount(value: float | None, bad: bool = False) -> Cell:
    """A number, marked where it is beyond its bound."""
    return Cell(optional(value), value, "bad" if bad else "")


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], style: str = "") -> str:
    """A table in a frame that scrolls by itself on a narrow screen; heads are HTML already."""
    made = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    top = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<div class="scroll"><table class="{style}"><thead><tr>{top}</tr></thead><tbody>{made}</tbody></table></div>'
    )


def _cell(cell: Cell) -> str:
    style = " ".join(filter(None, ("" if cell.value is None else "n", cell.style)))
    sort = "" if cell.value is None else f' data-v="{cell.value!r}"'
    return f'<td class="{style}"{sort}>{cell.html}</td>'


def settings_table(verdict: Verdict) -> str:
    """How many hyper-parameters were compared, and every one that differs."""
    read = {"differs": Cell("inference", None, "bad"), "training": Cell("training alone")}
    rows = [
        (words(each.reference, "path"), words(each.candidate, "path"), words(each.text), read[level])
        for level in LEVELS
        for each in verdict.settings.of(level)
    ]
    said = f"<p>{text(settings_line(verdict))}</p>"
    return said + (table(("layer", "layer of the port", "what differs", "read by"), rows) if rows else "")


def gates_table(verdict: Verdict) -> str:
    """Every gate with its outcome, its count and its worst value, and under the table its findings."""
    rows = []
    for gate in verdict.gates:
        count = Cell(f"{gate.compared} of {gate.expected}", float(gate.compared), "bad" if shortfall(gate) else "")
        over = gate.worst is not None and gate.bound is not None and not gate.worst <= gate.bound
        mark = Cell("ok" if gate.passed else "FAIL", None, "good" if gate.passed else "bad")
        worst = Cell("") if gate.worst is None else amount(gate.worst, over)
        bound = Cell("") if gate.bound is None else amount(gate.bound)
        what = Cell(f"<b>{text(gate.name)}</b> {text(gate.title)}")
        rows.append((what, mark, count, worst, bound, words(gate.where, "path")))
    heads = ("gate", "outcome", "compared", "worst", "bound", "at")
    return table(heads, rows) + "".join(_findings(gate) for gate in verdict.gates)


def _findings(gate: Gate) -> str:
    items = [f"<li>{text(str(finding))}</li>" for finding in gate.findings]
    if not items:
        return ""
    shown, more = "".join(items[:SHOWN_FINDINGS]), "".join(items[SHOWN_FINDINGS:])
    rest = f"<details><summary>{len(items) - SHOWN_FINDINGS} more</summary><ul>{more}</ul></details>" if more else ""
    return f'<div class="findings"><b>Gate {text(gate.name)}</b><ul>{shown}</ul>{rest}</div>'


def faults_table(verdict: Verdict) -> str:
    """Every layer that is off by itself, in the order of the computation."""
    rows = []
    for fault in verdict.faults:
        logic = amount(fault.logic, not fault.logic <= LOGIC)
        ratio = amount(fault.ratio, not fault.ratio <= NUMERICS)
        rows.append((words(place(fault), "path"), logic, ratio, words(probable(verdict, fault))))
    return table(("layer", "float64 error", "float32 ratio", "probable cause"), rows)


def parts_table(verdict: Verdict) -> str:
    """Every part of the output, and what the whole decodes to; gradients where gate C was run."""
    rows: list[tuple[Cell, ...]] = []
    slopes = any(part.gradient is not None for part in verdict.parts)
    for index, part in enumerate(verdict.parts):
        layers = max((tap.isolated for tap in verdict.taps if tap.part == index), default=None)
        own = Cell("") if layers is None else amount(layers, not layers <= LOGIC)
        decoded = amount(part.decoded, part.decoded is not None and not part.decoded <= LOGIC)
        values = amount(part.values, not part.values <= LOGIC)
        ratio = amount(part.ratio, not part.ratio <= NUMERICS)
        energy = Cell(percent(part.energy), part.energy)
        slope = part.gradient
        more = (amount(slope, slope is not None and not slope <= GRADIENT),) if slopes else ()
        rows.append((words(part.name), own, values, decoded, ratio, energy, *more))
    whole = amount(verdict.decoded, verdict.decoded is not None and not verdict.decoded <= LOGIC)
    rows.append((Cell("all"), Cell(""), Cell(""), whole, Cell(""), Cell(""), *((Cell(""),) if slopes else ())))
    told = verdict.words
    heads = (told.one, "layers, f64", f"{told.values}, f64", f"{told.decoded}, f64", "f32 ratio", "energy")
    return table((*heads, "gradient, f64") if slopes else heads, rows)


def taps_table(verdict: Verdict) -> str:
    """Every tap with all its numbers, in the order of the computation; those of a full run where it was one."""
    full = any(tap.gradient is not None for tap in verdict.taps)
    said = said_of(verdict, [tap.reference for tap in verdict.taps], ("A", "B", "0"))
    rows = [_tap(verdict, index, tap, said.get(tap.reference, []), full) for index, tap in enumerate(verdict.taps)]
    heads = ("#", "layer", "layer of the port", verdict.words.one, "alone, f64", "inputs, f64", "in the network, f64",
             "f32 mean", "f32 worst", "f32 inputs", *(("gradient, f64", "bf16") if full else ()), "of the bound",
             "what is off")  # fmt: skip
    return table(heads, rows, "sort")


def _tap(verdict: Verdict, index: int, tap: TapResult, said: Sequence[str], full: bool) -> Sequence[Cell]:
    logic = [amount(error, not error <= LOGIC) for error in (tap.isolated, tap.inputs, tap.cumulative)]
    ratios = [amount(ratio, not ratio <= NUMERICS) for ratio in (tap.rms_ratio, tap.max_ratio, tap.inputs_ratio)]
    names = (words(tap.reference, "path"), words(tap.candidate, "path"), words(part_name(verdict, tap.part)))
    near = nearness(tap)
    order = Cell(str(index + 1), float(index))
    more = [_or_nothing(tap.gradient, GRADIENT), _or_nothing(tap.bfloat16, NUMERICS)] if full else []
    return (order, *names, *logic, *ratios, *more, amount(near, not near <= 1.0), words("; ".join(said)))


def _or_nothing(value: float | None, bound: float) -> Cell:
    """A number that only some taps have."""
    return Cell("") if value is None else amount(value, not value <= bound)


def bounds_table(verdict: Verdict) -> str:
    """Every bound in force and what it bounds."""
    known = {name: bound.meaning for name, bound in known_bounds().items()}
    rows = [(words(name), Cell(number(v), v), Cell(text(known.get(name, "")))) for name, v in verdict.bounds.items()]
    return table(("bound", "value", "of what"), rows)


def facts_table(facts: Mapping[str, object]) -> str:
    """Names and values."""
    rows = "".join(
        f'<tr><th scope="row">{text(name, NAME_CHARS)}</th><td class="path">{text(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'
