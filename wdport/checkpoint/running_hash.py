"""Compute the SHA-256 of all bytes of files that are read in pieces, without a second read.

Bytes are hashed as they are read if they follow the hashed bytes; skipped bytes are read only for the hash, so it needs
no extra reads if the files are read sequentially. A thread hashes while the next bytes are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType

from wdport.checkpoint.error_context import located
from wdport.checkpoint.source import CHUNK, Source


class RunningHash:
    """The hash of ``sources`` in order; a context manager that observes their reads until it ends.

    The reader calls :meth:`settle` before it reuses the memory.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)
        self._hashing: list[Future[None]] = []
        self._at, self._position = 0, 0

    def __enter__(self) -> RunningHash:
        for number, source in enumerate(self._sources):
            source.observer = partial(self._observe, number)
        return self

    def settle(self) -> None:
        """Wait until all bytes read so far are hashed; their memory may then change."""
        while self._hashing:
            self._hashing.pop(0).result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for source in self._sources:
            source.observer = None
        self._thread.shutdown()

    def hexdigest(self) -> str:
        """Read the remaining bytes and return the hash; raises :class:`InputError` if a file was changed meanwhile."""
        self.settle()
        self._catch_up(len(self._sources) - 1, self._sources[-1].size)
        return self._digest.hexdigest()

    def _observe(self, number: int, offset: int, piece: memoryview) -> None:
        self._hashing.append(self._thread.submit(self._hash, number, offset, piece))

    def _hash(self, number: int, offset: int, piece: memoryview) -> None:
        if (number, offset + len(piece)) <= (self._at, self._position):
            return
        self._catch_up(number, offset)
        self._digest.update(piece[self._position - offset :])
        self._position = offset + len(piece)

    def _catch_up(self, number: int, offset: int) -> None:
        """Hash all bytes before this place that are not hashed yet."""
        while self._at < number:
            self._read_to(self._sources[self._at].size)
            self._at, self._position = self._at + 1, 0
        self._read_to(offset)

    def _read_to(self, end: int) -> None:
        source = self._sources[self._at]
        buffer = memoryview(bytearray(min(CHUNK, max(0, end - self._position))))
        with located(source.path):
            while self._position < end:
                piece = buffer[: min(CHUNK, end - self._position)]
                source.read_unobserved(self._position, piece)
                self._digest.update(piece)
                self._position += len(piece)
