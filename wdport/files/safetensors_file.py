"""A ``.safetensors`` file written tensor by tensor: shapes first, then arrays in any order, the manifest last.

Written here rather than by the safetensors library because that one wants all arrays in memory at
once and writes wrong values for arrays that are not C-contiguous. The library reads
what is written here (`tests/files/test_formats.py`). Same input, same bytes: sorted names, no dates.
"""

from __future__ import annotations

import json
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

Shape = tuple[int, ...]
METADATA = "wdport"
"""The key of the manifest among the file's metadata."""

TAGS: Final = {dtype: tag for tag, dtype in SAFETENSORS.items()}
"""What the header calls a dtype."""

_ALIGNMENT = 8


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: its name, dtype (as :data:`wdport.checkpoint.dtypes.NUMPY` has it) and shape."""

    name: str
    dtype: str
    shape: Shape

    @property
    def nbytes(self) -> int:
        return ITEMSIZE[self.dtype] * prod(self.shape)


class SafetensorsWriter:
    """Streams arrays into ``path``; peak memory is one array, or one piece of it.

    They are float32 unless ``dtypes`` has another one. The manifest stands before the arrays and is known after them:
    ``room`` is a text as long as it will be.
    """

    def __init__(
        self,
        path: Path,
        variables: Mapping[str, Shape],
        room: str,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        self._entries = [Entry(name, (dtypes or {}).get(name, "float32"), shape)
                         for name, shape in sorted(variables.items())]  # fmt: skip
        self._offsets = {entry.name: start for entry, start in laid_out(self._entries)}
        size = sum(entry.nbytes for entry in self._entries)
        self._start = len(header_bytes(self._entries, {METADATA: room}))
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o666)
        os.posix_fallocate(self._file, 0, self._start + size)

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Put one array in its place."""
        self.write_at(name, 0, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def write_at(self, name: str, start: int, data: memoryview) -> None:
        """Put some bytes of an array in their place."""
        write_at(self._file, data, self._start + self._offsets[name] + start)

    def finish(self, manifest: str) -> None:
        """Write the header and close the file, which is complete."""
        header = header_bytes(self._entries, {METADATA: manifest})
        if len(header) != self._start:
            raise InternalError(self._path, "the manifest is longer than its room", "report this")
        write_at(self._file, header, 0)
        self.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def laid_out(entries: Iterable[Entry]) -> Iterator[tuple[Entry, int]]:
    """Every entry and where its bytes begin behind the header: one after another, in this order."""
    position = 0
    for entry in entries:
        yield entry, position
        position += entry.nbytes


def header_bytes(entries: Iterable[Entry], metadata: Mapping[str, str]) -> bytes:
    """All that stands before the tensors' bytes."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    for entry, start in laid_out(entries):
        place = [start, start + entry.nbytes]
        header[entry.name] = {"dtype": TAGS[entry.dtype], "shape": list(entry.shape), "data_offsets": place}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def write_at(file: int, data: bytes | memoryview, position: int) -> None:
    """All of ``data`` from ``position`` of an open file on."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        view, position = view[written:], position + written
