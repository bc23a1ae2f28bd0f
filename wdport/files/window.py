"""A stored (uncompressed) member of a zip archive as a file of its own, seekable at no cost.

`zipfile` reads a member from its beginning again whenever somebody seeks backwards in it, as HDF5
does all the time: at the released size reading would take minutes.
"""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

_LOCAL_HEADER = 30


class Window(io.RawIOBase):
    """``size`` bytes of a file from ``start`` on, read-only."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._start, self._size, self._position = start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)[: max(0, self._size - self._position)]
        count = os.preadv(self._file, [view], self._start + self._position) if view else 0
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._file)
        super().close()


def open_member(path: Path, name: str) -> Window:
    """A window on a stored member; raises ``KeyError`` if there is none, ``ValueError`` if it is compressed."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return Window(path, info.header_offset + _LOCAL_HEADER + lengths, info.file_size)
