"""Read numpy files (`.npy`, `.npz`) on demand, after checking that they have the bytes that they declare. Nothing is
unpickled.

Declared sizes are compared with what the file can contain before memory is allocated: a few kilobytes of deflated zeros
may represent gigabytes. The arrays of an archive with a seal are compared with it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from math import prod
from typing import IO, Any, Final

import numpy as np

from wdport.base.limits import MAX_ARCHIVE_ARRAYS, MAX_INFLATION, MIN_INFLATED_BYTES
from wdport.checkpoint.faults import Fault
from wdport.files.zip_seal import Hashed, digests_in
from wdport.models.interface import Array

_MAX_HEADER: Final = 10_000
"""Bytes of a header; numpy also refuses longer ones, but only after reading them."""

_PIECE: Final = 1 << 24
"""Bytes that are read at a time."""

_MAGIC: Final = b"\x93NUMPY"


Readable = IO[bytes] | Hashed


REAL: Final = "iuf"
"""Kinds of dtypes of real numbers."""

WITH_BOOLEANS: Final = "iufb"
WITH_TEXTS: Final = "iufU"


def read_array(file: Readable, size: int, kinds: str = REAL) -> Array:
    """Read the array in ``file``, of ``size`` bytes, with a dtype of these ``kinds``; raises :class:`Fault`, and
    numpy's exceptions."""
    shape, fortran, dtype, _ = _checked(file, size, kinds)
    # Filled by hand, since numpy.fromfile reads from real files only, and a member of an archive is none.
    flat = np.empty(prod(shape), dtype)
    _fill(flat.view(np.uint8), file)
    if dtype.kind == "b" and flat.view(np.uint8).max(initial=0) > 1:
        raise ValueError("a boolean is neither 0 nor 1")
    return flat.reshape(shape, order="F" if fortran else "C")


def map_array(file: IO[bytes], size: int, kinds: str = REAL) -> Array:
    """The same without reading it: pages are read from the file when they are needed. Empty arrays are refused."""
    shape, fortran, dtype, start = _checked(file, size, kinds)
    if not prod(shape):
        raise ValueError("the array is empty")
    return np.memmap(file, dtype, "r", start, shape, "F" if fortran else "C")


def _checked(file: Readable, size: int, kinds: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order and dtype that a file declares, and where the data begin."""
    head = file.read(8)
    if head[:6] != _MAGIC:
        raise ValueError("the magic string is not correct")
    # Version 1 of the format has two bytes for the length of the header, later ones four.
    width = 2 if head[6] == 1 else 4
    length = file.read(width)
    count = int.from_bytes(length, "little")
    if count > _MAX_HEADER:
        raise ValueError(f"a header of {count} bytes")
    header = head + length + file.read(count)
    shape, fortran, dtype = _declared(header)
    # Unpickling could run code.
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if dtype.kind not in kinds:
        require_real(dtype)
    # Compared before memory is allocated.
    room = size - len(header)
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize > room:
        raise Fault(f"declares an array of shape {shape} and {dtype}, but has {room} bytes", "copy the file again")
    return shape, fortran, dtype, len(header)


def _fill(target: Array, file: Readable) -> None:
    for start in range(0, len(target), _PIECE):
        block = target[start : start + _PIECE]
        piece = file.read(len(block))
        if len(piece) != len(block):
            raise ValueError("the data end early")
        block[:] = np.frombuffer(piece, np.uint8)


def require_real(dtype: np.dtype[np.generic]) -> None:
    """Raise :class:`Fault` if an array of this type does not contain real numbers."""
    if dtype.kind not in REAL:
        raise Fault(f"holds {dtype}, not real numbers", "save it as int64 or float64")


def _declared(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    stream = BytesIO(header)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:  # 3.0 is for names of fields, which numbers have none of
        raise ValueError(f"format version {version}")
    return shape, fortran, dtype


_END: Final = b"PK\5\6"
_END_BYTES: Final = 22
_LOCATOR_BYTES: Final = 20
_ENTRY_BYTES: Final = 46
"""Bytes of a member in the archive's directory, besides its name."""

_FIX: Final = "write it again with numpy.savez"


class Arrays(Mapping[str, Array]):
    """The arrays of an archive by name; those of more than ``most`` bytes each are refused."""

    def __init__(self, file: IO[bytes], size: int, max_bytes: int | None = None) -> None:
        _require_short_directory(file, size)
        self._archive = zipfile.ZipFile(file)
        self._digests = digests_in(self._archive) or {}
        self._max_bytes = max(MIN_INFLATED_BYTES, MAX_INFLATION * size) if max_bytes is None else max_bytes
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._archive.infolist():
            name = member.filename.removesuffix(".npy")
            # zipfile would return the last of two members with one name, other readers the first.
            if name in self._members:
                raise Fault(f"has two arrays named {name!r}", _FIX)
            self._members[name] = member

    @property
    def files(self) -> list[str]:
        """The array names, in the order of the file."""
        return list(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, name: str) -> Array:
        return self.read(name)

    def texts(self, name: str) -> list[str]:
        """The texts of an array; none if it holds numbers."""
        array = self.read(name, WITH_TEXTS)
        return [str(text) for text in array.ravel()] if array.dtype.kind == "U" else []

    def read(self, name: str, kinds: str = REAL) -> Array:
        """An array with a dtype of these ``kinds``; raises as :func:`read_array` does."""
        member = self._members[name]
        if not member.filename.endswith(".npy"):
            raise Fault("its member is not an array", _FIX, name)
        if member.file_size > self._max_bytes:
            what = f"unpacks to {member.file_size} bytes (at most {self._max_bytes} are read)"
            raise Fault(what, "save it uncompressed, or only the part that is needed", name)
        with self._archive.open(member) as opened:
            file = Hashed(opened)
            array = read_array(file, member.file_size, kinds)
            file.read(1)  # at the end of a member its CRC is compared
            file.require(self._digests.get(member.filename), name)
            return array


def _require_short_directory(file: IO[bytes], size: int) -> None:
    """Refuse a directory with too many members: the library loads all of them when it opens the file."""
    # The end record is the last of the file, but for a comment of up to 65,535 bytes.
    start = max(0, size - (1 << 16) - _END_BYTES)
    file.seek(start)
    tail = file.read(size - start)
    end = len(tail) - _END_BYTES
    if tail[end : end + 4] != _END:  # the library looks here first, then for the last one before a comment
        end = tail.rfind(_END)
    length = int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0
    locator = tail[max(end - _LOCATOR_BYTES, 0) : end] if end >= 0 else b""
    if locator[:4] == b"PK\6\7":  # the 64-bit form of the same
        file.seek(int.from_bytes(locator[8:16], "little") & (1 << 62) - 1)
        length = int.from_bytes(file.read(48)[40:], "little")
    # Bounded by bytes, not by the stated number of members, which a file can state wrongly; names may be long.
    if length > MAX_ARCHIVE_ARRAYS * 4 * _ENTRY_BYTES:
        raise Fault(f"has more than {MAX_ARCHIVE_ARRAYS} arrays", "save the needed arrays in a separate file")
    file.seek(0)
