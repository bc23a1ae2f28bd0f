"""The tables of a verdict as HTML; all text from files is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wdport.compare.bounds import NUMERICS
from wdport.compare.findings import Gate
from wdport.families.registry import known_bounds
from wdport.parity.reports.svg import name, text
from wdport.parity.reports.words import (
    LEVELS,
    NAME_CHARS,
    changed_bounds,
    layers_error,
    nearness,
    optional,
    part_name,
    percent,
    place,
    remark,
    said_of,
    settings_line,
    shortfall,
)
from wdport.parity.verdict import TapResult, Verdict

_NUMBER = ' class="n"'

SHOWN_FINDINGS = 4
"""Number of a gate's findings that are shown; the others are collapsed."""


@dataclass(frozen=True)
class Cell:
    """The HTML of a table cell and, if it is a number, its sort value."""

    html: str
    value: float | None = None
    style: str = ""


def words(value: object, style: str = "") -> Cell:
    """Text from a file; with the styles ``path`` and ``said``, lines may break between the parts of names."""
    return Cell(name(value) if style in ("path", "said") else text(value), None, style)


def layer(tap: TapResult) -> Cell:
    """A layer's two names, the reference's above the port's."""
    own = f'<span class="port">{name(tap.candidate)}</span>' if tap.candidate else ""
    return Cell(f"{name(tap.reference)}{own}", None, "path")


