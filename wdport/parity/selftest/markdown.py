"""Render a self-test's result as Markdown: summary, fixed tolerances, every fault, every correct variant."""

from __future__ import annotations

from collections.abc import Sequence

from wdport.parity.selftest.result import SelftestResult
from wdport.parity.selftest.text import KILL_HEAD, RULES_HEAD, kill_rows, rule_rows, summary, title

MARK = "<!-- wdport selftest -->"
"""An invisible line that identifies the file as written by wdport."""

VARIANT_HEAD = ("model", "correct variant", "float64 error", "float32 ratio", "alarms")


def render_markdown(result: SelftestResult) -> str:
    """The whole result as one document."""
    versions = ", ".join(f"{name} {value}" for name, value in result.environment.items())
    note = [result.note, ""] if result.note else []
    parts = ["# Self-test", "", MARK, "", *note, summary(result), "", versions, ""]
    if result.rules:
        parts += ["## Fixed tolerances beside the gates", "", *_table(RULES_HEAD, rule_rows(result)), ""]
    parts += ["## Faults", ""]
    for group in result.groups:
        parts += [f"### {title(group)}", "", *_table(KILL_HEAD, kill_rows(group)), ""]
    if result.variants:
        rows = [(variant.example, variant.name, "" if variant.logic is None else f"{variant.logic:.1e}",
                 "" if variant.ratio is None else f"{variant.ratio:.2g}", ", ".join(map(str, variant.alarms)) or "none")
                for variant in result.variants]  # fmt: skip
        parts += ["## Correct variants", "", *_table(VARIANT_HEAD, rows), ""]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
