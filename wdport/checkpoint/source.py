"""Open a regular file for positional reads, each complete or failing; ranges of its bytes, the SHA-256 of all of them
while they are read, and tensors as owned numpy arrays.

Files are not memory-mapped: mapped pages count as resident memory, and a file that is truncated while mapped kills the
process with SIGBUS instead of raising an error.

Bytes are hashed as they are read if they follow the hashed bytes; skipped bytes are read only for the hash, so it needs
no extra reads if the files are read sequentially. A thread hashes while the next bytes are read.

A tensor that fills its storage is read directly into the result. A strided one needs memory for its extent in addition
to the result, and bfloat16 (two bytes, widened to four) for half the result.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from wdport.base.errors import UsageError
from wdport.base.platforms import read_at
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import COPY_AGAIN, LOAD_AND_SAVE, OTHER_DTYPE, Fault
from wdport.checkpoint.regular_file import open_descriptor, state_of
from wdport.checkpoint.tensor import ITEMSIZE, NUMPY, TensorRef

CHUNK: Final = 1 << 20
"""Read and checksum in steps of 1 MiB, so that the bytes are still in the processor's cache for the checksum."""

LARGE: Final = 1 << 28
"""Size of a file from which the page cache need not keep bytes that are read once."""


class Source:
    """A file that is open by descriptor; ``size`` is its length at opening."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = open_descriptor(path, "give the path of a checkpoint file")
        self._state = state_of(self._fd)
        self.size = self._state.size
        self.observer: Callable[[int, memoryview], None] | None = None
        """A function called with the offset and the bytes of every read, in steps of :data:`CHUNK`."""

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def stream(self) -> IO[bytes]:
        """The file from its start, for the reader of another library; the caller closes it."""
        stream = os.fdopen(os.dup(self._fd), "rb")
        stream.seek(0)
        return stream

    def forget(self, offset: int, count: int) -> None:
        """Tell the system that these bytes are not read again, if the file is large.

        Its page cache then reuses the same few pages. On a virtual machine that returns memory to its host, new pages
        cost up to 1.6 s of CPU time per gigabyte (measured; 0.1 otherwise).
        """
        if self.size >= LARGE and hasattr(os, "posix_fadvise"):
            with suppress(OSError):
                os.posix_fadvise(self._fd, offset, count, os.POSIX_FADV_DONTNEED)

    def read(self, offset: int, count: int) -> bytes:
        """Read exactly ``count`` bytes from ``offset``."""
        return bytes(self.view(offset, count))

    def view(self, offset: int, count: int) -> bytearray:
        """Read exactly ``count`` bytes from ``offset`` and return the buffer without a copy."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise Fault(f"{count} bytes at offset {offset} lie outside the file")
        buffer = bytearray(count)
        self.read_into(offset, memoryview(buffer))
        return buffer

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target``, a writable view of bytes, from ``offset``; raises :class:`Fault` if the file was changed
        since it was opened."""
        if self.observer is None:
            self.read_unobserved(offset, target)
            return
        for start in range(0, len(target), CHUNK):
            piece = target[start : start + CHUNK]
            self.read_unobserved(offset + start, piece)
            self.observer(offset + start, piece)

    def read_unobserved(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` as :meth:`read_into` does, without calling the observer."""
        if self._fd < 0:
            raise UsageError(self.path, "the checkpoint is closed", "read inside its with block")
        filled = 0
        while filled < len(target):
            count = read_at(self._fd, target[filled:], offset + filled)
            if count == 0:
                raise Fault("the file became shorter while it was read", "try again once it is complete")
            filled += count
        # After the bytes, not before: a change between the two calls would be missed otherwise.
        self._state.require(state_of(self._fd))

    def require_unchanged(self) -> None:
        """Raise :class:`Fault` if the file was changed since it was opened, or its path refers to another one."""
        self._state.require(state_of(self.path))

    def read_into_with_crc(self, offset: int, target: memoryview) -> int:
        """Fill ``target`` from ``offset`` and return the CRC-32 of the bytes, in one pass."""
        crc = 0
        for start in range(0, len(target), CHUNK):
            piece = target[start : start + CHUNK]
            self.read_into(offset + start, piece)
            crc = zlib.crc32(piece, crc)
        return crc

    def pieces(self, offset: int, count: int) -> Iterator[memoryview]:
        """Read ``count`` bytes from ``offset`` in pieces of :data:`CHUNK`, without calling the observer, which may look
        at a piece later: the memory of each is used for the next."""
        buffer = memoryview(bytearray(min(CHUNK, count)))
        for start in range(0, count, CHUNK):
            piece = buffer[: min(CHUNK, count - start)]
            self.read_unobserved(offset + start, piece)
            yield piece

    def crc(self, offset: int, count: int) -> int:
        """Return the CRC-32 of ``count`` bytes from ``offset``, in constant memory."""
        crc = 0
        for piece in self.pieces(offset, count):
            crc = zlib.crc32(piece, crc)
        return crc

    def add_to(self, digest: hashlib._Hash) -> None:
        """Feed the whole file to ``digest``, in constant memory."""
        for piece in self.pieces(0, self.size):
            digest.update(piece)


