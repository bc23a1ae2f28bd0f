"""A MATLAB file up to version 7 (`.mat`) goes in; a table of one 2D array's columns comes out."""

from __future__ import annotations

import os
import zlib
from math import prod
from pathlib import Path
from typing import IO, Final, Literal

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular import open_regular
from wdport.data.arrays import choose_key, understood
from wdport.data.table import Table, table_of
from wdport.limits import MAX_ARCHIVE_ARRAYS, MAX_INFLATION, MIN_INFLATED_BYTES

_INTEGERS: Final = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMERIC: Final = {"double", "single"} | _INTEGERS
_COMPRESSED: Final = 15
"""The type of a deflated variable."""

_PIECE: Final = 1 << 20
_SMALLER: Final = "save it uncompressed, or only the part that is needed"
_HDF5: Final = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Path, key: str | None) -> Table:
    """The table in the only 2D array of numbers with more than one row, or in the array called ``key``."""
    import scipy.io

    with open_regular(path) as file, understood(".mat"):
        # MATLAB writes the HDF5 signature behind 512 bytes of its own.
        if _HDF5 in file.read(1024):
            raise Fault("is a MATLAB 7.3 file", "save it with save(..., '-v7')")
        size = os.fstat(file.fileno()).st_size
        _require_small(file, size)
        file.seek(0)
        found = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(file)}
        candidates = [n for n, (shape, kind) in found.items() if kind in _NUMERIC and len(shape) == 2 and shape[0] > 1]
        name = choose_key(key, candidates, list(found))
        if found[name][1] not in _NUMERIC:
            raise Fault(f"{name} is {found[name][1]}, not a full array of numbers", "choose another with key")
        _require_room(name, *found[name], size)
        file.seek(0)
        array = scipy.io.loadmat(file, variable_names=[name])[name]
    return table_of(array)


def _most(size: int) -> int:
    """Bytes that a file of ``size`` bytes may unpack to."""
    return max(MIN_INFLATED_BYTES, MAX_INFLATION * size)


def _require_room(name: str, shape: tuple[int, ...], kind: str, size: int) -> None:
    """Refuse an array that the file cannot hold, compressed as real numbers may be."""
    nbytes = prod(shape) * (8 if kind == "double" else 4 if kind == "single" else int(kind.strip("uint")) // 8)
    if min(shape, default=0) < 0 or nbytes > _most(size):
        what = f"declares an array of shape {shape}, {nbytes} bytes (at most {_most(size)} are read)"
        raise Fault(what, _SMALLER, name)


def _require_small(file: IO[bytes], size: int) -> None:
    """Count the variables of a file of version 5 and what they unpack to, before the library does all of that."""
    file.seek(126)
    order: Literal["little", "big"] = "little" if (mark := file.read(2)) == b"IM" else "big"
    at, count, left = 128, 0, _most(size)
    while mark in (b"IM", b"MI") and at + 8 <= size:
        count += 1
        if count > MAX_ARCHIVE_ARRAYS:
            raise Fault(f"holds more than {MAX_ARCHIVE_ARRAYS} arrays", "save what is needed in a file of its own")
        file.seek(at)
        kind, length = (int.from_bytes(file.read(4), order) for _ in range(2))
        if kind == _COMPRESSED:
            left -= _unpacked(file.read(min(length, size)), left)
        if left < 0:
            raise Fault(f"unpacks to more than {_most(size)} bytes", _SMALLER)
        at += 8 + length


def _unpacked(packed: bytes, most: int) -> int:
    """To how many bytes these are inflated; one more than ``most`` stands for all above it."""
    inflate, total = zlib.decompressobj(), 0
    while packed and not inflate.eof and total <= most:
        total += len(inflate.decompress(packed, _PIECE))
        packed = inflate.unconsumed_tail
    return min(total, most + 1)
