"""Text for people, whose lines may begin with a mark of some severity, such as an outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

Severity = Literal["good", "bad", "doubtful", "note"]

_OUTCOMES: Final[Mapping[int, tuple[str, Severity]]] = {0: ("PASS", "good"), 1: ("FAIL", "bad")}
_INCOMPLETE: Final[tuple[str, Severity]] = ("INCOMPLETE", "doubtful")


class Mark(NamedTuple):
    """The first characters of a line, after its indentation."""

    length: int
    severity: Severity


class Marked(str):
    """Text with the marks of its lines, by the number of the line."""

    marks: Mapping[int, Mark] = {}


def marked(line: str, word: str, severity: Severity) -> Marked:
    """A line that begins, after its indentation, with the mark ``word``."""
    marked_line = Marked(line)
    marked_line.marks = {0: Mark(len(word), severity)}
    return marked_line


def outcome_of(exit_code: int) -> tuple[str, Severity]:
    """``PASS``, ``FAIL`` or ``INCOMPLETE``, and its severity."""
    return _OUTCOMES.get(exit_code, _INCOMPLETE)


def outcome_line(exit_code: int, claim: str) -> Marked:
    """The outcome, and what is claimed."""
    word, severity = outcome_of(exit_code)
    return marked(f"{word}  {claim}", word, severity)


def joined(texts: Iterable[str]) -> Marked:
    """Join texts by line breaks, with their marks."""
    texts = list(texts)
    marks: dict[int, Mark] = {}
    number = 0
    for text in texts:
        marks |= {number + row: mark for row, mark in marks_of(text).items()}
        number += text.count("\n") + 1
    block = Marked("\n".join(texts))
    block.marks = marks
    return block


def marks_of(text: str) -> Mapping[int, Mark]:
    """The marks of a text; a plain one has none."""
    return text.marks if isinstance(text, Marked) else {}
