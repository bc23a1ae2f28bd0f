"""Write a folder of safetensors shards and their index, as Hugging Face's libraries do, variable by variable.

The shards are filled one after another, in the order of the variables, so that a separate thread hashes (SHA-256) the
bytes as they are written, and a finished shard is synced while the next one is written. The manifest is a separate
file: a shard's header precedes values whose hashes are not known yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from wdport.errors import InternalError
from wdport.files.json_document import OutputFile
from wdport.files.manifest_seal import INDEX, MANIFEST
from wdport.files.safetensors_writer import ForwardFile, PlannedTensor, header_bytes
from wdport.platforms import require_room

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
