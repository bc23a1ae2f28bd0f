"""Parse lines of separated cells to float64 columns, or find the line and column of the first fault."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular import read_small
from wdport.limits import MAX_FEATURES, MAX_TEXT_BYTES
from wdport.model import Array


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
    if line.count(delimiter or " ") > MAX_FEATURES or (delimiter is None and line.count("\t") > MAX_FEATURES):
        raise too_wide()
    if delimiter is None or quote not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, quotechar=quote, strict=True))
    except csv.Error as error:
        raise Fault(f"its quotes do not match ({error})", "correct the line") from None


def too_wide() -> Fault:
    """Return the fault for a table with too many columns."""
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
class Rows:
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
            self._raise_text(names, sorted(picked))
            raise Fault(f"cannot be parsed ({error})", "write it again as plain numbers") from error

    def _raise_text(self, names: Sequence[str], picked: Sequence[int]) -> None:
        for row in range(len(self.lines)):
            cells = self.cells(row)
            for position in picked:
                if not is_number(cells[position]):
                    what = f"column {names[position]!r} holds {cells[position].strip()!r}, which is not a number"
                    raise Fault(what, "correct the cell, or remove the column", self.place(row))
