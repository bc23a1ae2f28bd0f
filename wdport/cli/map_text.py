"""The output of `wdport map` as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wdport.cli.options import LONGEST_FACT, facts
from wdport.errors import printable
from wdport.marks import Marked, joined, outcome_line

if TYPE_CHECKING:
    from wdport.compare.setting import SettingsReport
    from wdport.conversion.check import Check
    from wdport.conversion.explain import End, Route
    from wdport.mapping.diff import Difference, Properties, Property

MOST = 20
"""Lines printed per kind; all are in the JSON."""


def check_text(found: Check, sound: bool, every: bool, report: SettingsReport | None = None) -> Marked:
    table, coverage, plan = found.table, found.coverage, found.planned
    variant = f", {table.variant} layout" if table.variant else ""
    layers = len({row.layer.number for row in table.rows if row.layer})
    single = sum(row.layer is None for row in table.rows)
    rows = [
        ("family", f"{table.family}{variant}"),
        ("rows", f"{layers} layers with tensors, {single} rows for tensors; {len(table.taps)} outputs compared"),
        ("includes", ", ".join(table.includes)),
        ("checkpoint", found.checkpoint),
        ("claimed", _claimed(found)),
        ("plan", plan and f"{plan['used']} tensors fill {plan['variables']} variables; {plan['checked']} checked, "
                          f"{plan['dropped']} dropped, {plan['tied']} tied"),
        *(("note", note) for note in found.notes),
    ]  # fmt: skip
    lines = [check_line(found, sound), facts(rows)]
    if every and coverage:
        told = [
            (f"{each.file or 'line'} {each.line}", f"{len(each.tensors):>5}  {each.torch} -> {each.becomes}")
            for each in coverage.claims
        ]
        lines += ["rows", facts(told)]
    lines += _listed("faults", found.faults)
    lines += _listed("warnings", [each.sentence for each in found.warnings])
    lines += _listed("notes", [each.sentence for each in found.remarks if each.level == "note"])
    lines += _odd(found)
    lines += _told(report) if report is not None else []
    return joined(lines)


def _odd(found: Check) -> list[str]:
    """Unusual values, if checked."""
    if found.values is None:
        return []
    lines = _listed("values", [f"{each.level}: {each.text}" for each in found.values])
    return lines or ["values", "  nothing is odd"]


def _told(report: SettingsReport) -> list[str]:
    """Hyper-parameters that differ between the two models."""
    count = f"settings: {report.compared} compared at {_count(report.layers, 'layer')}"
    lines = _listed(count, [f"{each.candidate}: {each.text}" for each in report.of("differs")])
    lines = lines or [f"{count}; none differ"]
    return lines + _listed(
        "read only in training", [f"{each.candidate}: {each.text}" for each in report.of("training")]
    )


def _claimed(found: Check) -> str:
    coverage = found.coverage
    if coverage is None:
        return ""
    claimed = {name for each in coverage.claims for name in each.tensors}
    silent = sum(not each.tensors for each in coverage.claims)
    return (
        f"{len(claimed)} of {len(claimed) + len(coverage.unclaimed)} tensors; {len(coverage.doubled)} claimed twice; "
        f"{silent} of {len(coverage.claims)} rows for tensors match nothing, {len(coverage.idle)} of which must"
    )


def check_line(found: Check, sound: bool) -> Marked:
    """The verdict in one line."""
    path = printable(found.table.path, None)
    if not sound:
        return outcome_line(1, f"{path} is not sound: {check_count(found)}")
    return outcome_line(0, f"{path} is sound" + ("" if found.checkpoint else ", as far as the table alone shows"))


def check_count(found: Check) -> str:
    """How many faults and warnings there are."""
    return f"{_count(len(found.faults), 'fault')}, {_count(len(found.warnings), 'warning')}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _listed(title: str, lines: Iterable[str]) -> list[str]:
    """A title and indented lines; nothing without lines."""
    every = list(lines)
    more = len(every) - MOST
    shown = [*every[:MOST], f"and {more} more, all with --json"] if more > 0 else every
    return [title, *(f"  {printable(line, LONGEST_FACT)}" for line in shown)] if every else []


_FATES = {
    "checked": "compared with the constant {}, and then left out",
    "dropped": "left out: {}",
    "tied": "the same as {}, bit for bit, and then left out",
    "ignored": "not the network's: {}",
}


def explain_text(name: str, found: Sequence[Route]) -> str:
    return "\n".join([printable(name, LONGEST_FACT), *(facts(_route(each)) for each in found)])


def _route(route: Route) -> list[tuple[str, str]]:
    rows = [("from", _end(end)) for end in route.sources]
    if route.rule is None:
        return [*rows, ("is", _FATES[route.fate].format(route.reason))]
    arithmetic = f"{route.combine} of them, then " if route.combine else ""
    named = f" ({route.rule.name})" if route.rule.name != str(route.rule) else ""
    back = f"{route.rule.inverse()}, then apart again by choice ({route.combine})" if route.combine else None
    return [
        *rows,
        *(("to", _end(end)) for end in route.targets),
        ("rule", f"{arithmetic}{route.rule}{named}"),
        ("back", back or str(route.rule.inverse())),
        ("sizes", ", ".join(f"{axis} {size}" for axis, size in route.sizes.items())),
        ("table", f"{route.table}, line {route.line}"),
        *(("note", note) for note in route.notes),
    ]


def _end(end: End) -> str:
    shape = "" if end.shape is None else f"  {end.dtype} {end.shape}"
    return f"{end.name}{shape}"


def diff_text(found: Difference, a: str, b: str) -> str:
    lines = [f"A {printable(a, None)}", f"B {printable(b, None)}"]
    whole = {**found.facts, **({"prefix of all names": found.prefix} if found.prefix else {})}
    lines += [f"  {printable(f'{name}: {_pair(*pair)}', LONGEST_FACT)}" for name, pair in whole.items()]
    for key in dict.fromkeys(key for each in found.changed.values() for key in each):
        title = {"shape": "reshaped", "dtype": "another dtype"}.get(key, f"another {key!r}")
        told = [f"{name}: {_pair(*each[key])}" for name, each in found.changed.items() if key in each]
        lines += _listed(f"{title} ({len(told)})", told)
    renamed = [f"{each.old} -> {each.new}{_rivals(*each.of)}" for each in found.renamed]
    lines += _listed(f"probably renamed ({len(renamed)})", renamed)
    for side, only in (("A", found.only_a), ("B", found.only_b)):
        lines += _listed(f"only in {side} ({len(only)})", (f"{name}: {_said(each)}" for name, each in only.items()))
    return "\n".join([*lines, "no difference" if found.none else f"{found.same} the same in both"])


def _said(properties: Properties) -> str:
    """A tensor's dtype and shape, or how a row maps its tensor."""
    if "shape" in properties:
        return f"{properties['dtype']} {properties['shape']}"
    return "; ".join(str(properties[key]) for key in ("becomes", "kind", "rule") if properties.get(key))


def _rivals(a: int, b: int) -> str:
    return "" if (a, b) == (1, 1) else f"  (by its name; {a} alike in A, {b} in B)"


def _pair(a: Property, b: Property) -> str:
    return f"{'nothing' if a == '' else a} -> {'nothing' if b == '' else b}"
