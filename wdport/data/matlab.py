"""A MATLAB file up to version 7 (`.mat`) goes in; a table of one 2D array's columns comes out."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import IO, Final

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular import open_regular
from wdport.data.arrays import choose_key, understood
from wdport.data.table import Table, table_of
from wdport.limits import MAX_ARCHIVE_ARRAYS, MAX_INFLATION, MIN_INFLATED_BYTES

_INTEGERS: Final = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMERIC: Final = {"double", "single"} | _INTEGERS
_HDF5: Final = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Path, key: str | None) -> Table:
    """The table in the only 2D array of numbers with more than one row, or in the array called ``key``."""
    import scipy.io

    with open_regular(path) as file, understood(".mat"):
        # MATLAB writes the HDF5 signature behind 512 bytes of its own.
        if _HDF5 in file.read(1024):
            raise Fault("is a MATLAB 7.3 file", "save it with save(..., '-v7')")
        size = os.fstat(file.fileno()).st_size
        _require_few(file, size)
        file.seek(0)
        found = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(file)}
        candidates = [n for n, (shape, kind) in found.items() if kind in _NUMERIC and len(shape) == 2 and shape[0] > 1]
        name = choose_key(key, candidates, list(found))
        if found[name][1] not in _NUMERIC:
            raise Fault(f"{name} is {found[name][1]}, not a full array of numbers", "choose another with key")
        require_room(name, *found[name], size)
        file.seek(0)
        array = scipy.io.loadmat(file, variable_names=[name])[name]
    return table_of(array)


def require_room(name: str, shape: tuple[int, ...], kind: str, size: int) -> None:
    """Refuse an array that a file of ``size`` bytes cannot hold, compressed as real numbers may be."""
    nbytes = prod(shape) * (8 if kind == "double" else 4 if kind == "single" else int(kind.strip("uint")) // 8)
    most = max(MIN_INFLATED_BYTES, MAX_INFLATION * size)
    if min(shape, default=0) < 0 or nbytes > most:
        what = f"declares an array of shape {shape}, {nbytes} bytes (at most {most} are read)"
        raise Fault(what, "save it uncompressed, or only the part that is needed", name)


def _require_few(file: IO[bytes], size: int) -> None:
    """Count the variables of version 5 by their lengths, before the library reads the head of each."""
    file.seek(126)
    order = {b"IM": "little", b"MI": "big"}.get(file.read(2))
    at, count = 128, 0
    while order and at + 8 <= size:
        count += 1
        if count > MAX_ARCHIVE_ARRAYS:
            raise Fault(f"holds more than {MAX_ARCHIVE_ARRAYS} arrays", "save what is needed in a file of its own")
        file.seek(at + 4)
        at += 8 + int.from_bytes(file.read(4), "little" if order == "little" else "big")