@dataclass(slots=True)
class Span:
    """``nbytes`` bytes of ``source`` from ``start``; ``crc`` is None if the format records none."""

    source: Source
    start: int
    nbytes: int
    crc: int | None
    name: str
    verified: bool = field(default=False)

    def read_into(self, target: memoryview, offset: int = 0) -> None:
        """Fill ``target`` from ``offset`` within the span; the first read checks the span's CRC.

        A target as long as the span is filled and checked in one pass. Before the first partial read, the whole
        span is read once for its CRC.
        """
        if self.crc is None or self.verified:
            self.source.read_into(self.start + offset, target)
        elif len(target) == self.nbytes:
            self._accept(self.source.read_into_with_crc(self.start, target))
        else:
            self._accept(self.source.crc(self.start, self.nbytes))
            self.source.read_into(self.start + offset, target)

    def read(self, offset: int = 0, count: int | None = None) -> bytes:
        """Return ``count`` bytes from ``offset`` within the span, by default all, for small records."""
        buffer = bytearray(self.nbytes if count is None else count)
        self.read_into(memoryview(buffer), offset)
        return bytes(buffer)

    def _accept(self, crc: int) -> None:
        if crc == self.crc:
            self.verified = True
        # An archive may be written without CRCs, which are then zero; real bytes have the CRC 0 once in 4 billion.
        elif self.crc == 0:
            raise Fault(f"{self.name} has no CRC, so damage could not be seen", LOAD_AND_SAVE)
        else:
            raise Fault(f"{self.name}: the bytes do not match their CRC", COPY_AGAIN)


@dataclass(frozen=True)
class Contents:
    """One checkpoint before its layout is known."""

    format: str
    """``"torch-zip"``, ``"torch-legacy"``, ``"torchscript"``, ``"torch-sharded"``, ``"torch-distributed"``,
    ``"safetensors"`` or ``"safetensors-sharded"``."""
    tree: object
    """Plain containers with ``TensorRef`` and inert leaves; for safetensors and shards a flat dict of tensors."""
    spans: dict[str, Span]
    """Storage key to its bytes."""
    sources: list[Source]
    """Open files, the requested one first; the caller closes them."""
    metadata: dict[str, object] = field(default_factory=dict)
    """Plain facts outside the tree."""


class RunningHash:
    """The hash of ``sources`` in order; a context manager that observes their reads until it ends.

    The reader calls :meth:`settle` before it reuses the memory.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._digest = hashlib.sha256()
        # One thread, so that pieces are hashed in order. hashlib releases Python's lock, so reading goes on.
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

    def __exit__(self, *_: object) -> None:
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
        # A part that is read again, such as a tied weight, is hashed already.
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
        with located(source.path):
            for piece in source.pieces(self._position, max(0, end - self._position)):
                self._digest.update(piece)
                self._position += len(piece)


Array = np.ndarray[Any, np.dtype[Any]]


def read_tensor(ref: TensorRef, span: Span) -> Array:
    """Return the tensor, C-contiguous and in native byte order; bfloat16 is widened to float32, which is exact."""
    return decode(read_stored(ref, span), ref.dtype)


def read_stored(ref: TensorRef, span: Span) -> Array:
    """Return the tensor's stored values, C-contiguous and little-endian; bfloat16 as uint16 bits."""
    if ref.dtype not in NUMPY:
        raise Fault(f"has dtype {ref.dtype}, which is not read", OTHER_DTYPE)
    first = ref.storage.first + ref.offset
    try:
        if ref.contiguous:
            stored = np.empty(ref.shape, NUMPY[ref.dtype])
            _fill(stored.reshape(-1), first, span)
            return stored
        run = np.empty(ref.extent, NUMPY[ref.dtype])
        _fill(run, first, span)
        return strided(run, ref).copy(order="C")
    except MemoryError:
        raise MemoryError(f"needs {2 * ref.nbytes >> 20} MiB of memory") from None


def _fill(flat: Array, first: int, span: Span) -> None:
    """Fill ``flat``, starting at element ``first`` of the storage."""
    if flat.size:
        span.read_into(flat.view(np.uint8).data, first * flat.itemsize)


def strided(run: Array, ref: TensorRef) -> Array:
    """Return the view of ``run``, an extent, with the tensor's shape and strides.

    The ndarray constructor checks the view against its buffer again; ``as_strided`` would not.
    """
    strides = tuple(stride * ITEMSIZE[ref.dtype] for stride in ref.strides)
    return np.ndarray(ref.shape, run.dtype, run.data, strides=strides)


def decode(stored: Array, dtype: str) -> Array:
    """Convert little-endian stored bits to native values."""
    if dtype == "bfloat16":
        # A bfloat16 is the upper half of a float32.
        wide = stored.astype(np.uint32)
        wide <<= np.uint32(16)  # NumPy 2.1 may shift a single value by a Python int into 64 bits
        return wide.view(np.float32)
    if dtype == "bool":
        # numpy would treat a byte 2 as True in some operations and as 2 in others.
        if stored.size and stored.max() > 1:
            raise Fault("a bool tensor holds bytes other than 0 and 1", COPY_AGAIN)
        return stored.view(np.bool_)
    return stored if sys.byteorder == "little" else stored.astype(stored.dtype.newbyteorder("="))
