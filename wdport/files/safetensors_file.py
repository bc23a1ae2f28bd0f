"""A ``.safetensors`` file written tensor by tensor: shapes first, then arrays in any order, the manifest last.

Written here rather than by the safetensors library because that one wants all arrays in memory at
once and writes wrong values for arrays that are not C-contiguous. The library reads
what is written here (`tests/files/test_formats.py`). Same input, same bytes: sorted names, no dates.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wdport.errors import InternalError

Shape = tuple[int, ...]
METADATA = "wdport"
"""The key of the manifest among the file's metadata."""

_ALIGNMENT = 8


class SafetensorsWriter:
    """Streams float32 arrays into ``path``; peak memory is one array.

    The manifest stands before the arrays and is known after them: ``room`` is a text as long as it will be.
    """

    def __init__(self, path: Path, variables: Mapping[str, Shape], room: str) -> None:
        self._path = path
        self._offsets: dict[str, int] = {}
        self._entries: dict[str, object] = {}
        position = 0
        for name, shape in sorted(variables.items()):
            size = 4 * prod(shape)
            self._entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [position, position + size]}
            self._offsets[name] = position
            position += size
        self._start = len(self._header(room))
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o666)
        os.posix_fallocate(self._file, 0, self._start + position)

    def write(self, name: str, array: NDArray[np.float32]) -> None:
        """Put one array in its place."""
        _write_at(
            self._file, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, self._start + self._offsets[name]
        )

    def finish(self, manifest: str) -> None:
        """Write the header and close the file, which is complete."""
        header = self._header(manifest)
        if len(header) != self._start:
            raise InternalError(self._path, "the manifest is longer than its room", "report this")
        _write_at(self._file, header, 0)
        self.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _header(self, manifest: str) -> bytes:
        header = {"__metadata__": {METADATA: manifest}, **self._entries}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        return len(text).to_bytes(8, "little") + text


def _write_at(file: int, data: bytes | memoryview, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        view, position = view[written:], position + written
