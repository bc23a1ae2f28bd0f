"""Read a data file as a :class:`Series`: float64 values (T, F) and the features' names; and its windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from wdport.base.errors import UsageError
from wdport.base.options import PathText
from wdport.checkpoint.faults import Fault
from wdport.models.interface import Array
from wdport.uses.data.arrays import read_npy, read_npz
from wdport.uses.data.matlab import read_mat
from wdport.uses.data.table import ColumnTable, columns_of, data_file, pick, require_distinct, require_finite, table_of
from wdport.uses.data.text_tables import read_arff, read_text

_READERS: Final[dict[str, Callable[[Path, str | None], ColumnTable]]] = {
    ".csv": read_text,
    ".txt": read_text,
    ".arff": read_arff,
    ".npy": read_npy,
    ".npz": read_npz,
    ".mat": read_mat,
}
_KEYED: Final = (".npz", ".mat")


@dataclass(frozen=True, eq=False)
class Series:
    """A multivariate time series; two of them are equal only if they are the same object.

    ``values`` is (T, F) float64 and finite, ``names`` has F entries, all different, and ``dropped`` names the
    columns of the file without numbers. ``named`` states whether the names come from the file; otherwise they are
    ``column_1``, ``column_2``, ... Raises :class:`UsageError` for other values or names.
    """

    values: Array
    names: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    named: bool = True

    def __post_init__(self) -> None:
        try:
            if np.ndim(self.values) != 2:
                raise Fault(f"values have shape {np.shape(self.values)}", "give (time steps, features)")
            table = table_of(np.asarray(self.values))
            if len(self.names) != len(table.names):
                raise Fault(f"{len(self.names)} names for {len(table.names)} features", "give one name per feature")
            require_distinct(self.names)
            values = np.asarray(self.values, np.float64)
            require_finite(values, self.names)
        except Fault as fault:
            raise UsageError(("series", fault.part), fault.what, fault.fix) from None
        object.__setattr__(self, "values", values)

    @staticmethod
    def of(array: ArrayLike) -> Series:
        """Make a series of an array (T, F), or (T,) for one feature, with names ``column_1``, ``column_2``, ..."""
        try:
            values = np.asarray(array)
        except ValueError:  # lists of different lengths
            raise UsageError("series", "is not an array", "give (time steps, features)") from None
        columns = values[:, None] if values.ndim == 1 else values
        count = columns.shape[1] if columns.ndim == 2 else 0
        return Series(columns, tuple(f"column_{number}" for number in range(1, count + 1)), named=False)

    def choose(self, columns: Sequence[str]) -> Series:
        """Return the features with these names, in this order; raises :class:`UsageError` for an unknown name."""
        names = pick(columns, self.names, self.dropped)
        places = {name: place for place, name in enumerate(self.names)}
        return Series(self.values[:, [places[name] for name in names]], names, self.dropped, self.named)

    def fitted(self, names: Sequence[str], features: int, where: PathText) -> Series:
        """Return the features of a model: the columns with these ``names``, in any case, if both have names.

        Raises :class:`UsageError` if a column is missing, or the number of ``features`` is another.
        """
        fitted_series = self.choose(columns_of(names, self.names, where)) if self.named and names else self
        if len(fitted_series.names) != features:
            what = f"has {len(fitted_series.names)} columns of numbers, and {features} are needed"
            raise UsageError(where, what, "give one for every feature")
        return fitted_series


def read_series(path: PathText, *, columns: Sequence[str] | None = None, key: str | None = None) -> Series:
    """Read a time series from a file; the suffix determines the format.

    Args:
        path: ``.csv`` or ``.txt`` (comma, tab, semicolon or blanks between cells, with or without a header),
            ``.arff``, ``.npy``, ``.npz`` or ``.mat`` (up to version 7). Rows are time steps.
        columns: names of the features, in the desired order; all numeric ones by default. Without names
            in the file they are ``column_1``, ``column_2``, ..., counted over all columns. Faults in other columns
            are ignored.
        key: name of the array in a ``.npz`` or ``.mat`` file with several arrays.

    Returns:
        The values (T, F) and the names of the features.

    Columns without a single number (dates, classes) are dropped and named in ``Series.dropped``, as are nominal
    attributes of ARFF files and an unnamed leading column before named ones (a row index).

    Raises:
        InputError: the file is missing, damaged, of another kind, ragged, without rows, or has text among numbers,
            NaN or infinity; the message gives the place.
        UsageError: ``columns`` or ``key`` names something that is not in the file.
        MachineError: reading fails.
    """
    with data_file(path) as file:
        suffix = file.suffix.lower()
        if suffix not in _READERS:
            raise Fault(f"is of an unknown kind ({suffix or 'no suffix'})", f"give one of {', '.join(_READERS)}")
        if key is not None and suffix not in _KEYED:
            raise UsageError(("key", key), f"does not apply to a {suffix} file", "leave it out")
        table = _READERS[suffix](file, key)
        values, names = table.read(columns)
    return Series(values, names, table.dropped, table.named)


def series_of(data: Series | ArrayLike | PathText) -> Series:
    """The series that is given, read from a file or made of an array; raises as both do."""
    if isinstance(data, Series):
        return data
    return read_series(data) if isinstance(data, (str, PathLike)) else Series.of(data)


def sliding_windows(values: ArrayLike, length: int, stride: int = 1) -> Array:
    """Return the windows of ``length`` steps that begin at steps 0, ``stride``, 2 ``stride``, ... of ``values`` (T, F).

    The result is (n, length, F) with n = (T - length) // stride + 1, a read-only view of ``values``; an incomplete last
    window is dropped. Raises :class:`UsageError` if no window fits or a number is below 1.
    """
    table = np.asarray(values)
    if table.ndim != 2:
        raise UsageError("values", f"have shape {table.shape}", "give (time steps, features)")
    for name, number in (("length", length), ("stride", stride)):
        if number < 1:
            raise UsageError(name, f"is {number}", "give 1 or more")
    if length > len(table):
        what = f"of {length} steps does not fit into a series of {len(table)}"
        raise UsageError("window", what, "use a shorter window or a longer series")
    windows = sliding_window_view(table, length, axis=0)  # (T - length + 1, F, length)
    # sliding_window_view appends the axis of the window.
    return windows[::stride].transpose(0, 2, 1)
