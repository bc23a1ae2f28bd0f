"""Read the header messages of an HDF5 object, by kind.

Object headers of version 1 (sections IV.A.1.a and IV.A.2 of the HDF5 File Format Specification): a prefix, messages,
and continuation blocks with more of them. A kind of message that Keras does not write is a fault: it may be a link, a
filter, storage in another file, or something unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from wdport.checkpoint.faults import SAVE_WITH_KERAS, Fault
from wdport.files.hdf5.extents import Extents

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
    if version != 1 or reserved:
        raise Fault("is an HDF5 object of another form than version 1", SAVE_WITH_KERAS)
    if references != 1:
        raise Fault("has several names in the HDF5 file", SAVE_WITH_KERAS)
    if any(pad):
        raise Fault("its HDF5 header is damaged")
    header = Header()
    blocks = [(address + _PREFIX.size, size)]
    left = count
    for start, length in blocks:
        left -= _read_block(extents, header, blocks, start, length)
    if left:
        raise Fault("its HDF5 header does not have as many messages as it says")
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
