"""Read text as tables of its columns: comma, tab, semicolon or blank separated (`.csv`, `.txt`), and ARFF.

A column without a single number, such as a date, is not numeric; neither is a leading column that the
header leaves unnamed, which is how pandas and R write the row index.

Numeric attributes are those declared numeric, real or integer: a nominal ``{0,1}`` is not numeric. The rows are parsed
like other text, which is faster than `scipy.io.arff` and gives the line of every fault.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from wdport.base.limits import MAX_FEATURES, MAX_TEXT_BYTES
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import read_small
from wdport.models.interface import Array
from wdport.uses.data.table import ColumnTable


def is_number(cell: str) -> bool:
    """Return whether numpy's `loadtxt` reads ``cell`` as a float64."""
    cell = cell.strip()  # numpy ignores any white space around a number, Python's float not all of it
    if not cell.isascii() or "_" in cell:  # which Python's float takes and numpy's does not
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def split(line: str, delimiter: str | None, quote: str = '"') -> list[str]:
    """Split one line into cells as `loadtxt` does; None separates at runs of blanks and ignores quotes."""
    # Counted before the line is split, which would create as many strings.
    if line.count(delimiter or " ") > MAX_FEATURES or (delimiter is None and line.count("\t") > MAX_FEATURES):
        raise too_wide()
    if delimiter is None or quote not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, quotechar=quote, strict=True))
    except csv.Error as error:
        raise Fault(f"its quotes do not match ({error})", "correct the line") from None


def too_wide() -> Fault:
    return Fault(f"has more than {MAX_FEATURES} columns", "give one row per time step and one column per feature")


def lines_of(path: Path) -> list[str]:
    """Read the lines of a UTF-8 text file with any of the three line ends."""
    data = read_small(path, MAX_TEXT_BYTES, "save it as .npy, or give only the part that is needed")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        part = f"line {data.count(10, 0, error.start) + 1}"
        raise Fault("is not UTF-8 text", "save the file as UTF-8", part) from None
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@dataclass(frozen=True)
class TextRows:
    """Data lines, their line numbers in the file, and how their cells are separated and quoted."""

    lines: Sequence[str]
    numbers: Sequence[int]
    delimiter: str | None
    quote: str = '"'

    def place(self, row: int) -> str:
        """Return the line of a row as text."""
        return f"line {self.numbers[row]}"

    def cells(self, row: int) -> list[str]:
        """Return the cells of one row."""
        try:
            return split(self.lines[row], self.delimiter, self.quote)
        except Fault as fault:
            raise Fault(fault.what, fault.fix, self.place(row)) from None

    def require_width(self, width: int) -> None:
        """Raise :class:`Fault` at the first row that does not have ``width`` cells."""
        for row, line in enumerate(self.lines):
            if self.delimiter is None or self.quote in line:
                count = len(self.cells(row))
            else:
                count = line.count(self.delimiter) + 1
                if count > MAX_FEATURES:
                    raise too_wide()
            if count != width:
                fix = "give every row one value per column" if line.strip() else "remove the line or fill it in"
                what = f"has {count} values, not {width}" if line.strip() else "is empty"
                raise Fault(what, fix, self.place(row))

    def numeric(self, width: int) -> list[bool]:
        """Return, for each of ``width`` columns, whether any cell is a number; rows must have that width."""
        numeric_columns, waiting = [False] * width, list(range(width))
        for row in range(len(self.lines)):
            cells = self.cells(row)
            for position in waiting:
                numeric_columns[position] = is_number(cells[position])
            waiting = [position for position in waiting if not numeric_columns[position]]
            if not waiting:
                break
        return numeric_columns

    def load(self, names: Sequence[str], picked: Sequence[int]) -> Array:
        """Return the columns at ``picked`` as (T, F) float64; rows must have equal width. ``names``: of all columns."""
        # Without a quote character numpy takes a faster path, and blanks as separators leave no room for quotes.
        quote = self.quote if self.delimiter is not None and any(self.quote in line for line in self.lines) else None
        try:
            return np.loadtxt(
                self.lines,
                np.float64,
                comments=None,
                delimiter=self.delimiter,
                usecols=list(picked),
                ndmin=2,
                quotechar=quote,
            )
        except ValueError as error:
            # numpy names a row of its input only; the lines are searched for the cell, its column and line.
            self._raise_text(names, sorted(picked))
            raise Fault(f"cannot be parsed ({error})", "write it again as plain numbers") from error

    def _raise_text(self, names: Sequence[str], picked: Sequence[int]) -> None:
        for row in range(len(self.lines)):
            cells = self.cells(row)
            for position in picked:
                if not is_number(cells[position]):
                    what = f"column {names[position]!r} holds {cells[position].strip()!r}, which is not a number"
                    raise Fault(what, "correct the cell, or remove the column", self.place(row))