def amount(value: float | None, bad: bool = False) -> Cell:
    """A number, marked if it exceeds its bound."""
    return Cell(optional(value), value, "bad" if bad else "n" if value is None else "")


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], style: str = "", label: str = "") -> str:
    """A table in a labelled frame that scrolls on a narrow screen; heads are HTML, and a leading ``#`` marks a column
    of numbers."""
    made = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    top = "".join(
        f'<th scope="col"{_NUMBER if head[:1] == "#" else ""}>{head.removeprefix("#")}</th>' for head in heads
    )
    return (
        f'<div class="scroll" role="group" aria-label="{label}"><table class="{style}">'
        f"<thead><tr>{top}</tr></thead><tbody>{made}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    style = " ".join(filter(None, ("" if cell.value is None else "n", cell.style)))
    sort = "" if cell.value is None else f' data-v="{cell.value!r}"'
    return f'<td class="{style}"{sort}>{cell.html}</td>'


def settings_table(verdict: Verdict) -> str:
    """The number of hyper-parameters that were compared, and every one that differs."""
    read = {"differs": Cell("inference", None, "bad"), "training": Cell("training only")}
    rows = [
        (words(each.reference, "path"), words(each.candidate, "path"), words(each.text), read[level])
        for level in LEVELS
        for each in verdict.settings.of(level)
    ]
    said = f"<p>{text(settings_line(verdict))}</p>"
    return said + (
        table(("layer", "layer of the port", "what differs", "read by"), rows, label="settings") if rows else ""
    )


def gates_table(verdict: Verdict) -> str:
    """Every gate with its outcome, its count and its worst value, and below the table its findings."""
    rows = []
    for gate in verdict.gates:
        count = Cell(f"{gate.compared} of {gate.expected}", float(gate.compared), "bad" if shortfall(gate) else "")
        over = gate.worst is not None and gate.bound is not None and not gate.worst <= gate.bound
        mark = Cell(gate.outcome, None, "good" if gate.passed else "bad")
        worst = Cell("") if gate.worst is None else amount(gate.worst, over)
        bound = Cell("") if gate.bound is None else amount(gate.bound)
        what = Cell(f"<b>{text(gate.title)}</b> ({text(gate.name)})")
        rows.append((what, mark, count, worst, bound, words(gate.where, "path")))
    heads = ("gate", "outcome", "#compared", "#worst", "#bound", "at")
    return table(heads, rows, label="gates") + "".join(_findings(gate) for gate in verdict.gates)


def _findings(gate: Gate) -> str:
    items = [f"<li>{text(str(finding))}</li>" for finding in gate.findings]
    if not items:
        return ""
    shown, more = "".join(items[:SHOWN_FINDINGS]), "".join(items[SHOWN_FINDINGS:])
    rest = f"<details><summary>{len(items) - SHOWN_FINDINGS} more</summary><ul>{more}</ul></details>" if more else ""
    return f'<div class="findings"><b>{text(gate.label)}</b><ul>{shown}</ul>{rest}</div>'


def glossary(verdict: Verdict) -> str:
    """A description of each gate that was run."""
    terms = "".join(
        f"<dt><b>{text(gate.title)}</b> ({text(gate.name)})</dt><dd>{text(gate.meaning)}</dd>"
        for gate in verdict.gates
        if gate.meaning
    )
    return f"<details><summary>What each gate compares</summary><dl>{terms}</dl></details>" if terms else ""


def faults_table(verdict: Verdict) -> str:
    """Every layer that is wrong in isolation, in the order of the computation."""
    rows = []
    for fault in verdict.faults:
        logic = amount(fault.logic, not fault.logic <= verdict.bound("logic"))
        ratio = amount(fault.ratio, not fault.ratio <= verdict.bound("numerics"))
        rows.append((words(place(fault), "path"), logic, ratio, words(remark(verdict, fault))))
    return table(("layer", "#float64 error", "#float32 ratio", "probable cause"), rows, label="faulty layers")


def parts_table(verdict: Verdict) -> str:
    """Every part of the output and the decoded whole, with gradients if they were compared."""
    rows: list[tuple[Cell, ...]] = []
    slopes = any(part.gradient is not None for part in verdict.parts)
    logic, numerics, gradient = map(verdict.bound, ("logic", "numerics", "gradient"))
    for index, part in enumerate(verdict.parts):
        own = _or_nothing(layers_error(verdict, index), logic)
        decoded = amount(part.decoded, part.decoded is not None and not part.decoded <= logic)
        values = amount(part.values, not part.values <= logic)
        ratio = amount(part.ratio, not part.ratio <= numerics)
        energy = Cell(percent(part.energy), part.energy, "n" if part.energy is None else "")
        slope = part.gradient
        more = (amount(slope, slope is not None and not slope <= gradient),) if slopes else ()
        rows.append((words(part.name), own, values, decoded, ratio, energy, *more))
    whole = amount(verdict.decoded, verdict.decoded is not None and not verdict.decoded <= logic)
    rows.append((Cell("all"), Cell(""), Cell(""), whole, Cell(""), Cell(""), *((Cell(""),) if slopes else ())))
    told = verdict.words
    heads = (told.one, "#layers, f64", f"#{told.values}, f64", f"#{told.decoded}, f64", "#f32 ratio", "#energy")
    return table((*heads, "#gradient, f64") if slopes else heads, rows, label=f"{told.one}s")


def taps_table(verdict: Verdict) -> str:
    """Every tap with all its numbers, in the order of the computation, including those of a full run."""
    full = any(tap.gradient is not None for tap in verdict.taps)
    said = said_of(verdict, [tap.reference for tap in verdict.taps], ("A", "B", "0"))
    parts = any(tap.part is not None for tap in verdict.taps)
    rows = [
        (
            *_tap(verdict, index, tap, full, parts),
            *([words("; ".join(said.get(tap.reference, [])), "said")] * bool(said)),
        )
        for index, tap in enumerate(verdict.taps)
    ]
    heads = ("#no.", "layer, and the port's", *([text(verdict.words.one)] * parts), "#alone<br>f64", "#inputs<br>f64",
             "#network<br>f64", "#mean<br>f32", "#worst<br>f32", "#inputs<br>f32",
             *(("#gradient<br>f64", "#bf16") if full else ()), "#of the<br>bound",
             *(["what is off"] * bool(said)))  # fmt: skip
    return table(heads, rows, "sort", "layers")


def _tap(verdict: Verdict, index: int, tap: TapResult, full: bool, parts: bool) -> Sequence[Cell]:
    logic, numerics = verdict.bound("logic"), verdict.bound("numerics")
    errors = [amount(error, not error <= logic) for error in (tap.isolated, tap.inputs, tap.cumulative)]
    ratios = [amount(ratio, not ratio <= numerics) for ratio in (tap.rms_ratio, tap.max_ratio, tap.inputs_ratio)]
    near = nearness(verdict, tap)
    names = [Cell(str(index + 1), float(index)), layer(tap), *([words(part_name(verdict, tap.part))] * parts)]
    # A policy's bound on float32 says nothing about bfloat16.
    more = [_or_nothing(tap.gradient, verdict.bound("gradient")), _or_nothing(tap.bfloat16, NUMERICS)] if full else []
    return (*names, *errors, *ratios, *more, amount(near, not near <= 1.0))


def _or_nothing(value: float | None, bound: float) -> Cell:
    """A number that only some taps have."""
    return Cell("") if value is None else amount(value, not value <= bound)


def bounds_table(verdict: Verdict) -> str:
    """Every bound in force, its default if a policy changed it, and its meaning."""
    known, changed = known_bounds(), changed_bounds(verdict)
    rows = []
    for each, value in verdict.bounds.items():
        usual = [amount(changed[each][1]) if each in changed else Cell("")] if changed else []
        rows.append(
            (words(each, "path"), amount(value), *usual, words(known[each].meaning if each in known else "", "said"))
        )
    heads = ("bound", "#in force", *(["#default"] if changed else []), "of what")
    return table(heads, rows, label="bounds")


def facts_table(facts: Mapping[str, object]) -> str:
    """Names and values."""
    rows = "".join(
        f'<tr><th scope="row">{text(label, NAME_CHARS)}</th><td class="path">{name(value)}</td></tr>'
        for label, value in facts.items()
    )
    return (
        f'<div class="scroll" role="group" aria-label="facts"><table class="facts"><tbody>{rows}</tbody></table></div>'
    )
