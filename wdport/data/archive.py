"""Read the arrays of an ``.npz`` file on demand. Nothing is unpickled.

Declared sizes are compared with what the file can contain before memory is allocated: a few kilobytes of deflated zeros
may represent gigabytes. The arrays of an archive with a seal are compared with it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Final

from wdport.checkpoint.faults import Fault
from wdport.data.npy import read_array
from wdport.files.zip_seal import Hashed, digests_in
from wdport.limits import MAX_ARCHIVE_ARRAYS, MAX_INFLATION, MIN_INFLATED_BYTES
from wdport.model import Array

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
        return self._read(name)

    def texts(self, name: str) -> list[str]:
        """The texts of an array; none if it holds numbers."""
        array = self._read(name, text=True)
        return [str(text) for text in array.ravel()] if array.dtype.kind == "U" else []

    def _read(self, name: str, text: bool = False) -> Array:
        member = self._members[name]
        if not member.filename.endswith(".npy"):
            raise Fault("its member is not an array", _FIX, name)
        if member.file_size > self._max_bytes:
            what = f"unpacks to {member.file_size} bytes (at most {self._max_bytes} are read)"
            raise Fault(what, "save it uncompressed, or only the part that is needed", name)
        with self._archive.open(member) as opened:
            file = Hashed(opened)
            array = read_array(file, member.file_size, text)
            file.read(1)  # at the end of a member its CRC is compared
            file.require(self._digests.get(member.filename), name)
            return array


def _require_short_directory(file: IO[bytes], size: int) -> None:
    """Refuse a directory with too many members: the library loads all of them when it opens the file."""
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
    if length > MAX_ARCHIVE_ARRAYS * 4 * _ENTRY_BYTES:
        raise Fault(f"has more than {MAX_ARCHIVE_ARRAYS} arrays", "save the needed arrays in a separate file")
    file.seek(0)
