"""A new file that is written from its start to its end, past the page cache where the file system allows it.

Pages of a cache cost a copy and, on a virtual machine that gives its memory back, up to 1.5 seconds of a processor for
each gigabyte (measured).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import Final

from wdport.files.safetensors_file import write_at

STAGE: Final = 4 << 20
"""Bytes that are written at a time: aligned to pages in memory and in the file, as ``O_DIRECT`` asks for."""

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_DIRECT: Final = getattr(os, "O_DIRECT", 0)


class ForwardFile:
    """The file ``path``, which may not be there yet."""

    def __init__(self, path: Path) -> None:
        self._direct = bool(_DIRECT)
        try:
            self._file = os.open(path, _NEW | _DIRECT, 0o666)
        except OSError:  # the file system knows no direct writes; another refusal comes again
            path.unlink(missing_ok=True)
            self._file, self._direct = os.open(path, _NEW, 0o666), False
        self._stage = memoryview(mmap.mmap(-1, STAGE))
        self._filled, self.size = 0, 0

    def write(self, data: memoryview) -> None:
        """The next bytes."""
        while data:
            count = min(len(data), STAGE - self._filled)
            self._stage[self._filled : self._filled + count] = data[:count]
            self._filled += count
            self.size += count
            if self._filled == STAGE:
                self._flush()
            data = data[count:]

    def finish(self) -> None:
        """Write what is left, and sync; the file is still open."""
        if self._direct:  # the end is no whole page
            fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) & ~_DIRECT)
            self._direct = False
        self._flush()
        os.fsync(self._file)

    def close(self) -> None:
        """Close it, complete or not; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _flush(self) -> None:
        start = self.size - self._filled
        try:
            write_at(self._file, self._stage[: self._filled], start)
        except OSError:
            if not self._direct:
                raise
            fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) & ~_DIRECT)
            self._direct = False
            write_at(self._file, self._stage[: self._filled], start)
        self._filled = 0
