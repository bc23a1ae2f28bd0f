"""Read an ARFF file (Weka's format) as a table of its attributes.

Numeric attributes are those declared numeric, real or integer: a nominal ``{0,1}`` is not numeric. The rows are parsed
like other text, which is faster than `scipy.io.arff` and gives the line of every fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from wdport.checkpoint.faults import Fault
from wdport.data.rows import Rows, lines_of, too_wide
from wdport.data.table import Table
from wdport.limits import MAX_FEATURES

_ATTRIBUTE: Final = re.compile(r"""@attribute\s+('[^']+'|"[^"]+"|[^\s'"]\S*)\s+(\S.*)""", re.IGNORECASE)
_NUMERIC: Final = re.compile(r"(numeric|real|integer)\b", re.IGNORECASE)


def read_arff(path: Path, key: str | None) -> Table:
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
    rows = Rows([line for _, line in numbered], [number for number, _ in numbered], *_marks(numbered))
    rows.require_width(len(names))
    return Table(names, tuple(numeric for _, numeric in declared), partial(rows.load, names), rows.place)


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
