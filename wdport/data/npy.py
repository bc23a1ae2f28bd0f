"""Read the array of an open ``.npy`` file, after checking that the file has as many bytes as it declares."""

from __future__ import annotations

from io import BytesIO
from math import prod
from typing import IO, Any, Final, Protocol

import numpy as np

from wdport.checkpoint.faults import Fault
from wdport.model import Array

_MAX_HEADER: Final = 10_000
"""Bytes of a header; numpy also refuses longer ones, but only after reading them."""

_PIECE: Final = 1 << 24
"""Bytes that are read at a time."""

_MAGIC: Final = b"\x93NUMPY"


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, count: int, /) -> bytes: ...


def read_array(file: Readable, size: int, text: bool = False) -> Array:
    """Read the array of real numbers in ``file``, of ``size`` bytes, or that of texts; raises :class:`Fault`, and
    numpy's exceptions."""
    shape, fortran, dtype, _ = _checked(file, size, text)
    flat = np.empty(prod(shape), dtype)
    _fill(flat.view(np.uint8), file)
    return flat.reshape(shape, order="F" if fortran else "C")


def map_array(file: IO[bytes], size: int) -> Array:
    """The same without reading it: pages are read from the file when they are needed. Empty arrays are refused."""
    shape, fortran, dtype, start = _checked(file, size)
    if not prod(shape):
        raise ValueError("the array is empty")
    return np.memmap(file, dtype, "r", start, shape, "F" if fortran else "C")


def _checked(file: Readable, size: int, text: bool = False) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order and dtype that a file declares, and where the data begin."""
    head = file.read(8)
    if head[:6] != _MAGIC:
        raise ValueError("the magic string is not correct")
    width = 2 if head[6] == 1 else 4
    length = file.read(width)
    count = int.from_bytes(length, "little")
    if count > _MAX_HEADER:
        raise ValueError(f"a header of {count} bytes")
    header = head + length + file.read(count)
    shape, fortran, dtype = _declared(header)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if not (text and dtype.kind == "U"):
        require_real(dtype)
    room = size - len(header)
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize > room:
        raise Fault(f"declares an array of shape {shape} and {dtype}, but has {room} bytes", "copy the file again")
    return shape, fortran, dtype, len(header)


def _fill(target: Array, file: Readable) -> None:
    for start in range(0, len(target), _PIECE):
        block = target[start : start + _PIECE]
        piece = file.read(len(block))
        if len(piece) != len(block):
            raise ValueError("the data end early")
        block[:] = np.frombuffer(piece, np.uint8)


def require_real(dtype: np.dtype[np.generic]) -> None:
    """Raise :class:`Fault` if an array of this type does not contain real numbers."""
    if dtype.kind not in "iuf":
        raise Fault(f"holds {dtype}, not real numbers", "save it as float64")


def _declared(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    stream = BytesIO(header)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:  # 3.0 is for names of fields, which numbers have none of
        raise ValueError(f"format version {version}")
    return shape, fortran, dtype
