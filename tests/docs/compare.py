"""What a page shows beside what a command printed: the same lines, whatever the numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = re.compile(r"(?:(?<!\S)-)?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?(?:\+c(?:pu|u\d+))?")
CHANGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(worst .* \(at most \S+\)) at .*"), r"\1 at PLACE"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "HASH"),
    (re.compile(r"\b\d[\d.]* ?(?:[kKMG]i?B|bytes)\b"), "SIZE"),
    (NUMBER, "0"),
    (re.compile(r"[-=─━]{3,}"), "---"),
    (re.compile(r"\s+"), " "),
)
SLOW = "note: the proof took 0 s;"
"""The beginning of a line that a command prints only on a machine that is slow or busy."""

FAR = 8
"""Columns; wrapped lines are indented by as many or more."""


def skeleton(line: str) -> str:
    """A line without what differs from run to run and from machine to machine."""
    for pattern, word in CHANGES:
        line = pattern.sub(word, line)
    return line.strip()


def unwrapped(lines: Sequence[str]) -> list[str]:
    """Lines that a narrow output wrapped, whole again: what is indented far goes with the line above."""
    whole: list[str] = []
    for line in lines:
        if whole and whole[-1].strip() and line.startswith(" " * FAR) and line.strip():
            whole[-1] = f"{whole[-1]} {line.strip()}"
        else:
            whole.append(line)
    return whole


def difference(shown: Sequence[str], printed: Sequence[str]) -> str:
    """The first line that differs, in words; "" if none does. ``...`` alone stands for any lines."""
    wanted = [line for line in map(skeleton, unwrapped(shown)) if line]
    found = [line for line in map(skeleton, unwrapped(printed)) if line and not line.startswith(SLOW)]
    at = 0
    skipping = False
    for line in wanted:
        if line == "...":
            skipping = True
            continue
        if skipping:
            at = next((n for n in range(at, len(found)) if found[n] == line), len(found))
        if at >= len(found) or found[at] != line:
            return f"the page has   {line}\nthe command    {found[at] if at < len(found) else 'ended'}"
        at, skipping = at + 1, False
    return "" if skipping or at == len(found) else f"the page ends, the command goes on with   {found[at]}"
