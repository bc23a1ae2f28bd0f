"""A file for HDF5 that hides write errors from it and raises them later.

HDF5 ends the process by a signal when a write fails (measured with 2.0 on a full disk: 39 of 85 sizes of a ``.keras``
file, 77 of 102 of a ``.weights.h5``). So the first error is stored, later writes go to memory, from where HDF5 can read
them again, and the error is raised when HDF5 has finished.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import h5py

from wdport.files.defer_signals import deferred_signals
from wdport.platforms import CLOEXEC, read_at, write_at

_WRITING: Final = {"w": os.O_CREAT | os.O_TRUNC, "r+": 0}


class QuietFile(io.RawIOBase):
    """An open file for random writes and reads, which it closes; use it with signals deferred.

    A signal handler that raises would raise in this class, and HDF5 would see the error.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._file, self._position, self._size = descriptor, 0, os.fstat(descriptor).st_size
        self._refusal: OSError | None = None
        self._kept: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raise the stored error, if any."""
        if self._refusal is not None:
            raise self._refusal

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._refusal is None:
            self._attempt(view)
        if self._refusal is not None:
            # Later writes are kept even where the disk would take them: HDF5 must read back what it wrote, in this
            # order.
            self._kept.append((self._position, bytes(view)))
        self._position += len(view)
        self._size = max(self._size, self._position)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._position)]
        view[:] = bytes(len(view))  # where nothing was written
        try:
            read_at(self._file, view, self._position)
        except OSError as error:
            self._refusal = self._refusal or error
        for start, data in self._kept:
            begin, end = max(start, self._position), min(start + len(data), self._position + len(view))
            if begin < end:
                view[begin - self._position : end - self._position] = data[begin - start : end - start]
        self._position += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._position if size is None else size
        try:
            os.ftruncate(self._file, self._size)
        except OSError as error:
            self._refusal = self._refusal or error
        return self._size

    def close(self) -> None:
        if not self.closed:
            try:
                os.close(self._file)
            except OSError as error:
                self._refusal = self._refusal or error
        super().close()

    def _attempt(self, view: memoryview) -> None:
        try:
            write_at(self._file, view, self._position)
        except OSError as error:
            self._refusal = error


@contextmanager
def quiet_hdf5() -> Iterator[None]:
    """Redirect files opened inside with ``h5py.File(path, mode)``, "w" or "r+", through a :class:`QuietFile`.

    For Keras's writers. Raises ``OSError`` at the end if a write failed; signals are deferred until then.
    """
    opened: list[QuietFile] = []

    class File(h5py.File):
        def __init__(self, name: object, mode: str = "r", **options: object) -> None:
            if mode not in _WRITING or not isinstance(name, (str, os.PathLike)):
                super().__init__(name, mode, **options)
                return
            quiet = QuietFile(os.open(name, os.O_RDWR | CLOEXEC | _WRITING[mode], 0o644))
            files.callback(quiet.close)
            opened.append(quiet)
            super().__init__(quiet, mode, **options)
            files.callback(self.close)

    with deferred_signals():
        # Keras looks h5py.File up when it writes, so the class can be replaced for the duration of the block.
        before, h5py.File = h5py.File, File
        try:
            with ExitStack() as files:
                yield
        finally:
            h5py.File = before
        for quiet in opened:
            quiet.check()
