"""Parse the messages of an HDF5 object to its shape and its dtype.

A datatype is recognised by comparing all its bytes with those that the HDF5 library writes for each numpy type: another
byte order, padding or mantissa is another datatype, which Keras does not write.
"""

from __future__ import annotations

from struct import Struct, pack, unpack_from
from typing import Final

import numpy as np

from wdport.checkpoint.faults import SAVE_WITH_KERAS, Fault
from wdport.limits import MAX_EMPTY_SHAPE, MAX_RANK

Shape = tuple[int, ...]

_CLASSES: Final = ("", "", "a time", "text", "a bit field", "raw bytes", "a record", "a reference", "a list of names")
_SPACE: Final = Struct("<3BB4s")


def fixed_point(size: int, signed: bool) -> bytes:
    """Return the datatype message of an integer of ``size`` bytes."""
    return pack("<B3sL2H", 0x10, b"\x08\0\0" if signed else b"\0\0\0", size, 0, 8 * size).ljust(16, b"\0")


def _floating(size: int, exponent: int, mantissa: int) -> bytes:
    bits = 8 * size
    fields = (0x11, 0x20, bits - 1, 0, size, 0, bits, mantissa, exponent, 0, mantissa, (1 << exponent - 1) - 1)
    return pack("<4BL2H4BL", *fields).ljust(24, b"\0")


DTYPES: Final = {
    **{fixed_point(size, True): np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{fixed_point(size, False): np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    _floating(2, 5, 10): np.dtype("<f2"),
    _floating(4, 8, 23): np.dtype("<f4"),
    _floating(8, 11, 52): np.dtype("<f8"),
    pack("<B3sL12s8s8s4B", 0x18, b"\2\0\0", 1, fixed_point(1, True)[:12], b"FALSE", b"TRUE", 0, 1, 0, 0): np.dtype(
        np.bool_
    ),
    pack("<B3sL", 0x15, b"\0\0\0", 2): np.dtype("V2"),
}
"""numpy's dtype for the bytes of each datatype message; two raw bytes are Keras's bfloat16."""


def read_dtype(body: bytes) -> np.dtype[np.generic]:
    """Return the dtype of a datatype message."""
    dtype = DTYPES.get(body)
    if dtype is None:
        kind = _CLASSES[body[0] & 15] if body and body[0] & 15 < len(_CLASSES) else ""
        raise Fault(f"holds {kind or 'numbers of a type'} that Keras does not write", SAVE_WITH_KERAS)
    return dtype


def read_shape(body: bytes) -> Shape:
    """Return the shape of a dataspace message; resizable shapes are refused."""
    version, rank, flags, zero, zeros = _SPACE.unpack_from(body.ljust(_SPACE.size, b"\0"))
    if version != 1 or zero or any(zeros):
        raise Fault("has an HDF5 dataspace of another form than version 1", SAVE_WITH_KERAS)
    count = rank * (2 if flags == 1 else 1)
    if rank > MAX_RANK or flags > 1 or len(body) != _SPACE.size + 8 * count:
        raise Fault("its HDF5 dataspace is damaged")
    sizes = unpack_from(f"<{count}Q", body, _SPACE.size)
    if flags and sizes[rank:] != sizes[:rank]:
        raise Fault("can change its shape", SAVE_WITH_KERAS)
    return sizes[:rank]


def count_bytes(shape: Shape, itemsize: int) -> int:
    """Return the size of an array in bytes; an absurd shape is refused even if the array is empty."""
    total = room = itemsize
    for size in shape:
        total *= size
        room *= max(size, 1)
    if not total and room > MAX_EMPTY_SHAPE:
        raise Fault(f"has shape {shape}, which no model has")
    return total
