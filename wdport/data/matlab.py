"""A MATLAB file up to version 7 (`.mat`) goes in; a table of one 2D array's columns comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from wdport.checkpoint.faults import Fault
from wdport.data.arrays import choose_key, understood
from wdport.data.table import Table, table_of

_INTEGERS: Final = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMERIC: Final = {"double", "single"} | _INTEGERS
_HDF5: Final = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Path, key: str | None) -> Table:
    """The table in the only 2D array of numbers with more than one row, or in the array called ``key``."""
    import scipy.io

    with path.open("rb") as file, understood(".mat"):
        # MATLAB writes the HDF5 signature behind 512 bytes of its own.
        if _HDF5 in file.read(1024):
            raise Fault("is a MATLAB 7.3 file", "save it with save(..., '-v7')")
        file.seek(0)
        found = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(file)}
        candidates = [n for n, (shape, kind) in found.items() if kind in _NUMERIC and len(shape) == 2 and shape[0] > 1]
        name = choose_key(key, candidates, list(found))
        if found[name][1] not in _NUMERIC:
            raise Fault(f"{name} is {found[name][1]}, not a full array of numbers", "choose another with key")
        file.seek(0)
        array = scipy.io.loadmat(file, variable_names=[name])[name]
    return table_of(array)
