"""Read the byte ranges of an HDF5 file within its bounds, and the header messages of its objects: shapes and dtypes.

An HDF5 file is a graph of addresses, and an address may have any value. Every object is claimed here before it is
read: a range outside the file, or one that is already claimed, is a fault. So no two objects share a byte, addresses
cannot form a loop, and the work is bounded by the size of the file, whatever it declares.

Object headers of version 1 (sections IV.A.1.a and IV.A.2 of the HDF5 File Format Specification): a prefix, messages,
and continuation blocks with more of them. A kind of message that Keras does not write is a fault: it may be a link, a
filter, storage in another file, or something unknown.

A datatype is recognised by comparing all its bytes with those that the HDF5 library writes for each numpy type: another
byte order, padding or mantissa is another datatype, which Keras does not write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct, pack, unpack_from
from typing import Final

import numpy as np

from wdport.base.limits import MAX_EMPTY_SHAPE, MAX_RANK
from wdport.checkpoint.faults import COPY_AGAIN, SAVE_WITH_KERAS, Fault

UNDEFINED: Final = 0xFFFFFFFFFFFFFFFF
"""The undefined address."""

Read = Callable[[int, int], bytes]
"""Reads exactly this many bytes from an offset, or raises a :class:`Fault`."""

_PAGE: Final = 1 << 12
"""Objects have some hundred bytes and lie in clusters of 2 KiB: most are in a page that is already cached."""

_MAX_PAGES: Final = 1 << 10


class Extents:
    """The bytes of a file of ``size`` bytes, and their claims."""

    def __init__(self, read: Read, size: int) -> None:
        self._read, self.size = read, size
        self._claimed: dict[int, int] = {}
        self._total = 0
        self._pages: dict[int, bytes] = {}

    def claim(self, offset: int, count: int, what: str) -> None:
        """Claim ``count`` bytes, at least one, from ``offset`` for ``what``, which messages name."""
        if count <= 0 or offset > self.size - count:
            raise Fault(f"{what}: {count} bytes at offset {offset} lie outside the HDF5 file")
        self._total += count
        # The sum finds at once, whatever the order, that some are claimed twice: until then the work has a bound.
        if offset in self._claimed or self._total > self.size:
            raise Fault(f"{what} overlaps something else in the HDF5 file")
        self._claimed[offset] = count

    def take(self, offset: int, count: int, what: str) -> bytes:
        """Claim these bytes and read them."""
        self.claim(offset, count, what)
        return self.look(offset, count)

    def look(self, offset: int, count: int) -> bytes:
        """Read bytes within a claimed range."""
        start = offset % _PAGE
        if start + count > _PAGE:
            return self._read(offset, count)
        page = self._pages.get(offset - start) or self._load(offset - start)
        return page[start : start + count]

    def _load(self, start: int) -> bytes:
        # 4 MiB at most; dropping all is simpler than choosing one, and objects of one page are read together.
        if len(self._pages) >= _MAX_PAGES:
            self._pages.clear()
        page = self._pages[start] = self._read(start, min(_PAGE, self.size - start))
        return page

    def settle(self) -> None:
        """Refuse the file if any two claims overlap; call it after all claims."""
        end = 0
        for offset in sorted(self._claimed):
            if offset < end:
                raise Fault(f"two objects of the HDF5 file overlap at offset {offset}", COPY_AGAIN)
            end = offset + self._claimed[offset]


NIL: Final = 0x00
DATASPACE: Final = 0x01
LINK_INFO: Final = 0x02
DATATYPE: Final = 0x03
FILL_VALUE: Final = 0x05
LINK: Final = 0x06
LAYOUT: Final = 0x08
GROUP_INFO: Final = 0x0A
ATTRIBUTE: Final = 0x0C
_CONTINUATION: Final = 0x10
SYMBOL_TABLE: Final = 0x11
_MODIFIED: Final = 0x12

_KNOWN: Final = {DATASPACE, DATATYPE, FILL_VALUE, LAYOUT, SYMBOL_TABLE, LINK_INFO, GROUP_INFO, _MODIFIED}
_REFUSED: Final = {
    0x04: "a fill value of an older HDF5 form",
    0x07: "its data in another file",
    0x0B: "compressed or filtered data",
    0x0D: "a comment",
    0x0F: "shared messages",
    0x15: "attributes of a newer HDF5 form",
    0x16: "several names for one object",
}
_SHARED: Final = 0x02

_PREFIX: Final = Struct("<2BH2L4s")
_MESSAGE: Final = Struct("<2HB3s")
_ADDRESS_AND_LENGTH: Final = Struct("<2Q")
_ZERO3: Final = bytes(3)


@dataclass(slots=True)
class Header:
    """The messages of one object: one of each kind, except attributes and links."""

    messages: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Offset in the file and bytes."""

    attributes: list[bytes] = field(default_factory=list)
    links: list[bytes] = field(default_factory=list)


