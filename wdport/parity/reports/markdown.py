"""Render a verdict as Markdown for the step summary of a CI run, within the CI's size limit.

Text from files is HTML inside Markdown: ``<code>`` with every character that is special in either as an entity, so
that no name can break a table, start a link, or notify a user.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, isnan
from pathlib import Path
from typing import Final

from wdport.base.errors import MachineError, printable
from wdport.parity.reports import phrases
from wdport.parity.reports.phrases import LEVELS, NAME_CHARS, TEXT_CHARS, TIMES, number, optional, place
from wdport.parity.verdict import TapResult, Verdict

LIMIT: Final = 1_000_000
"""In UTF-8 bytes; GitHub discards a step summary above 1 MiB."""

MARK: Final = "<!-- wdport verify -->"
"""An invisible line that identifies the file as written by wdport."""

WORST_TAPS: Final = 20

OPEN_FINDINGS: Final = 10
"""Maximum number of findings shown; the others are collapsed, since one fault affects every layer after it."""

_SPECIAL = re.compile(
    r"""[&<>"'`*\[\]|~\\$^!#@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=www)\.""", re.IGNORECASE
)


@dataclass(frozen=True)
class _Block:
    """A heading and table head, the rows, any number of which may be cut, and the end of the block."""

    head: str
    rows: tuple[str, ...] = ()
    what: str = "rows"
    foot: str = ""

    def fixed(self) -> int:
        """Its size in bytes with every row cut."""
        return _bytes(self.head) + _bytes(self.foot) + (_bytes(self.note(len(self.rows))) if self.rows else 0)

    def note(self, cut: int) -> str:
        """The note on cut rows, outside the table."""
        return f"\n{cut} more {self.what} cut, to stay within the summary's limit.\n" if cut else ""


def render_markdown(verdict: Verdict, limit: int = LIMIT) -> str:
    """The verdict as Markdown of at most ``limit`` bytes of UTF-8: headline, gates, parts, faults, worst taps.

    If it would be longer, whole rows are cut from the longest tables, and their number is stated.
    """
    plain = f"\n{text}\n" if (text := phrases.replaceable(verdict)) else ""
    headline = _Block(f"## {phrases.outcome(verdict)}\n\n{MARK}\n\n{phrases.claim(verdict, escape)}.\n{plain}")
    blocks = [headline, *_faults(verdict), *_settings(verdict), _gates(verdict), *_parts(verdict),
              *_findings(verdict)]  # fmt: skip
    return _fit([*blocks, *_worst_taps(verdict), _run(verdict)], limit)


