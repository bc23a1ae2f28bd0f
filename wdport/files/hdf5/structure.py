"""Locate the bytes of each array in an HDF5 file, and its attributes, without the HDF5 library, or raise a fault.

Attributes are those of version 1 (section IV.A.2.m of the HDF5 File Format Specification) with one number or one
string. A string of variable length is stored in a collection of a global heap (section III.E), which several objects
share.

The reader accepts what Keras and h5py write by default: a superblock of version 0, groups of the old form, contiguous
numeric arrays, attributes with one number or string. External links, data in other files, virtual or compressed data
and every newer form are refused: a converted model has none, and a reader that follows them can be led to any file.
The caller reads the bytes of the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, pack
from typing import Final

import numpy as np

from wdport.base.limits import MAX_ATTRIBUTE_BYTES, MAX_DEPTH, MAX_HDF5_OBJECTS, MAX_HDF5_PATH
from wdport.checkpoint.faults import SAVE_WITH_KERAS, Fault
from wdport.files.hdf5.groups import INTERNAL_K, LEAF_K, is_group, read_links
from wdport.files.hdf5.headers import (
    DATASPACE,
    DATATYPE,
    DTYPES,
    FILL_VALUE,
    LAYOUT,
    UNDEFINED,
    Extents,
    Header,
    Read,
    Shape,
    count_bytes,
    fixed_point,
    read_dtype,
    read_header,
    read_shape,
)

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
        # `pop`: a string that two attributes refer to would be read as often as a file repeats the reference.
        start, size = self._collections[address].pop(index, (0, -1))
        if size != length:
            raise Fault("a string is not where its attribute points in the HDF5 file")
        if length > MAX_ATTRIBUTE_BYTES:
            raise Fault(f"has an attribute of {length} bytes (at most {MAX_ATTRIBUTE_BYTES})", SAVE_WITH_KERAS)
        return self._extents.look(start, length)

    def _collection(self, address: int) -> dict[int, tuple[int, int]]:
        """Return place and length of each object of a collection, by number."""
        head = (
            self._extents.look(address, _COLLECTION.size) if address <= self._extents.size - _COLLECTION.size else b""
        )
        if head[:8] != b"GCOL\x01\0\0\0":
            raise Fault("the strings of the HDF5 file are not where an attribute points")
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
        # h5py stores an empty string as a null pointer.
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


_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_SUPERBLOCK: Final = Struct("<8s8B2HL4Q2Q2L2Q")
_CONTIGUOUS: Final = Struct("<2B2Q6s")
_FILLS: Final = {bytes((2, early, 2, 1, 0, 0, 0, 0)) for early in (1, 2)}  # zero; nothing is filled with it
_ARRAY: Final = {DATASPACE, DATATYPE, FILL_VALUE, LAYOUT}


@dataclass(frozen=True, slots=True)
class Hdf5Dataset:
    """One array: the place of its bytes in the HDF5 file, in C order and little-endian.

    The dtype is that of the stored bytes: two raw bytes, ``V2``, with an attribute ``dtype`` for Keras's bfloat16.
    """

    path: str
    dtype: np.dtype[np.generic]
    shape: Shape
    offset: int
    nbytes: int
    attributes: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Hdf5Contents:
    """The arrays and the groups' attributes of an HDF5 file, by path without a leading slash; the root is ``""``."""

    datasets: dict[str, Hdf5Dataset]
    groups: dict[str, dict[str, Value]]


@dataclass(slots=True)
class _Object:
    path: str
    address: int
    cached: tuple[int, int] | None


def read_hdf5(read: Read, size: int) -> Hdf5Contents:
    """Read the structure of an HDF5 file of ``size`` bytes, whose bytes ``read`` returns."""
    extents = Extents(read, size)
    strings = Strings(extents)
    contents = Hdf5Contents({}, {})
    waiting = [_root(extents)]
    # The list grows while it is traversed: no recursion, whatever the depth of the file.
    for node in waiting:
        try:
            _visit(extents, strings, contents, waiting, node)
        except Fault as fault:
            part = "/".join(part for part in (node.path, fault.part) if part)
            raise type(fault)(fault.what, fault.fix, part) from None
    extents.settle()
    return contents