def read_header(extents: Extents, address: int) -> Header:
    """Read the object header at ``address`` with all its continuation blocks."""
    prefix = extents.take(address, _PREFIX.size, "an object header")
    version, reserved, count, references, size, pad = _PREFIX.unpack(prefix)
    # h5py writes version 1 by default (libver "earliest"); version 2 headers have another layout and checksums.
    if version != 1 or reserved:
        raise Fault("is an HDF5 object of another form than version 1", SAVE_WITH_KERAS)
    if references != 1:
        raise Fault("has several names in the HDF5 file", SAVE_WITH_KERAS)
    if any(pad):
        raise Fault("its HDF5 header is damaged")
    header = Header()
    blocks = [(address + _PREFIX.size, size)]
    left = count
    # The list grows while it is traversed. It ends, since no block can be claimed twice.
    for start, length in blocks:
        left -= _read_block(extents, header, blocks, start, length)
    if left:
        raise Fault("its HDF5 header does not have as many messages as it states")
    return header


def _read_block(extents: Extents, header: Header, blocks: list[tuple[int, int]], start: int, length: int) -> int:
    """Add the messages of one block to ``header`` and continuations to ``blocks``; return the number of messages."""
    raw = extents.take(start, length, "an object header")
    position = count = 0
    while position < length:
        body = position + _MESSAGE.size
        if body > length:
            raise Fault("its HDF5 header ends inside a message")
        kind, size, flags, reserved = _MESSAGE.unpack_from(raw, position)
        position = body + size
        if position > length or size % 8 or flags > 1 or reserved != _ZERO3:
            raise _bad_message(flags)
        count += 1
        if kind == _CONTINUATION:
            blocks.append(_continuation(raw[body:position]))
        elif kind != NIL:
            _sort_in(header, kind, start + body, raw[body:position])
    return count


def _sort_in(header: Header, kind: int, offset: int, body: bytes) -> None:
    if kind == ATTRIBUTE:
        header.attributes.append(body)
    elif kind == LINK:
        header.links.append(body)
    elif kind not in _KNOWN:
        raise Fault(f"has {_REFUSED.get(kind, f'an HDF5 message of kind {kind:#x}')}", SAVE_WITH_KERAS)
    elif kind in header.messages:
        raise Fault(f"its HDF5 header has two messages of kind {kind:#x}")
    else:
        header.messages[kind] = (offset, body)


def _continuation(body: bytes) -> tuple[int, int]:
    if len(body) != _ADDRESS_AND_LENGTH.size:
        raise Fault("its HDF5 header has a continuation that is damaged")
    address, length = _ADDRESS_AND_LENGTH.unpack(body)
    return address, length


def _bad_message(flags: int) -> Fault:
    if flags & _SHARED:
        return Fault("has a datatype or another property that is stored elsewhere in the HDF5 file", SAVE_WITH_KERAS)
    if flags > 1:
        return Fault("its HDF5 header has a message of an unknown form", SAVE_WITH_KERAS)
    return Fault("its HDF5 header has a message that is damaged")


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
    # `room` takes zero lengths as one: numpy counts the bytes of an empty array in this way, and they can overflow.
    total = room = itemsize
    for size in shape:
        total *= size
        room *= max(size, 1)
    if not total and room > MAX_EMPTY_SHAPE:
        raise Fault(f"has shape {shape}, which no model has")
    return total
