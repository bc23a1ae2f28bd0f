"""Parse the attribute messages of an HDF5 object to names and values.

Attributes of version 1 (section IV.A.2.m of the HDF5 File Format Specification) with one number or one string. A
string of variable length is stored in a collection of a global heap (section III.E), which several objects share.
"""

from __future__ import annotations

from struct import Struct, pack
from typing import Final

import numpy as np

from wdport.checkpoint.faults import SAVE_WITH_KERAS, Fault
from wdport.files.hdf5.extents import Extents
from wdport.files.hdf5.values import DTYPES, fixed_point, read_shape
from wdport.limits import MAX_ATTRIBUTE_BYTES

Value = str | int | float | bool
"""The value of an attribute."""

_ATTRIBUTE: Final = Struct("<2B3H")
_TYPE: Final = Struct("<4BL")
_POINTER: Final = Struct("<LQL")
_COLLECTION: Final = Struct("<4sB3sQ")
_OBJECT: Final = Struct("<2HLQ")
_TEXTS: Final = tuple(pack("<4BL", 0x19, 1, charset, 0, 16) + fixed_point(1, False)[:12] for charset in (0, 1))
"""A string of variable length, in ASCII or UTF-8."""


class Strings:
    """The global heap of a file: its collections, each read at most once, and each string in it."""

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self._collections: dict[int, dict[int, tuple[int, int]]] = {}

    def take(self, length: int, address: int, index: int) -> bytes:
        """Return the string with this index in the collection at ``address``; nothing else may refer to it."""
        if address not in self._collections:
            self._collections[address] = self._collection(address)
        start, size = self._collections[address].pop(index, (0, -1))
        if size != length:
            raise Fault("a string is not where its attribute says in the HDF5 file")
        if length > MAX_ATTRIBUTE_BYTES:
            raise Fault(f"has an attribute of {length} bytes (at most {MAX_ATTRIBUTE_BYTES})", SAVE_WITH_KERAS)
        return self._extents.look(start, length)

    def _collection(self, address: int) -> dict[int, tuple[int, int]]:
        """Return place and length of each object of a collection, by number."""
        head = (
            self._extents.look(address, _COLLECTION.size) if address <= self._extents.size - _COLLECTION.size else b""
        )
        if head[:8] != b"GCOL\x01\0\0\0":
            raise Fault("the strings of the HDF5 file are not where an attribute says")
        size: int = _COLLECTION.unpack(head)[3]
        self._extents.claim(address, size, "the strings of the file")
        spans: dict[int, tuple[int, int]] = {}
        position, end = address + _COLLECTION.size, address + size
        while position + _OBJECT.size <= end:
            index, _, zero, length = _OBJECT.unpack(self._extents.look(position, _OBJECT.size))
            if index == 0:  # free space, to the end
                break
            start = position + _OBJECT.size
            position = start + (length + 7) // 8 * 8
            if zero or index in spans or position > end:
                raise Fault("the strings of the HDF5 file are damaged")
            spans[index] = start, length
        return spans


def read_attributes(bodies: list[bytes], strings: Strings) -> dict[str, Value]:
    """Return the attributes in these messages."""
    attributes: dict[str, Value] = {}
    for body in bodies:
        name, datatype, dataspace, data = _fields(body)
        if name in attributes:
            raise Fault(f"has two attributes {name[:40]!r}")
        if read_shape(dataspace) != ():
            raise Fault(f"has an attribute {name[:40]!r} that is an array", SAVE_WITH_KERAS)
        attributes[name] = _value(name, datatype, data, strings)
    return attributes


def _fields(body: bytes) -> tuple[str, bytes, bytes, bytes]:
    """Return name, datatype, dataspace and data of one attribute; the first three are padded to a multiple of 8
    bytes."""
    version, zero, *sizes = _ATTRIBUTE.unpack_from(body.ljust(_ATTRIBUTE.size, b"\0"))
    if (version, zero) != (1, 0):
        raise Fault("has an attribute of another form than version 1", SAVE_WITH_KERAS)
    parts: list[bytes] = []
    position = _ATTRIBUTE.size
    for size in sizes:
        parts.append(body[position : position + size])
        position += (size + 7) // 8 * 8
    name = parts[0]
    if position > len(body) or not name or name.find(b"\0") != len(name) - 1:
        raise Fault("has an attribute that is damaged")
    return _utf8(name[:-1]), parts[1], parts[2], body[position:]


def _value(name: str, datatype: bytes, data: bytes, strings: Strings) -> Value:
    if datatype in _TEXTS:
        length, address, index = _POINTER.unpack_from(data.ljust(_POINTER.size, b"\0"))
        return _utf8(strings.take(length, address, index)) if (length, address, index) != (0, 0, 0) else ""
    if len(datatype) == _TYPE.size and datatype[0] == 0x13:
        return _fixed_text(name, datatype, data)
    dtype = DTYPES.get(datatype.ljust((len(datatype) + 7) // 8 * 8, b"\0"))
    if dtype is None or dtype.kind == "V":
        raise Fault(f"has an attribute {name[:40]!r} that is neither a number nor text", SAVE_WITH_KERAS)
    if len(data) < dtype.itemsize:
        raise Fault("has an attribute that is damaged")
    value: int | float | bool = np.frombuffer(data, dtype, 1)[0].item()
    return value


def _fixed_text(name: str, datatype: bytes, data: bytes) -> str:
    """Decode a string of fixed length, terminated or padded with zeros, in ASCII or UTF-8."""
    _, form, high, zero, size = _TYPE.unpack(datatype)
    if form & 15 > 1 or form >> 4 > 1 or high or zero or not 0 < size <= len(data):
        raise Fault(f"has an attribute {name[:40]!r} that is damaged or not plain text", SAVE_WITH_KERAS)
    return _utf8(data[:size].rstrip(b"\0"))


def _utf8(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # where the text of another reader would end
        raise Fault("has an attribute that is not UTF-8 or has a zero in it")
    return text
