"""Tables of named columns: check the path and the names, select columns, and require finite numbers.

The readers raise :class:`~wdport.checkpoint.faults.Fault`; :mod:`wdport.uses.data.series` adds the path.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from wdport.base.errors import InputError, UsageError, printable
from wdport.base.limits import MAX_FEATURE_NAME_CHARS, MAX_FEATURE_NAMES_CHARS, MAX_FEATURES
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.models.interface import Array
from wdport.uses.data.numpy_files import require_real


@contextmanager
def data_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Return the path; raises :class:`InputError` unless it is a regular file, and for any ``Fault`` of the block.

    A system error becomes a :class:`MachineError`.
    """
    file = Path(path)
    if "\0" in str(file):
        raise InputError(file, "a path cannot contain a zero byte", "check the path")
    with located(file):
        # Before it is opened: opening a named pipe would wait for a writer.
        mode = os.stat(file).st_mode
        if not stat.S_ISREG(mode):
            raise Fault("is a directory" if stat.S_ISDIR(mode) else "is not a regular file", "give a data file")
        yield file


def checked_names(names: object, features: int) -> tuple[str, ...]:
    """Return ``names`` as a tuple of ``features`` texts.

    Raises ``ValueError`` unless there is one name per feature, all are different, printable and without leading or
    trailing white space, and none is empty or too long.
    """
    if not isinstance(names, (list, tuple)):
        raise ValueError("names is not a list of texts")
    if len(names) != features:
        raise ValueError(f"{len(names)} names for {features} features")
    checked = tuple(_checked(number, name) for number, name in enumerate(names, 1))
    if sum(map(len, checked)) > MAX_FEATURE_NAMES_CHARS:
        raise ValueError(f"the names have more than {MAX_FEATURE_NAMES_CHARS} characters in total")
    name, count = Counter(checked).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{count} features have the name '{printable(name)}'")
    return checked


def _checked(number: int, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of feature {number} is {'empty' if name == '' else 'not text'}")
    if len(name) > MAX_FEATURE_NAME_CHARS:
        what = f"{len(name)} characters, at most {MAX_FEATURE_NAME_CHARS} are kept"
        raise ValueError(f"the name of feature {number} has {what}")
    if not name.isprintable() or name != name.strip():
        what = "leading or trailing white space" if name.isprintable() else "a character that cannot be printed"
        raise ValueError(f"the name of feature {number}, '{printable(name)}', has {what}")
    return name


def in_any_case(names: Sequence[str], candidates: Sequence[str]) -> list[str | None]:
    """For each of ``names`` the same name among ``candidates``, or the only one that differs in case; None if there is
    none."""
    matches: list[str | None] = []
    for name in names:
        alike = [candidate for candidate in candidates if candidate.casefold() == name.casefold()]
        matches.append(name if name in candidates else alike[0] if len(alike) == 1 else None)
    return matches


def columns_of(requested: Sequence[str], held: Sequence[str], where: str | PathLike[str]) -> list[str]:
    """The names among ``held`` of the columns ``requested``, in their order; raises :class:`UsageError` if one is not
    there."""
    columns = in_any_case(requested, held)
    if missing := [name for name, column in zip(requested, columns, strict=True) if column is None]:
        what = f"has no column of numbers called {_listed(missing[:1])}, and has {_listed(held)}"
        raise UsageError(where, what, f"give the columns {_listed(requested)}")
    return [column for column in columns if column is not None]


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(printable(name, 40) for name in names[:8])
    return f"{text} and {len(names) - 8} more" if len(names) > 8 else text


FILL: Final = "fill the gap or remove these rows"


@dataclass(frozen=True)
class ColumnTable:
    """The columns of a file: ``numeric`` states which of them contain numbers, ``load`` reads those at given positions.

    ``load`` returns (T, F) float64. ``place`` describes a row of it, such as ``line 17``. ``named`` states whether
    the file names its columns: otherwise they are ``column_1``, ``column_2``, ...
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    load: Callable[[Sequence[int]], Array]
    place: Callable[[int], str]
    named: bool = True

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names of the columns without numbers."""
        return tuple(name for name, is_numeric in zip(self.names, self.numeric, strict=True) if not is_numeric)

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the columns with numbers."""
        return tuple(name for name, is_numeric in zip(self.names, self.numeric, strict=True) if is_numeric)

    def read(self, columns: Sequence[str] | None) -> tuple[Array, tuple[str, ...]]:
        """Return values (T, F) and names of ``columns``, in that order; None means all numeric columns."""
        if not self.kept:
            raise Fault("has no numeric column", "check the separator; decimals need a point")
        require_distinct(self.kept)
        names = self.kept if columns is None else pick(columns, self.kept, self.dropped)
        places = {name: place for place, name in enumerate(self.names) if self.numeric[place]}
        values = self.load([places[name] for name in names])
        require_finite(values, names, self.place)
        return values, names


def table_of(array: Array) -> ColumnTable:
    """Return an array with time steps along its first axis as a table with columns ``column_1``, ``column_2``, ..."""
    require_real(array.dtype)
    if array.ndim not in (1, 2):
        raise Fault(f"has shape {array.shape}, which is not (time steps, features)", "save a 2D array")
    if 0 in array.shape:
        raise Fault(f"holds no values (shape {array.shape})", "give at least one time step of one feature")
    columns = array.reshape(len(array), -1)
    if columns.shape[1] > MAX_FEATURES:
        what = f"has shape {array.shape}, more than {MAX_FEATURES} features"
        raise Fault(what, "give (time steps, features)")
    names = tuple(f"column_{number}" for number in range(1, columns.shape[1] + 1))

    def load(picked: Sequence[int]) -> Array:
        with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite and is found as such
            return np.ascontiguousarray(columns[:, picked], dtype=np.float64)

    return ColumnTable(names, (True,) * len(names), load, row_place, named=False)


def row_place(row: int) -> str:
    """Return the place of an array's row as text, counted from 1."""
    return f"row {row + 1}"


def pick(columns: Sequence[str], names: Sequence[str], dropped: Sequence[str] = ()) -> tuple[str, ...]:
    """Return ``columns`` after checking that each is one of ``names``; raises :class:`UsageError` that lists these."""
    if isinstance(columns, str):
        raise UsageError("columns", f"is a string, {columns!r}", f"give a list: columns=[{columns!r}]")
    name_set = set(names)
    for name in columns:
        if name not in name_set:
            what = "is not numeric" if name in dropped else "is not a column"
            raise UsageError(("columns", name), what, f"choose from {', '.join(names)}", details=names)
    if not columns or len(set(columns)) < len(columns):
        what = "has a duplicate" if columns else "is empty"
        raise UsageError("columns", what, "name every wanted column once, or leave it out for all")
    return tuple(columns)


def require_distinct(names: Sequence[str]) -> None:
    """Raise :class:`Fault` if two columns have the same name."""
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise Fault(f"has {count} columns named {name!r}", "give every column its own name")


def require_finite(values: Array, names: Sequence[str], place: Callable[[int], str] = row_place) -> None:
    """Raise :class:`Fault` with the place of the first NaN or infinity of ``values`` (T, F), if any."""
    finite = np.isfinite(values)
    if not finite.all():
        row, column = divmod(int(np.argmin(finite)), values.shape[1])
        kind = "NaN" if np.isnan(values[row, column]) else "an infinite value"
        raise Fault(f"column {names[column]!r} holds {kind} ({finite.size - finite.sum()} in total)", FILL, place(row))
