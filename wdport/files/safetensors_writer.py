"""Write a ``.safetensors`` file tensor by tensor: shapes first, then arrays in any order, the manifest last.

The file bypasses the page cache where the file system allows it: cached pages cost a copy and, on a virtual machine
that returns memory to its host, up to 1.5 s of CPU time per gigabyte (measured).

The safetensors library is not used because it requires all arrays in memory at once and writes wrong values for
arrays that are not C-contiguous. The library reads these files (`tests/files/test_formats.py`). The same input gives
the same bytes: sorted names, no dates.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wdport.checkpoint.dtypes import ITEMSIZE, SAFETENSORS
from wdport.errors import InternalError
from wdport.platforms import CLOEXEC, DIRECT, allocate, write_at, write_through_cache

STAGE: Final = 4 << 20
"""Bytes per write: aligned to pages in memory and in the file, as ``O_DIRECT`` requires."""

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC


class ForwardFile:
    """The file ``path``, which may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._direct = bool(DIRECT)
        try:
            self._file = os.open(path, _NEW | DIRECT, 0o644)
        except OSError:  # the file system has no direct writes; any other error comes again
            path.unlink(missing_ok=True)
            self._file, self._direct = os.open(path, _NEW, 0o644), False
        # An anonymous mapping begins at a page, as O_DIRECT requires; bytes of Python's allocator do not.
        self._stage = memoryview(mmap.mmap(-1, STAGE))
        self._filled, self.size = 0, 0

    def write(self, data: memoryview) -> None:
        while data:
            count = min(len(data), STAGE - self._filled)
            self._stage[self._filled : self._filled + count] = data[:count]
            self._filled += count
            self.size += count
            if self._filled == STAGE:
                self._flush()
            data = data[count:]

    def finish(self) -> None:
        """Write the remaining bytes and sync; the file stays open."""
        if self._direct:  # the end is no whole page
            write_through_cache(self._file)
            self._direct = False
        self._flush()
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file, complete or not; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _flush(self) -> None:
        start = self.size - self._filled
        try:
            write_at(self._file, self._stage[: self._filled], start)
        except OSError:
            # Some file systems accept the flag at opening and refuse the first write (EINVAL).
            if not self._direct:
                raise
            write_through_cache(self._file)
            self._direct = False
            write_at(self._file, self._stage[: self._filled], start)
        self._filled = 0


Shape = tuple[int, ...]
METADATA = "wdport"
"""The key of the manifest in the file's metadata."""

TAGS: Final = {dtype: tag for tag, dtype in SAFETENSORS.items()}
"""The header's name of each dtype."""

_ALIGNMENT = 8


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor of a file: its name, dtype (a key of :data:`wdport.checkpoint.dtypes.NUMPY`) and shape."""

    name: str
    dtype: str
    shape: Shape

    @property
    def nbytes(self) -> int:
        return ITEMSIZE[self.dtype] * prod(self.shape)


class SafetensorsWriter:
    """Streams arrays to ``path``; peak memory is one array, or one piece of it.

    They are float32 unless ``dtypes`` has another one. The manifest precedes the arrays but is only known after them:
    ``room`` is a placeholder of the same length.
    """

    def __init__(
        self, path: Path, variables: Mapping[str, Shape], room: str, dtypes: Mapping[str, str] | None = None
    ) -> None:
        self._path = path
        self._entries = [PlannedTensor(name, (dtypes or {}).get(name, "float32"), shape)
                         for name, shape in sorted(variables.items())]  # fmt: skip
        self._offsets = {entry.name: start for entry, start in with_offsets(self._entries)}
        size = sum(entry.nbytes for entry in self._entries)
        self._start = len(header_bytes(self._entries, {METADATA: room}))
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | CLOEXEC, 0o644)
        # A full disk is found now, not after minutes.
        allocate(self._file, self._start + size)

    def write(self, name: str, array: NDArray[Any]) -> None:
        self.write_at(name, 0, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def write_at(self, name: str, start: int, data: memoryview) -> None:
        write_at(self._file, data, self._start + self._offsets[name] + start)

    def finish(self, manifest: str) -> None:
        """Write the header and close the complete file."""
        header = header_bytes(self._entries, {METADATA: manifest})
        if len(header) != self._start:
            raise InternalError(self._path, "the manifest is longer than its placeholder", "report this")
        write_at(self._file, header, 0)
        self.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def with_offsets(entries: Iterable[PlannedTensor]) -> Iterator[tuple[PlannedTensor, int]]:
    """Yield every entry and the offset of its bytes after the header: one after another, in this order."""
    position = 0
    for entry in entries:
        yield entry, position
        position += entry.nbytes


def header_bytes(entries: Iterable[PlannedTensor], metadata: Mapping[str, str]) -> bytes:
    """Return everything that precedes the tensors' bytes."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    for entry, start in with_offsets(entries):
        place = [start, start + entry.nbytes]
        header[entry.name] = {"dtype": TAGS[entry.dtype], "shape": list(entry.shape), "data_offsets": place}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # The format pads the header with blanks, so that tensors begin at a multiple of 8 bytes in a mapped file.
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
