"""Read the index and the arrays of a recording file, with every byte checked.

The file is untrusted. Its members are stored uncompressed and cover the file without gaps; their CRCs and sizes are
checked before an array is created, so memory use is bounded by the file's size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.located import located
from wdport.checkpoint.source import Source, Span
from wdport.checkpoint.strict_json import require_shallow, strict_json
from wdport.checkpoint.ziparchive import read_flat_members
from wdport.errors import InputError
from wdport.limits import MAX_EMPTY_SHAPE, MAX_ITEM_BYTES, MAX_RECORDED, MAX_RECORDED_BYTES
from wdport.model import Array

AGAIN: Final = "record it again with wdport record"
INDEX: Final = "index.npy"

_MEMBER: Final = re.compile(r"(0|[1-9][0-9]{0,8})\.npy|index\.npy")
_REFERENCE: Final = re.compile(r"(0|[1-9][0-9]{0,8})(?::([sd]))?")
_MAGIC: Final = b"\x93NUMPY\x01\x00"
_HEADER: Final = re.compile(
    rb"\{'descr': '([<>|](?:f[248]|[iu][1248]|b1))', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n"
)
_SIZES: Final = re.compile(r"|[0-9]{1,12},|[0-9]{1,12}(?:, [0-9]{1,12})+")

_FAULTS: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions raised by reading a malformed index."""


class RecordingFile:
    """An open recording."""

    def __init__(self, path: Path) -> None:
        self._source = Source(path)
        try:
            self._members = read_flat_members(self._source, MAX_RECORDED)
            for name in self._members:
                if not _MEMBER.fullmatch(name):
                    raise Fault(f"holds {name!r}, which is not part of a recording")
            if INDEX not in self._members:
                raise Fault(f"has no {INDEX}")
        except BaseException:
            self._source.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def index(self) -> dict[str, object]:
        """The index of the file."""
        span = self._members[INDEX]
        if span.nbytes > MAX_RECORDED_BYTES:
            raise Fault("has too long an index")
        raw = _array(span).tobytes()
        if sum(map(raw.count, (b",", b"[", b"{"))) * MAX_ITEM_BYTES > self._source.size + MAX_RECORDED_BYTES:
            raise Fault("has too many items in its index")
        index = strict_json(raw, "index", marks=len(raw))  # its items are bounded above, by the file's own size
        require_shallow(index, "index")
        return index

    def array(self, reference: object, cache: dict[str, Array]) -> Array:
        """The array of a reference in the index; it is added to ``cache``."""
        match = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
        if match is None:
            raise Fault(f"has the invalid array reference {reference!r}")
        if match[0] not in cache:
            number, rounded = match[1], match[2]
            if number not in cache:
                if f"{number}.npy" not in self._members:
                    raise Fault(f"has no array {number}")
                cache[number] = _array(self._members[f"{number}.npy"])
            if rounded:
                cache[match[0]] = _rounded(cache[number], rounded)
        return cache[match[0]]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert every error in reading a recording to an :class:`InputError` that names the file."""
    try:
        with located(path):
            yield
    except InputError as error:
        if isinstance(error.__context__, Fault):
            raise InputError(path, f"is not a valid recording ({_description(error.__context__)})", AGAIN) from None
        raise
    except _FAULTS as error:
        text = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
        raise InputError(path, f"is not a valid recording ({text})", AGAIN) from None


def _description(fault: Fault) -> str:
    return f"{fault.part}: {fault.what}" if fault.part else fault.what


def _array(span: Span) -> Array:
    """The array of a member; only the form that a recorder writes is accepted."""
    data = span.read()
    header = int.from_bytes(data[8:10], "little")
    match = _HEADER.fullmatch(data, 10, 10 + header) if data[:8] == _MAGIC and len(data) >= 10 + header else None
    sizes = _SIZES.fullmatch(match[2].decode()) if match else None
    if match is None or sizes is None:
        raise Fault(f"{span.name} is not a numeric array in NumPy's format")
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(size) for size in sizes[0].split(",") if size)
    if prod(shape) * dtype.itemsize != len(data) - 10 - header:
        raise Fault(f"{span.name} does not have the size of {dtype} {shape}")
    if prod(size or 1 for size in shape) * dtype.itemsize > max(len(data), MAX_EMPTY_SHAPE):
        raise Fault(f"{span.name} has the invalid shape {shape}")
    return np.frombuffer(data, dtype, offset=10 + header).reshape(shape)


def _rounded(array: Array, mode: str) -> Array:
    """Round to float32, and for "d" convert back; valid only for float64 arrays."""
    if array.dtype != np.float64:
        raise Fault(f"rounds an array of {array.dtype}")
    with np.errstate(over="ignore"):  # the recorder did the same
        narrow = array.astype(np.float32)
    return narrow if mode == "s" else narrow.astype(np.float64)