_QUOTED: Final = re.compile(r'"[^"]*"')
_DIGIT: Final = re.compile(r"\d")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
_MISSING: Final = {"", "?", "-", "na", "n/a", "#n/a", "<na>", "null", "none"}
"""Markers of a missing number, in lower case; they are never the name of a column of numbers."""


def read_text(path: Path, key: str | None, gaps: bool = False) -> ColumnTable:
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
    # As numpy.savetxt writes headers.
    marked = lines[first].startswith("#")
    lines[first] = lines[first].lstrip("#")
    table = TextRows(lines[first:], range(first + 1, len(lines) + 1), _delimiter(lines[first : first + 2]))
    top = table.cells(0)
    table.require_width(len(top))
    header = marked or _is_header(top, table.cells(1) if len(table.lines) > 1 else None)
    rows = TextRows(table.lines[1:], table.numbers[1:], table.delimiter) if header else table
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
    return ColumnTable(names, numeric, partial(rows.load, names), rows.place, any(titles))


def _with_gaps(rows: TextRows) -> TextRows:
    lines = ["\t".join("nan" if cell.strip().lower() in _MISSING else cell.replace("\t", " ") for cell in rows.cells(i))
             for i in range(len(rows.lines))]  # fmt: skip
    return TextRows(lines, rows.numbers, "\t")


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


_ATTRIBUTE: Final = re.compile(r"""@attribute\s+('[^']+'|"[^"]+"|[^\s'"]\S*)\s+(\S.*)""", re.IGNORECASE)
_NUMERIC: Final = re.compile(r"(numeric|real|integer)\b", re.IGNORECASE)


def read_arff(path: Path, key: str | None) -> ColumnTable:
    """Read the table in an ARFF file; ``?``, sparse rows and relational attributes are refused."""
    del key
    lines = [line.strip() for line in lines_of(path)]
    start = next((number for number, line in enumerate(lines) if line.lower().startswith("@data")), None)
    if start is None:
        raise Fault("has no @DATA line" if any(lines) else "is empty", "give a complete ARFF file")
    declared = [_attribute(line, number) for number, line in enumerate(lines[:start], 1) if _is_attribute(line, number)]
    names = tuple(name for name, _ in declared)
    if len(names) > MAX_FEATURES:
        raise too_wide()
    numbered = [(number, line) for number, line in enumerate(lines[start + 1 :], start + 2) if line and line[0] != "%"]
    if not names or not numbered:
        raise Fault("has no rows" if names else "declares no attributes", "give a complete ARFF file")
    for number, line in numbered:
        if line[0] == "{":
            raise Fault("is a sparse row", "save the file with dense rows", f"line {number}")
    rows = TextRows([line for _, line in numbered], [number for number, _ in numbered], *_marks(numbered))
    rows.require_width(len(names))
    return ColumnTable(names, tuple(numeric for _, numeric in declared), partial(rows.load, names), rows.place)


def _is_attribute(line: str, number: int) -> bool:
    keyword = line.split()[0].lower() if line else ""
    if not keyword or keyword[0] == "%" or keyword == "@relation":
        return False
    if keyword != "@attribute":
        raise Fault(f"{keyword!r} is not part of an ARFF header", "correct the line", f"line {number}")
    return True


def _attribute(line: str, number: int) -> tuple[str, bool]:
    """Return the name of an attribute and whether it is numeric."""
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise Fault("is not an attribute declaration", "write it as @ATTRIBUTE name type", f"line {number}")
    name, kind = match.groups()
    if kind.lower().startswith("relational"):
        raise Fault("declares a relational attribute", "save the series as a plain table", f"line {number}")
    return name.strip("'\""), _NUMERIC.match(kind) is not None


def _marks(numbered: Sequence[tuple[int, str]]) -> tuple[str, str]:
    """Return the separator and the quote character of the data rows."""
    separator = "\t" if "\t" in numbered[0][1] and "," not in numbered[0][1] else ","
    first = next((line for _, line in numbered if "'" in line or '"' in line), '"')
    return separator, next(mark for mark in first if mark in "'\"")
