"""Write a ``.safetensors`` file tensor by tensor, shapes first, then arrays in any order, the manifest last; or a
folder of shards and their index, as Hugging Face's libraries do.

The file bypasses the page cache where the file system allows it: cached pages cost a copy and, on a virtual machine
that returns memory to its host, up to 1.5 s of CPU time per gigabyte (measured).

The safetensors library is not used because it requires all arrays in memory at once and writes wrong values for
arrays that are not C-contiguous. The library reads these files (`tests/files/test_formats.py`). The same input gives
the same bytes: sorted names, no dates.

The shards are filled one after another, in the order of the variables, so that a separate thread hashes (SHA-256) the
bytes as they are written, and a finished shard is synced while the next one is written. The manifest is a separate
file: a shard's header precedes values whose hashes are not known yet.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from wdport.base.errors import InternalError
from wdport.base.platforms import CLOEXEC, DIRECT, allocate, require_room, write_at, write_through_cache
from wdport.checkpoint.tensor import ITEMSIZE, SAFETENSORS
from wdport.files.json_document import OutputFile
from wdport.files.manifest_seal import INDEX, MANIFEST
from wdport.models.interface import Array

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
    """One tensor of a file: its name, dtype (a key of :data:`wdport.checkpoint.tensor.NUMPY`) and shape."""

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

    def write(self, name: str, array: Array) -> None:
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


SHARD: Final = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


@dataclass
class _Shard:
    name: str
    entries: list[PlannedTensor]
    file: ForwardFile | None = None
    position: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    @property
    def size(self) -> int:
        return sum(entry.nbytes for entry in self.entries)


class ShardedWriter:
    """Streams variables, each in ascending pieces and all in the order of ``entries``, to ``folder``.

    A shard holds at most ``most`` bytes of values, or a single variable that is larger. Raises ``OSError`` if the disk
    has no room for all.
    """

    def __init__(self, folder: Path, entries: Sequence[PlannedTensor], max_bytes: int) -> None:
        self._folder = folder
        groups = _grouped(entries, max_bytes)
        self._shards = [
            _Shard(f"model-{number:05}-of-{len(groups):05}.safetensors", group)
            for number, group in enumerate(groups, 1)
        ]
        require_room(folder, sum(shard.size for shard in self._shards))  # refuse now, not after minutes
        self._expected = [(shard, entry) for shard in self._shards for entry in shard.entries]
        self._at, self._done = 0, 0
        self._pool, self._hashing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._synced: list[Future[None]] = []

    @property
    def index(self) -> bytes:
        """Return the index, which is known before anything is written."""
        places = {entry.name: shard.name for shard in self._shards for entry in shard.entries}
        total = sum(shard.size for shard in self._shards)
        document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        return (json.dumps(document, indent=2) + "\n").encode()

    def finished(self) -> list[OutputFile]:
        """Return the index and the shards, after all variables are written."""
        while self._at < len(self._expected):
            self._next()
        index = OutputFile(INDEX, hashlib.sha256(self.index).hexdigest(), len(self.index))
        return [index, *(OutputFile(shard.name, shard.digest.hexdigest(), shard.position) for shard in self._shards)]

    def write_at(self, name: str, start: int, data: memoryview) -> None:
        """Write the next bytes of the variable ``name``, which begin at its byte ``start``."""
        # Variables without values are never written, so they are passed over.
        while self._expected[self._at][1].name != name and self._at + 1 < len(self._expected):
            self._next()
        shard, entry = self._expected[self._at]
        if (entry.name, self._done) != (name, start) or start + len(data) > entry.nbytes:
            raise InternalError(self._folder, f"{name} was written out of order", "report this")
        self._put(shard, shard.file or self._open(shard), data)
        self._done += len(data)

    def finish(self, manifest: str) -> None:
        """Write the index and the manifest, and sync everything."""
        self.finished()
        for name, text in ((INDEX, self.index), (MANIFEST, manifest.encode())):
            with (self._folder / name).open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        # `result` raises the error of a sync that failed in its thread.
        for future in self._synced:
            future.result()
        self.close()

    def close(self) -> None:
        """Close the files, complete or not."""
        self._pool.shutdown(wait=True)
        self._hashing.shutdown(wait=True)
        for shard in self._shards:
            if shard.file is not None:
                shard.file.close()
                shard.file = None

    def _next(self) -> None:
        shard, entry = self._expected[self._at]
        if self._done != entry.nbytes:
            raise InternalError(self._folder, f"{entry.name} was not written completely", "report this")
        self._at, self._done = self._at + 1, 0
        if entry is shard.entries[-1]:
            self._close(shard)

    def _open(self, shard: _Shard) -> ForwardFile:
        shard.file = file = ForwardFile(self._folder / shard.name)
        self._put(shard, file, memoryview(header_bytes(shard.entries, {"format": "pt"})))
        return file

    def _put(self, shard: _Shard, file: ForwardFile, data: memoryview) -> None:
        # hashlib releases Python's lock, so hashing and writing overlap. The memory is the caller's: wait before
        # returning.
        hashing = self._hashing.submit(shard.digest.update, data)
        try:
            file.write(data)
        finally:
            hashing.result()
        shard.position += len(data)

    def _close(self, shard: _Shard) -> None:
        file = shard.file or self._open(shard)  # none of its variables may have values
        shard.file = None
        self._synced.append(self._pool.submit(_sync, file))


def _sync(file: ForwardFile) -> None:
    with closing(file):
        file.finish()


def _grouped(entries: Sequence[PlannedTensor], max_bytes: int) -> list[list[PlannedTensor]]:
    """Return the variables of each shard."""
    groups: list[list[PlannedTensor]] = []
    size = 0
    for entry in entries:
        if not groups or size + entry.nbytes > max_bytes:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.nbytes
    return groups


def is_partly_ours(folder: Path) -> bool:
    """Return whether a folder contains only what this writer writes, complete or not."""
    return all(name in (INDEX, MANIFEST) or SHARD.fullmatch(name) for name in os.listdir(folder))