def _root(extents: Extents) -> _Object:
    """Return the root group, from the superblock."""
    if extents.size < _SUPERBLOCK.size or not (raw := extents.look(0, _SUPERBLOCK.size)).startswith(_MAGIC):
        raise Fault("is not an HDF5 file, or has data before it")
    extents.claim(0, _SUPERBLOCK.size, "the superblock")
    (_, *forms, leaf_k, internal_k, flags, base, free, end, driver) = _SUPERBLOCK.unpack(raw)[:16]
    if forms[0] != 0:
        raise Fault(f"is an HDF5 file of version {forms[0]}; Keras writes version 0", SAVE_WITH_KERAS)
    if forms != [0, 0, 0, 0, 0, 8, 8, 0] or (leaf_k, internal_k, flags) != (LEAF_K, INTERNAL_K, 0):
        raise Fault("is an HDF5 file with settings that Keras does not write", SAVE_WITH_KERAS)
    if (base, free, driver) != (0, UNDEFINED, UNDEFINED):
        raise Fault("is an HDF5 file in several parts or with something before it", SAVE_WITH_KERAS)
    if end != extents.size:
        raise Fault(f"is an HDF5 file of {end} bytes in {extents.size}: cut short, or something was appended")
    name, address, cache, zero, first, second = _SUPERBLOCK.unpack(raw)[16:]
    if name or cache > 1 or zero:
        raise Fault("the superblock of the HDF5 file is damaged")
    return _Object("", address, (first, second) if cache else None)


def _visit(extents: Extents, strings: Strings, contents: Hdf5Contents, waiting: list[_Object], node: _Object) -> None:
    """Add an object to ``contents`` and, if it is a group, its members to ``waiting``."""
    header = read_header(extents, node.address)
    attributes = read_attributes(header.attributes, strings)
    if not is_group(header):
        contents.datasets[node.path] = _dataset(extents, header, node, attributes)
        return
    contents.groups[node.path] = attributes
    if node.path.count("/") >= MAX_DEPTH:
        raise Fault(f"is nested more than {MAX_DEPTH} deep", SAVE_WITH_KERAS)
    for link in read_links(extents, header, node.cached):
        path = f"{node.path}/{link.name}" if node.path else link.name
        if len(path) > MAX_HDF5_PATH or len(waiting) > MAX_HDF5_OBJECTS:
            raise Fault("is an HDF5 file with too many objects or too long names", SAVE_WITH_KERAS)
        waiting.append(_Object(path, link.address, link.cached))


def _dataset(extents: Extents, header: Header, node: _Object, attributes: dict[str, Value]) -> Hdf5Dataset:
    missing = _ARRAY - set(header.messages)
    if missing or node.cached is not None or not node.path:
        raise Fault("is neither an HDF5 group nor a whole array", SAVE_WITH_KERAS)
    dtype = read_dtype(header.messages[DATATYPE][1])
    if dtype.kind == "V" and attributes.get("dtype") != "bfloat16":
        raise Fault("holds raw bytes that are not bfloat16", SAVE_WITH_KERAS)
    shape = read_shape(header.messages[DATASPACE][1])
    nbytes = count_bytes(shape, dtype.itemsize)
    offset = _place(extents, *header.messages[LAYOUT], nbytes)
    if header.messages[FILL_VALUE][1] not in _FILLS:
        raise Fault("has a fill value of another form", SAVE_WITH_KERAS)
    return Hdf5Dataset(node.path, dtype, shape, offset, nbytes, attributes)


def _place(extents: Extents, message_offset: int, layout: bytes, nbytes: int) -> int:
    """Return the offset of the ``nbytes`` bytes of an array whose layout message begins at ``message_offset``."""
    version, kind = layout[:2].ljust(2, b"\0")
    if version != 3:
        raise Fault("is an HDF5 array of another form than version 3", SAVE_WITH_KERAS)
    if kind == 0:
        return _compact(message_offset, layout, nbytes)
    if kind != 1 or len(layout) != _CONTIGUOUS.size:
        raise Fault("is stored in chunks" if kind == 2 else "is stored in an unknown way", SAVE_WITH_KERAS)
    _, _, offset, size, _ = _CONTIGUOUS.unpack(layout)
    if size != nbytes:
        raise Fault(f"has {size} bytes in the HDF5 file where its shape and type need {nbytes}")
    # HDF5 stores no address for an array without elements.
    if not nbytes:
        return 0
    if offset == UNDEFINED:
        raise Fault("was never written", SAVE_WITH_KERAS)
    extents.claim(offset, nbytes, "an array")
    return int(offset)


def _compact(message_offset: int, layout: bytes, nbytes: int) -> int:
    """Return the offset of an array that is stored in its layout message."""
    if int.from_bytes(layout[2:4], "little") != nbytes or nbytes > len(layout) - 4:
        raise Fault("has another size in the HDF5 file than its shape and type need")
    return message_offset + 4 if nbytes else 0
