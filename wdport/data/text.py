"""Read comma, tab, semicolon or blank separated text (`.csv`, `.txt`) as a table of its columns.

A column without a single number, such as a date, is not numeric; neither is a leading column that the
header leaves unnamed, which is how pandas and R write the row index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from wdport.checkpoint.faults import Fault
from wdport.data.rows import Rows, is_number, lines_of
from wdport.data.table import Table

_QUOTED: Final = re.compile(r'"[^"]*"')
_DIGIT: Final = re.compile(r"\d")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
_MISSING: Final = {"", "?", "-", "na", "n/a", "#n/a", "<na>", "null", "none"}
"""Markers of a missing number, in lower case; they are never the name of a column of numbers."""


def read_text(path: Path, key: str | None, gaps: bool = False) -> Table:
    """Read the table in a text file; the first line may be a header, with or without ``#`` before it.

    With ``gaps``, an empty cell or another marker of a missing number is NaN, and a whole column may be NaN.
    """
    del key
    lines = lines_of(path)
    first = next((number for number, line in enumerate(lines) if line.strip(" ")), len(lines))
    while len(lines) > first and not lines[-1].strip(" "):
        lines.pop()
    if first == len(lines):
        raise Fault("is empty", "give a file with rows of numbers")
    marked = lines[first].startswith("#")
    lines[first] = lines[first].lstrip("#")
    table = Rows(lines[first:], range(first + 1, len(lines) + 1), _delimiter(lines[first : first + 2]))
    top = table.cells(0)
    table.require_width(len(top))
    header = marked or _is_header(top, table.cells(1) if len(table.lines) > 1 else None)
    rows = Rows(table.lines[1:], table.numbers[1:], table.delimiter) if header else table
    if not rows.lines:
        raise Fault("has no rows below its header", "give a file with rows of numbers")
    rows = _with_gaps(rows) if gaps else rows
    titles = [cell.strip(' \t"') for cell in top] if header else [""] * len(top)
    names = tuple(title or f"column_{number}" for number, title in enumerate(titles, 1))
    index = header and len(titles) > 1 and not titles[0] and any(titles)
    numeric = tuple(
        is_numeric and not (index and position == 0) for position, is_numeric in enumerate(rows.numeric(len(names)))
    )
    for name, cell, is_numeric in zip(names, rows.cells(0), numeric, strict=True):
        if not is_numeric and _DECIMAL_COMMA.fullmatch(cell.strip()):
            raise Fault(f"column {name!r} holds {cell.strip()!r}", "write decimals with a point", rows.place(0))
    return Table(names, numeric, partial(rows.load, names), rows.place, any(titles))


def _with_gaps(rows: Rows) -> Rows:
    lines = ["\t".join("nan" if cell.strip().lower() in _MISSING else cell.replace("\t", " ") for cell in rows.cells(i))
             for i in range(len(rows.lines))]  # fmt: skip
    return Rows(lines, rows.numbers, "\t")


def _delimiter(lines: Sequence[str]) -> str | None:
    """Return the separator, detected in the second line: the first may be a header with punctuation in its names."""
    probe = _QUOTED.sub("", lines[-1])
    return next((mark for mark in "\t;," if mark in probe), None)


def _is_header(first: Sequence[str], second: Sequence[str] | None) -> bool:
    """Return whether the first line names columns; ``second`` is None for a file of one line."""
    if second is None:
        return not any(map(is_number, first))
    for above, below in zip(first, second, strict=True):
        if is_number(above) or above.strip().lower() in _MISSING:
            continue
        if is_number(below):
            return True
        if _DIGIT.search(below) and not _DIGIT.search(above):  # "date" over "2016-07-01"
            return True
    return _counts(first) and not all(cell.strip().lstrip("-").isdecimal() for cell in second)


def _counts(cells: Sequence[str]) -> bool:
    """Return whether the cells are 0, 1, 2, ..., at least up to 2: the header of an unnamed pandas table, with or
    without an index."""
    stripped = [cell.strip() for cell in cells]
    counted = stripped[1:] if stripped[0] == "" else stripped
    return len(counted) > 2 and counted == [str(number) for number in range(len(counted))]
