"""Fold consecutive blocks of the same structure into one: ``blocks.<n>``, 12 times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wdport.porting.outline.result import Step

MOST_STEPS = 8
"""Maximum number of steps in one repetition."""

LEAST_SAVED = 3
"""Minimum number of lines saved."""

_NUMBER = re.compile(r"\d+")
_CALL = re.compile(r"#\d+")
_PICKING = ("getitem", "select", "narrow")
"""Functions that may read another index in each repetition."""


@dataclass(frozen=True)
class Folded:
    """Steps that are repeated ``times`` times; ``names`` are their names with ``<n>`` for the number that starts at
    ``first`` and grows by ``by``, if there is one; ``chained``: each repetition reads the output of the previous
    one."""

    steps: tuple[Step, ...]
    times: int
    names: tuple[str, ...]
    first: int = 0
    by: int = 1
    chained: bool = False

    @property
    def range(self) -> str:
        """``n 0 to 11``; "" if the names have no number."""
        step = f" by {self.by}" if self.by != 1 else ""
        span = f"n {self.first} to {self.first + self.by * (self.times - 1)}{step}"
        return span if any("<n>" in name for name in self.names) else ""


def fold(steps: Sequence[Step]) -> list[Folded]:
    """Fold the repetitions in these steps; a step without repetitions has ``times`` 1."""
    signatures, sizes = [_signature(step) for step in steps], [_lines(step) for step in steps]
    folded, position = [], 0
    while position < len(steps):
        best = Folded((steps[position],), 1, (steps[position].name,))
        saved = LEAST_SAVED - 1
        for period in range(1, min(MOST_STEPS, (len(steps) - position) // 2) + 1):
            candidate = _repeated(steps, signatures, position, period)
            gain = (candidate.times - 1) * sum(sizes[position : position + period])
            if gain > saved:
                best, saved = candidate, gain
        folded.append(best)
        position += best.times * len(best.steps)
    return folded


def _repeated(steps: Sequence[Step], signatures: Sequence[object], position: int, period: int) -> Folded:
    """Fold the consecutive repetitions of the steps from ``position`` on whose names have increasing numbers."""
    times, by = 1, 0
    names = [step.name for step in steps[position : position + period]]
    while position + (times + 1) * period <= len(steps):
        start = position + times * period
        if signatures[start : start + period] != signatures[position : position + period]:
            break
        shift = _shift(names, [step.name for step in steps[start : start + period]])
        if shift is None or shift < 0 or (times > 1 and shift != by * times):
            break
        by = shift if times == 1 else by
        times += 1
    if times == 1:
        return Folded(tuple(steps[position : position + period]), 1, tuple(names))
    patterns, first = _patterns(names, [step.name for step in steps[position + period : position + 2 * period]])
    inputs = steps[position + period].inputs
    chained = bool(inputs) and inputs[0].source.partition("[")[0] == steps[position + period - 1].name
    return Folded(tuple(steps[position : position + period]), times, patterns, first, by or 1, chained)


def _numbers(name: str) -> list[int]:
    """The numbers in a path, without the number of the call."""
    return [int(number) for number in _NUMBER.findall(name.partition("#")[0])]


def _shift(names: Sequence[str], others: Sequence[str]) -> int | None:
    """The common difference of the numbers that differ, if there is one."""
    pairs = [pair for a, b in zip(names, others, strict=True) for pair in zip(_numbers(a), _numbers(b), strict=True)]
    shifts = {b - a for a, b in pairs if a != b}
    return None if len(shifts) > 1 else next(iter(shifts), 0)


def _patterns(names: Sequence[str], others: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The names with ``<n>`` for the number that changes, and its first value."""
    first, templates = 0, []
    for name, other in zip(names, others, strict=True):
        pairs = list(zip(_numbers(name), _numbers(other), strict=True))
        first = next((a for a, b in pairs if a != b), first)
        numbers = ["<n>" if a != b else str(a) for a, b in pairs]
        path, call, count = name.partition("#")
        parts = zip(_NUMBER.split(path), [*numbers, ""], strict=True)
        templates.append("".join(text for pair in parts for text in pair) + call + count)
    return tuple(templates), first


def _lines(step: Step) -> int:
    return 1 + sum(map(_lines, step.steps))


def _signature(step: Step) -> object:
    """A key that is equal for repetitions of a step."""
    plain = [
        _CALL.sub("", text) for text in (step.relative if step.what == "function" else (step.torch, step.keras_text))
    ]
    if not step.number or step.name in _PICKING:
        plain = [_NUMBER.sub("#", text) for text in plain]
    settings = {} if step.name in _PICKING else dict(step.settings)
    sizes, notes = (
        [value.sizes for value in (*step.inputs, *step.outputs)],
        [_NUMBER.sub("#", note) for note in step.notes],
    )
    name = _NUMBER.sub("#", _CALL.sub("", step.name))
    return step.what, name, step.type, step.kind, repr(settings), plain, sizes, notes, [*map(_signature, step.steps)]
