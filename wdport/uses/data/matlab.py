"""Read a MATLAB file of version 5 to 7 (`.mat`) as a table of one 2D array's columns."""

from __future__ import annotations

import os
import zlib
from math import prod
from pathlib import Path
from typing import IO, Final, Literal

from wdport.base.limits import MAX_ARCHIVE_ARRAYS, MAX_INFLATION, MAX_RANK, MIN_INFLATED_BYTES
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import open_regular
from wdport.uses.data.arrays import choose_key, understood
from wdport.uses.data.table import ColumnTable, table_of

Order = Literal["little", "big"]

_INTEGERS: Final = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMERIC: Final = {"double", "single"} | _INTEGERS
_MATRIX: Final = 14
_COMPRESSED: Final = 15
"""The types of a variable, uncompressed and deflated."""

_SIZES: Final = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
"""Bytes of a number, by type."""

_HEAD: Final = 4096
"""Bytes that contain a variable's flags, shape, name and the tag of its numbers: a name has at most 63."""

_FIRST_NUMERIC, _LAST_NUMERIC, _COMPLEX = 6, 15, 0x0800
"""Classes of numeric arrays, and the flag of complex ones."""

_PIECE: Final = 1 << 20
_SMALLER: Final = "save it uncompressed, or only the part that is needed"
_HDF5: Final = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Path, key: str | None) -> ColumnTable:
    """Read the table in the only 2D numeric array with more than one row, or in the array ``key``."""
    import scipy.io

    with open_regular(path) as file, understood(".mat"):
        # MATLAB writes the HDF5 signature after a header of 512 bytes.
        if _HDF5 in file.read(1024):
            raise Fault("is a MATLAB 7.3 file", "save it with save(..., '-v7')")
        size = os.fstat(file.fileno()).st_size
        # Before scipy reads anything: it ends the process on an invalid type of numbers.
        complex_names = _require_sound(file, size)
        file.seek(0)
        variables = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(file)}
        candidates = [
            n for n, (shape, kind) in variables.items() if kind in _NUMERIC and len(shape) == 2 and shape[0] > 1
        ]
        name = choose_key(key, candidates, list(variables))
        shape, kind = variables[name]
        if kind not in _NUMERIC or name in complex_names:
            what = "holds complex numbers" if kind in _NUMERIC else f"is {kind}, not a full array of numbers"
            raise Fault(f"{name} {what}", "choose another with key in Python, or save it in a separate file")
        _require_room(name, shape, kind, size)
        file.seek(0)
        # Only this variable is unpacked.
        array = scipy.io.loadmat(file, variable_names=[name])[name]
    return table_of(array)


def _most(size: int) -> int:
    """Return how many bytes a file of ``size`` bytes may unpack to."""
    return max(MIN_INFLATED_BYTES, MAX_INFLATION * size)