def append_step_summary(text: str) -> bool:
    """Append ``text`` to the file that ``$GITHUB_STEP_SUMMARY`` names; returns whether it is set.

    Raises :class:`MachineError` if it cannot be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if not path:
        return False
    try:
        # Appended: other steps of the job may have written their summaries.
        with Path(path).open("a", encoding="utf-8", newline="\n") as file:
            file.write(text if text.endswith("\n") else f"{text}\n")
    except OSError as error:
        what = f"could not be written ({error.strerror or error})"
        raise MachineError(path, what, "check the path in GITHUB_STEP_SUMMARY") from error
    return True


def escape(text: object, limit: int = NAME_CHARS) -> str:
    """Text from a file as Markdown, for a table cell or a line."""
    return f"<code>{_SPECIAL.sub(lambda match: f'&#{ord(match[0])};', printable(text, limit))}</code>"


def _settings(verdict: Verdict) -> list[_Block]:
    if not verdict.settings.told:
        return []
    head = f"\n### Settings\n\n{escape(phrases.settings_line(verdict), TEXT_CHARS)}\n"
    rows = [
        _row(escape(phrases.at_layers(names), 2 * NAME_CHARS), escape(text, TEXT_CHARS), level)
        for level in LEVELS
        for text, names in phrases.settings_told(verdict, level).items()
    ]
    if not rows:
        return [_Block(head)]
    table = _table("", "layer|what differs|what reads it", rows, "settings")
    return [_Block(f"{head}{table.head}", table.rows, table.what)]


def _gates(verdict: Verdict) -> _Block:
    rows = []
    for gate in verdict.gates:
        where = escape(gate.where) if gate.where else ""
        mark = "ok" if gate.passed else f"**{gate.outcome}**"
        rows.append(_row(escape(gate.title), mark, *phrases.gate_numbers(gate), where))
    return _table("Gates", "gate|outcome|compared:|largest error|at", rows, "gates")


def _findings(verdict: Verdict) -> list[_Block]:
    findings = [(gate.title, str(finding)) for gate in verdict.gates for finding in gate.findings]
    findings += [(gate.title, missing) for gate in verdict.gates if (missing := phrases.shortfall(gate))]
    rows = [f"- {escape(name)}: {escape(finding)}\n" for name, finding in findings]
    if len(rows) <= OPEN_FINDINGS:
        return [_Block("\n### Findings\n\n", tuple(rows), "findings")] if rows else []
    head = f"\n<details><summary>{len(rows)} findings</summary>\n\n"
    return [_Block(head, tuple(rows), "findings", "\n</details>\n")]


def _parts(verdict: Verdict) -> list[_Block]:
    if not verdict.parts:
        return []
    rows = [_row(escape(part.name), *phrases.part_numbers(verdict, index)) for index, part in enumerate(verdict.parts)]
    rows.append(_row("all", "", "", optional(verdict.decoded), "", ""))
    words = verdict.words
    heads = f"{words.one}|layers, float64:|{words.values}, float64:|{words.decoded}, float64:|{TIMES}:|energy:"
    return [_table(f"{words.kind.capitalize()}s", heads, rows, f"{words.one}s")]


def _faults(verdict: Verdict) -> list[_Block]:
    rows, waivers = [], phrases.waivers_of(verdict)
    for fault in verdict.faults:
        cause = phrases.remark(verdict, fault, waivers)
        numbers = (number(fault.logic), number(fault.ratio))
        rows.append(_row(escape(place(fault), 2 * NAME_CHARS), escape(cause) if cause else "", *numbers))
    heads = f"layer|probable cause|float64 error:|{TIMES}:"
    table = [_table("Faulty layers", heads, rows, "faulty layers")] if rows else []
    steps = [f"- {escape(step, TEXT_CHARS)}\n" for step in phrases.next_steps(verdict)]
    steps += [f"- To find the first step that differs: {escape(verdict.further, TEXT_CHARS)}\n"] * bool(verdict.further)
    return [*table, *([_Block("\n### What to do\n\n", tuple(steps), "steps")] if steps else [])]


def _worst_taps(verdict: Verdict) -> list[_Block]:
    taps = sorted(verdict.taps, key=lambda tap: _badness(verdict, tap))[:WORST_TAPS]
    if not taps:
        return []
    rows = []
    for tap in taps:
        part = phrases.part_name(verdict, tap.part)
        numbers = (tap.isolated, tap.inputs, tap.cumulative, max(tap.rms_ratio, tap.max_ratio),
                   phrases.nearness(verdict, tap))  # fmt: skip
        rows.append(_row(escape(tap.reference), escape(part) if part else "", *map(number, numbers)))
    heads = (
        f"layer|{verdict.words.one}|alone, float64:|inputs, float64:|in the network, float64:|{TIMES}:|of the bound:"
    )
    table = _table("", heads, rows, "layers")
    count = f"{len(taps)} of {len(verdict.taps)} layers" if len(taps) > 1 else "The one layer"
    head = f"\n<details><summary>{count}, nearest to their bounds first</summary>\n{table.head}"
    return [_Block(head, table.rows, table.what, "\n</details>\n")]


def _badness(verdict: Verdict, tap: TapResult) -> float:
    nearest = phrases.nearness(verdict, tap)
    return -inf if isnan(nearest) else -nearest


def _run(verdict: Verdict) -> _Block:
    packages = ", ".join(escape(f"{name} {value}") for name, value in verdict.environment.items())
    assumed = ", ".join(escape(f"{name} {value}") for name, value in verdict.assumed.items())
    lines = [f"Inputs: {'; '.join(map(escape, verdict.inputs))}"] if verdict.inputs else []
    lines += [f"Assumed: {assumed} ({phrases.on_assumptions(verdict, escape)})"] if assumed else []
    lines += [f"Reference: {phrases.reference_line(verdict, escape)}"]
    lines += [f"Bounds: {escape(phrases.bounds_line(verdict), TEXT_CHARS)}"]
    for what, path, digest in phrases.compared_files(verdict):
        sha256 = f", SHA-256 `{digest}`" if digest else ""
        lines += [f"{what.capitalize()}: {escape(phrases.file_name(path))}{sha256}"]
    start = f"{phrases.started(verdict)}; " if verdict.started else ""
    lines += [f"Run: {start}{packages or 'unknown'}; {phrases.took(verdict)}"]
    return _Block("\n" + "\n\n".join(lines) + "\n")


def _table(title: str, heads: str, rows: Sequence[str], what: str) -> _Block:
    """``heads`` are split at bars; a colon at the end makes the column right-aligned."""
    columns = heads.split("|")
    rules = _row(*("---:" if column.endswith(":") else "---" for column in columns))
    top = f"\n### {title}\n\n" if title else "\n"
    return _Block(f"{top}{_row(*(column.rstrip(':') for column in columns))}{rules}", tuple(rows), what)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _fit(blocks: Sequence[_Block], limit: int) -> str:
    """The blocks with as many rows as fit, given to the shortest tables first.

    If not even the heads fit, only the first blocks.
    """
    remaining = list(blocks)
    while len(remaining) > 1 and sum(block.fixed() for block in remaining) > limit:
        remaining.pop()
    room, row_counts = limit - sum(block.fixed() for block in remaining), dict[int, int]()
    # What short tables leave of their share goes to the long ones.
    for index in sorted(range(len(remaining)), key=[sum(map(_bytes, block.rows)) for block in remaining].__getitem__):
        row_counts[index] = _rows_within(remaining[index], room)
        room += remaining[index].fixed() - _bytes(_text(remaining[index], row_counts[index]))
    encoded = "".join(_text(block, row_counts[index]) for index, block in enumerate(remaining)).encode()
    # The last resort, if not even one head fits: cut within a character, which `ignore` then drops.
    return encoded[: max(limit, 0)].decode(errors="ignore")


def _rows_within(block: _Block, room: int) -> int:
    """Number of a block's rows that fit into ``room`` bytes beyond its fixed size."""
    ends = list(accumulate(map(_bytes, block.rows)))
    if not ends or ends[-1] <= room + _bytes(block.note(len(ends))):
        return len(ends)
    return bisect_right(ends, room)


def _text(block: _Block, row_count: int) -> str:
    return "".join([block.head, *block.rows[:row_count], block.note(len(block.rows) - row_count), block.foot])


def _bytes(text: str) -> int:
    return len(text.encode())
