"""Parse the entries of a zip file's central directory.

Of the format (PKWARE APPNOTE 6.3.10, sections 4.3.12 to 4.3.16) only what PyTorch writes is accepted: one
disk, no comments, the end records at the very end, with or without their 64-bit forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from wdport.checkpoint.faults import COPY_AGAIN, Fault
from wdport.limits import MAX_MEMBERS

MAX_DIRECTORY_BYTES: Final = 256 << 20
"""Central directory; 2 million members of 80 bytes make 160 MB."""

_END: Final = Struct("<4s4H2LH")
_LOCATOR: Final = Struct("<4sLQL")
_END64: Final = Struct("<4sQ2H2L4Q")
_CENTRAL: Final = Struct("<4s6H3L5H2L")
_EXTRA: Final = Struct("<2H")
_FULL16: Final = 0xFFFF
_FULL32: Final = 0xFFFFFFFF


Read = Callable[[int, int], bytes]
"""Reads exactly this many bytes from an offset, or raises a :class:`Fault`, as :meth:`Source.read` does."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the central directory."""

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    header: int
    """Offset of the local header."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The entries, in the directory's order, and the directory's offset in the file."""

    entries: list[Entry]
    start: int


def read_directory(read: Read, file_size: int, max_members: int = MAX_MEMBERS) -> Directory:
    """Parse the end records and the central directory, of ``max_members`` entries, of a file of ``file_size`` bytes."""
    count, size, start = _end_records(read, file_size)
    if count > max_members or size > MAX_DIRECTORY_BYTES:
        raise Fault(f"zip archive of {count} members: more than are read", COPY_AGAIN)
    raw = read(start, size)
    entries: list[Entry] = []
    position = 0
    for _ in range(count):
        entry, position = _entry(raw, position)
        entries.append(entry)
    if position != size:
        raise Fault("the zip directory's size does not match its entries")
    return Directory(entries, start)


def _end_records(read: Read, file_size: int) -> tuple[int, int, int]:
    """Return number of entries, size and offset of the central directory."""
    end_at = file_size - _END.size
    if end_at < 0:
        raise Fault("is cut short: no zip end record")
    end = _END.unpack(read(end_at, _END.size))
    if end[0] != b"PK\x05\x06" or end[7] != 0:
        raise Fault("does not end with a zip end record: cut short, or something was appended")
    fields = (end[1], end[2], end[3], end[4], end[5], end[6])
    wide, directory_end = _end64(read, end_at)
    if wide is None:
        wide = fields
    elif any(
        low not in (full, high) for low, high, full in zip(fields, wide, (_FULL16,) * 4 + (_FULL32,) * 2, strict=True)
    ):
        raise Fault("the two end records of the zip archive disagree")
    disk, directory_disk, here, count, size, start = wide
    if (disk, directory_disk) != (0, 0) or here != count:
        raise Fault("is one part of a split zip archive", "join the parts first")
    if start + size != directory_end:
        raise Fault("the zip directory is not where the end record says")
    return count, size, start


def _end64(read: Read, end_at: int) -> tuple[tuple[int, ...] | None, int]:
    """Return the 64-bit end record's fields, or None without one, and the required end of the directory."""
    locator_at = end_at - _LOCATOR.size
    record_at = locator_at - _END64.size
    if record_at < 0:
        return None, end_at
    magic, disk, offset, disks = _LOCATOR.unpack(read(locator_at, _LOCATOR.size))
    if magic != b"PK\x06\x07":
        return None, end_at
    record = _END64.unpack(read(record_at, _END64.size))
    expected = (b"PK\x06\x06", _END64.size - 12, 0, record_at, 1)
    if (record[0], record[1], disk, offset, disks) != expected:
        raise Fault("the 64-bit end record of the zip archive is not where its locator says")
    return record[4:], record_at


def _entry(raw: bytes, position: int) -> tuple[Entry, int]:
    """Return the entry at ``position`` and the position after it."""
    names_at = position + _CENTRAL.size
    if names_at > len(raw):
        raise Fault("the zip directory is cut short")
    fields = _CENTRAL.unpack_from(raw, position)
    magic, _, _, flags, method, _, _, crc, packed, size, *lengths, disk, _, _, header = fields
    name_len, extra_len, comment_len = lengths
    after = names_at + name_len + extra_len
    if magic != b"PK\x01\x02" or after > len(raw) or comment_len or disk not in (0, _FULL16):
        raise Fault("the zip directory is damaged")
    try:
        name = raw[names_at : names_at + name_len].decode("utf-8")
    except UnicodeDecodeError:
        raise Fault("a member's name in the zip directory is not UTF-8") from None
    if _FULL32 in (size, packed, header):
        extra = _zip64_extra(raw[names_at + name_len : after])
        size, packed, header = (next(extra, value) if value == _FULL32 else value for value in (size, packed, header))
    return Entry(name, flags, method, crc, packed, size, header), after


def _zip64_extra(extra: bytes) -> Iterator[int]:
    """Yield the 64-bit numbers of the extra field 0x0001, in their fixed order."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, position)
        body = extra[position + 4 : position + 4 + length]
        if kind == 1:
            return iter([int.from_bytes(body[offset : offset + 8], "little") for offset in range(0, len(body) - 7, 8)])
        position += 4 + length
    return iter(())