def _require_room(name: str, shape: tuple[int, ...], kind: str, size: int) -> None:
    """Refuse an array that the file cannot contain at the compression ratio of real data."""
    nbytes = prod(shape) * (8 if kind == "double" else 4 if kind == "single" else int(kind.strip("uint")) // 8)
    if min(shape, default=0) < 0 or nbytes > _most(size):
        what = f"declares an array of shape {shape}, {nbytes} bytes (at most {_most(size)} are read)"
        raise Fault(what, _SMALLER, name)


def _require_sound(file: IO[bytes], size: int) -> set[str]:
    """Count the variables and their unpacked bytes and check their tags before the library reads them; return the
    names of complex ones.

    The library ends the process by a signal if the type of the numbers is invalid (measured with scipy 1.17).
    """
    file.seek(0)
    header = file.read(128)
    order: Order = "little" if header[126:] == b"IM" else "big"
    # A zero among the first four bytes marks a file of version 4.
    if header[126:] not in (b"IM", b"MI") or 0 in header[:4]:
        raise Fault("is not a MATLAB file of version 5 to 7", "save it with save(..., '-v7')")
    offset, count, left, complex_names = 128, 0, _most(size), set[str]()
    while offset + 8 <= size:
        count += 1
        if count > MAX_ARCHIVE_ARRAYS:
            raise Fault(f"has more than {MAX_ARCHIVE_ARRAYS} arrays", "save the needed arrays in a separate file")
        file.seek(offset)
        kind, length = (int.from_bytes(file.read(4), order) for _ in range(2))
        offset += 8 + length
        if offset > size or kind not in (_MATRIX, _COMPRESSED):
            raise Fault(f"its variable {count} is damaged")
        data = file.read(length if kind == _COMPRESSED else min(length, _HEAD))
        if kind == _COMPRESSED:
            left -= _unpacked(data, left)
            if left < 0:
                raise Fault(f"unpacks to more than {_most(size)} bytes", _SMALLER)
            # A second pass over the beginning, whose tags are checked once the size of all is known to be allowed.
            data = zlib.decompressobj().decompress(data, _HEAD + 8)
            kind, length, data = int.from_bytes(data[:4], order), int.from_bytes(data[4:8], order), data[8:]
        if kind != _MATRIX or not _is_sound(data, order):
            raise Fault(f"its variable {count} is damaged")
        if name := _complex_name(data, order):
            complex_names.add(name)
    return complex_names


def _is_sound(head: bytes, order: Order) -> bool:
    """Return whether a variable's flags, shape and name are valid, and its numbers, if any, have a known type and the
    number that its shape states. The second half of complex numbers is not checked: they are not read."""
    flags = _part(head, 0, order)
    shape = _part(head, flags[3], order)
    name = _part(head, shape[3], order)
    kinds = (flags[0], flags[1], shape[0], name[0])
    if kinds != (6, 8, 5, 1) or shape[1] % 4 or not 2 <= shape[1] // 4 <= MAX_RANK or name[3] > len(head):
        return False
    word = int.from_bytes(head[flags[2] : flags[2] + 4], order)
    if not _FIRST_NUMERIC <= word & 0xFF <= _LAST_NUMERIC:
        return True  # text, cells, structures: not read
    sizes = [int.from_bytes(head[i : i + 4], order, signed=True) for i in range(shape[2], shape[2] + shape[1], 4)]
    numbers = _part(head, name[3], order)
    return min(sizes) >= 0 and numbers[1] == prod(sizes) * _SIZES.get(numbers[0], -1)


def _complex_name(head: bytes, order: Order) -> str:
    """Return the name of a valid complex variable, "" for any other."""
    flags = _part(head, 0, order)
    name = _part(head, _part(head, flags[3], order)[3], order)
    is_complex = int.from_bytes(head[flags[2] : flags[2] + 4], order) & _COMPLEX
    return head[name[2] : name[2] + name[1]].decode("latin-1") if is_complex else ""


def _part(head: bytes, offset: int, order: Order) -> tuple[int, int, int, int]:
    """Return type and length of the part of a variable at ``offset``, and the offsets of its data and of the next
    part."""
    word = int.from_bytes(head[offset : offset + 4], order)
    if word >> 16:  # both in one word, and up to four bytes of data after it
        return word & 0xFFFF, word >> 16, offset + 4, offset + 8
    length = int.from_bytes(head[offset + 4 : offset + 8], order)
    # Parts begin at multiples of eight bytes.
    return word, length, offset + 8, offset + 8 + -(-length // 8) * 8


def _unpacked(packed: bytes, max_bytes: int) -> int:
    """Return the inflated size in bytes, at most ``max_bytes`` + 1."""
    inflate, total = zlib.decompressobj(), 0
    while packed and not inflate.eof and total <= max_bytes:
        total += len(inflate.decompress(packed, _PIECE))
        packed = inflate.unconsumed_tail
    return min(total, max_bytes + 1)
