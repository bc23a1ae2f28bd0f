"""Render a self-test's result as text and as Markdown: summary, fixed tolerances, every fault, every correct
variant."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from wdport.base.marked_text import Marked, joined, marked, outcome_line
from wdport.compare.findings import label
from wdport.families.faults import Kill
from wdport.parity.selftest.result import GroupResult, SelftestResult, Variant

MARK = "<!-- wdport selftest -->"
"""An invisible line that identifies the file as written by wdport."""

VARIANT_HEAD = ("model", "correct variant", "float64 error", "float32 ratio", "alarms")


def render_markdown(result: SelftestResult) -> str:
    """The whole result as one document."""
    versions = ", ".join(f"{name} {value}" for name, value in result.environment.items())
    note = [result.note, ""] if result.note else []
    parts = ["# Self-test", "", MARK, "", *note, summary(result), "", versions, ""]
    if result.rules:
        parts += ["## Fixed tolerances and the gates", "", *_markdown_table(RULES_HEAD, rule_rows(result)), ""]
    parts += ["## Faults", ""]
    for group in result.groups:
        parts += [f"### {title(group)}", "", *_markdown_table(KILL_HEAD, kill_rows(group)), ""]
    if result.variants:
        rows = [(variant.example, variant.name, "" if variant.logic is None else f"{variant.logic:.1e}",
                 "" if variant.ratio is None else f"{variant.ratio:.2g}", ", ".join(map(str, variant.alarms)) or "none")
                for variant in result.variants]  # fmt: skip
        parts += ["## Correct variants", "", *_markdown_table(VARIANT_HEAD, rows), ""]
    return "\n".join(parts)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


Rows = list[tuple[str, ...]]


def render(result: SelftestResult, rules: bool = False) -> Marked:
    """The whole result for a terminal; ``rules`` adds the fixed tolerances."""
    parts: list[str] = []
    for group in result.groups:
        head, *rows = _table(KILL_HEAD, kill_rows(group))
        lines = [marked(row, _word(kill), "good" if kill.right else "bad")
                 for row, kill in zip(rows, group.kills, strict=True)]  # fmt: skip
        parts += [title(group), head, *lines, ""]
    for name in dict.fromkeys(variant.example for variant in result.variants):
        parts.append(variants_line(name, [variant for variant in result.variants if variant.example == name]))
    alarm = "FALSE ALARM"
    for flagged in result.false_alarms:
        parts.append(marked(f"  {alarm}  {flagged.name}: {', '.join(map(str, flagged.alarms[:3]))}", alarm, "bad"))
    if result.variants:
        parts.append("")
    if rules and result.rules:
        parts += [*_table(RULES_HEAD, rule_rows(result)), ""]
    return joined([*parts, verdict_lines(result)])


def verdict_lines(result: SelftestResult) -> Marked:
    """The summary, and before it a line that states which faults were left out, if any were."""
    return joined([*filter(None, [result.note]), summary(result)])


def summary(result: SelftestResult) -> Marked:
    """One line: the numbers of kills, right places, causes and false alarms."""
    faults, right = result.faults, [kill for kill in result.faults if kill.right]
    killed = sum(kill.killed for kill in faults)
    parts = [f"{killed} of {len(faults)} faults killed, {len(right)} by the right gate at the right place"]
    same = [kill for kill in result.kills if kill.equivalent]
    if same:
        parts.append(f"{sum(kill.right for kill in same)} of {len(same)} equivalents let pass")
    if result.sought:
        named = sum(kill.diagnosed for kill in result.sought)
        share = f"{named} of {len(result.sought)} ({named / len(result.sought):.0%})"
        parts.append(f"cause right for {share}, wrong for {len(result.misdiagnosed)}")
    if result.variants:
        parts.append(f"{len(result.false_alarms)} false alarms in {len(result.variants)} correct variants")
    return outcome_line(result.exit_code, f"{'; '.join(parts)}; {result.seconds:.0f} s")


KILL_HEAD = ("", "gate", "decades", "float32", "place", "fault", "cause")


def title(group: GroupResult) -> str:
    """A group's name, and its gate if it has one."""
    return f"{group.name}: {label(group.gate)}" if group.gate else group.name


def kill_rows(group: GroupResult) -> Rows:
    """One row per fault: right or wrong, gate, margin, result of float32 only, place, name, cause."""
    names = [kill.example for kill in group.kills]
    usual = next((name for name in names if 2 * names.count(name) > len(names)), "")  # not repeated in every row
    return [_row(kill, f", {kill.example}" if kill.example != usual else "") for kill in group.kills]


def _row(kill: Kill, where: str) -> tuple[str, ...]:
    cause = ("right" if kill.diagnosed else "WRONG" if kill.misdiagnosed else "silent") if kill.sought else ""
    place = kill.site if kill.exact or not kill.killed else f"{kill.site}, seen at {shortened(kill.sites)}"
    name = f"{kill.mutant} (equivalent: {kill.equivalent})" if kill.equivalent else kill.mutant
    expected = label(kill.gate) if kill.gate else "none"
    if not kill.right and not kill.equivalent:
        expected += f" for {label(kill.expected)}"
    return (_word(kill), expected, decades(kill.margin), single(kill), place + where, name, cause)


def _word(kill: Kill) -> str:
    return "ok" if kill.right else "NO"


def decades(margin: float) -> str:
    """A margin; "" if there was no error."""
    return f"{margin:.1f}" if isfinite(margin) else ("inf" if margin > 0 else "")


def single(kill: Kill) -> str:
    """The result of float32 only: whether it kills, and the ratio; "" if it was not measured."""
    if kill.single is None or kill.ratio is None:
        return ""
    return "not run" if kill.single == "0" else f"{'yes' if kill.single else 'no'} {kill.ratio:.2g}"


def shortened(names: Sequence[str]) -> str:
    """The first three of these places, and the number of others."""
    return ", ".join(name or "the network" for name in names[:3]) + (f" and {len(names) - 3} more" * (len(names) > 3))


def variants_line(name: str, variants: Sequence[Variant]) -> str:
    """The largest errors of one example's correct variants."""
    logic = max((variant.logic for variant in variants if variant.logic is not None), default=0.0)
    ratios = [variant.ratio for variant in variants if variant.ratio is not None]
    alarms = sum(bool(variant.alarms) for variant in variants)
    rest = f", float32 ratio at most {max(ratios):.2g}" if ratios else ""
    return f"{name}: {len(variants)} correct variants, float64 error at most {logic:.1e}{rest}; {alarms} false alarms"


RULES_HEAD = ("rule", "faults rejected", "correct ports rejected")


def rule_rows(result: SelftestResult) -> Rows:
    """The fixed tolerances and the gates over the same faults and ports."""
    return [(rule.name, f"{rule.killed} of {rule.faults}", f"{rule.rejected} of {rule.ports}")
            for rule in result.rules]  # fmt: skip


def _table(head: tuple[str, ...], rows: Rows) -> list[str]:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [head, *rows]]  # fmt: skip
