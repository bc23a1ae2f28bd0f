"""Blocks of one structure, one behind the other, told once: ``blocks.<n>``, 12 times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wdport.porting.outline.result import Step

MOST_STEPS = 8
"""Steps that one repetition may have beside each other."""

LEAST_SAVED = 3
"""Lines that must be saved."""

_NUMBER = re.compile(r"\d+")
_REFERENCE = re.compile(r"(?<![\]\w])\[(\d+)\]")


@dataclass(frozen=True)
class Folded:
    """Steps that come ``times`` times; ``names`` are theirs with ``<n>`` for the number that goes from ``first`` on by
    ``by``, where there is one; ``chained``: each is given what the one before it made."""

    steps: tuple[Step, ...]
    times: int
    names: tuple[str, ...]
    first: int = 0
    by: int = 1
    chained: bool = False

    @property
    def range(self) -> str:
        """``n 0 to 11``; "" where the names have no number."""
        step = f" by {self.by}" if self.by != 1 else ""
        told = f"n {self.first} to {self.first + self.by * (self.times - 1)}{step}"
        return told if any("<n>" in name for name in self.names) else ""


def fold(steps: Sequence[Step]) -> list[Folded]:
    """The steps with repetitions taken together; one that is alone comes once."""
    signatures, sizes = [_signature(step) for step in steps], [_lines(step) for step in steps]
    found, at = [], 0
    while at < len(steps):
        best = Folded((steps[at],), 1, (steps[at].name,))
        saved = LEAST_SAVED - 1
        for period in range(1, min(MOST_STEPS, (len(steps) - at) // 2) + 1):
            made = _repeated(steps, signatures, at, period)
            gain = (made.times - 1) * sum(sizes[at : at + period])
            if gain > saved:
                best, saved = made, gain
        found.append(best)
        at += best.times * len(best.steps)
    return found


def _repeated(steps: Sequence[Step], signatures: Sequence[object], at: int, period: int) -> Folded:
    """How often the steps from ``at`` on come one behind the other, with names that count."""
    times, by = 1, 0
    names = [step.name for step in steps[at : at + period]]
    while at + (times + 1) * period <= len(steps):
        start = at + times * period
        if signatures[start : start + period] != signatures[at : at + period]:
            break
        shift = _shift(names, [step.name for step in steps[start : start + period]])
        if shift is None or (times > 1 and shift != by * times) or (times == 1 and not _may(shift)):
            break
        by = shift if times == 1 else by
        times += 1
    if times == 1:
        return Folded(tuple(steps[at : at + period]), 1, tuple(names))
    patterns, first = _patterns(names, [step.name for step in steps[at + period : at + 2 * period]])
    given = steps[at + period].inputs
    chained = bool(given) and given[0].source.partition("[")[0] == steps[at + period - 1].name
    return Folded(tuple(steps[at : at + period]), times, patterns, first, by or 1, chained)


def _may(shift: int) -> bool:
    return shift >= 0


def _shift(names: Sequence[str], others: Sequence[str]) -> int | None:
    """By how much the numbers differ that differ, if all by the same."""
    shifts = set()
    for name, other in zip(names, others, strict=True):
        for a, b in zip(_NUMBER.findall(name), _NUMBER.findall(other), strict=True):
            if a != b:
                shifts.add(int(b) - int(a))
    if len(shifts) > 1:
        return None
    return shifts.pop() if shifts else 0


def _patterns(names: Sequence[str], others: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The names with ``<n>`` for what changes, and its first number."""
    first, made = 0, []
    for name, other in zip(names, others, strict=True):
        moving = [a != b for a, b in zip(_NUMBER.findall(name), _NUMBER.findall(other), strict=True)]
        for number, moves in zip(_NUMBER.findall(name), moving, strict=True):
            first = int(number) if moves else first
        parts = _NUMBER.split(name)
        numbers = ["<n>" if moves else number for number, moves in zip(_NUMBER.findall(name), moving, strict=True)]
        made.append("".join(text for pair in zip(parts, [*numbers, ""], strict=True) for text in pair))
    return tuple(made), first


def _lines(step: Step) -> int:
    return 1 + sum(map(_lines, step.steps))


def _signature(step: Step) -> object:
    """What two repetitions of a step have in common."""

    def near(text: str) -> str:
        relative = _REFERENCE.sub(lambda found: f"[-{step.number - int(found[1])}]", text) if step.number else text
        return _NUMBER.sub("#", relative) if not step.number else re.sub(r"\.\d+", ".#", relative)

    return (
        step.what, _NUMBER.sub("#", step.name), step.type, step.kind, repr(dict(step.settings)), near(step.torch),
        step.there, tuple(value.sizes for value in (*step.inputs, *step.outputs)),
        tuple(near(value.source) for value in step.inputs) if step.what == "function" else (),
        tuple(_NUMBER.sub("#", note) for note in step.notes), tuple(map(_signature, step.steps)),
    )  # fmt: skip
