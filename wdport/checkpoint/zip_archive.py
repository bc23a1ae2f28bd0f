"""Read the directory and the members of an open zip file as byte ranges, after checking that they tile the file.

Of the format (PKWARE APPNOTE 6.3.10, sections 4.3.12 to 4.3.16) only what PyTorch writes is accepted: one
disk, no comments, the end records at the very end, with or without their 64-bit forms.

PyTorch and Keras write only stored (uncompressed) members, one after another. Anything else is refused: two readers of
the same archive must not be able to see different bytes. Only TorchScript's source code, which
is never read, may be compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from wdport.base.limits import MAX_MEMBERS
from wdport.checkpoint.faults import COPY_AGAIN, LOAD_AND_SAVE, SAVE_WITH_KERAS, WEIGHTS_FILE, Fault
from wdport.checkpoint.sniff import refuse_foreign_zip, refuse_keras_or_numpy
from wdport.checkpoint.source import Source, Span

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
    # Readers that search backwards for the magic accept a comment, and so may find a second directory in it.
    if end[0] != b"PK\x05\x06" or end[7] != 0:
        raise Fault("does not end with a zip end record: cut short, or something was appended")
    fields = (end[1], end[2], end[3], end[4], end[5], end[6])
    wide, directory_end = _end64(read, end_at)
    if wide is None:
        wide = fields
    elif any(
        # A field of the short record is either the maximum, "see the 64-bit record", or the same number.
        low not in (full, high)
        for low, high, full in zip(fields, wide, (_FULL16,) * 4 + (_FULL32,) * 2, strict=True)
    ):
        raise Fault("the two end records of the zip archive disagree")
    disk, directory_disk, here, count, size, start = wide
    if (disk, directory_disk) != (0, 0) or here != count:
        raise Fault("is one part of a split zip archive", "join the parts first")
    if start + size != directory_end:
        raise Fault("the zip directory is not where the end record points")
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
    # The record's own size excludes its first 12 bytes, the magic and this field.
    expected = (b"PK\x06\x06", _END64.size - 12, 0, record_at, 1)
    if (record[0], record[1], disk, offset, disks) != expected:
        raise Fault("the 64-bit end record of the zip archive is not where its locator points")
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
    # The extra field has only those numbers that are at their maximum, in this order: size, packed size, offset.
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


_LOCAL: Final = Struct("<4s5H3L2H")
_DESCRIPTORS: Final = (Struct("<4s3L"), Struct("<4sL2Q"))
_ENCRYPTED: Final = 0x2041  # bits 0, 6 and 13
_DESCRIPTOR_FOLLOWS: Final = 0x0008
_UTF8_NAMES: Final = 0x0800
_DEFLATED: Final = 8
_CODE: Final = "code/"


def read_members(source: Source) -> dict[str, Span]:
    """Return every member of a PyTorch archive except source code, by name without root folder, in the directory's
    order."""
    directory = read_directory(source.read, source.size)
    entries = directory.entries
    refuse_keras_or_numpy([entry.name for entry in entries])
    root = _common_root(entries)
    refuse_foreign_zip({entry.name[len(root) :] for entry in entries})
    for entry in entries:
        _check_entry(entry, entry.name[len(root) :].startswith(_CODE))
    return {
        name: Span(source, start, entry.size, entry.crc, name)
        for entry, start in _tile(source, directory)
        if not (name := entry.name[len(root) :]).startswith(_CODE)
    }


def read_flat_members(source: Source, max_members: int = MAX_MEMBERS, fix: str = SAVE_WITH_KERAS) -> dict[str, Span]:
    """Return every member of an archive without a root folder, all uncompressed, in the directory's order; ``fix`` is
    the advice for others."""
    directory = read_directory(source.read, source.size, max_members)
    _check_names(directory.entries)
    for entry in directory.entries:
        _check_entry(entry, False, fix)
    members = _tile(source, directory)
    return {entry.name: Span(source, start, entry.size, entry.crc, entry.name) for entry, start in members}


def _tile(source: Source, directory: Directory) -> list[tuple[Entry, int]]:
    """Return each entry and the offset of its bytes, in the directory's order; together the members fill the file."""
    ordered = sorted(directory.entries, key=lambda entry: entry.header)
    if not ordered or ordered[0].header != 0:
        raise Fault("has data before the first zip member")
    # By offset, not in the directory's order: each member must end where the next one begins.
    ends = [entry.header for entry in ordered[1:]] + [directory.start]
    starts = {entry.name: _data_start(source, entry, end) for entry, end in zip(ordered, ends, strict=True)}
    return [(entry, starts[entry.name]) for entry in directory.entries]


def _common_root(entries: list[Entry]) -> str:
    """Return the common top folder of all members, with its slash."""
    roots = {entry.name.partition("/")[0] for entry in entries if "/" in entry.name}
    bare = [entry.name for entry in entries if "/" not in entry.name]
    if len(roots) != 1 or bare:
        raise Fault("is a zip archive without the single root folder of a PyTorch checkpoint", WEIGHTS_FILE)
    _check_names(entries)
    return f"{roots.pop()}/"


def _check_names(entries: list[Entry]) -> None:
    """Refuse unsafe and duplicate names."""
    names: set[str] = set()
    for entry in entries:
        parts = entry.name.split("/")
        if {"", ".", ".."} & set(parts) or "\\" in entry.name or not entry.name.isprintable():
            raise Fault(f"zip member with an unsafe name, {entry.name!r}")
        if entry.name in names:
            raise Fault(f"duplicate zip member {entry.name!r}")
        names.add(entry.name)


def _check_entry(entry: Entry, is_code: bool, fix: str = LOAD_AND_SAVE) -> None:
    if entry.flags & _ENCRYPTED:
        raise Fault("zip member is encrypted", "decrypt the file first", entry.name)
    stored = entry.method == 0 and entry.packed == entry.size
    if not stored and not (is_code and entry.method == _DEFLATED):
        raise Fault("zip member is compressed; PyTorch, Keras and wdport store them plain", fix, entry.name)
    if entry.flags & ~(_DESCRIPTOR_FOLLOWS | _UTF8_NAMES):
        raise Fault(f"zip member with unknown flags {entry.flags:#06x}", COPY_AGAIN, entry.name)


def _data_start(source: Source, entry: Entry, end: int) -> int:
    """Return the offset of the member's bytes; ``end`` is where the next member or the directory begins."""
    name = entry.name.encode("utf-8")
    if entry.header + _LOCAL.size + len(name) > end:
        raise Fault("zip member overlaps the next one", COPY_AGAIN, entry.name)
    raw = source.read(entry.header, _LOCAL.size + len(name))
    magic, _, flags, method, _, _, crc, packed, size, name_len, extra_len = _LOCAL.unpack_from(raw)
    if (magic, flags, method, name_len) != (b"PK\x03\x04", entry.flags, entry.method, len(name)):
        raise Fault("zip member's two headers disagree", COPY_AGAIN, entry.name)
    if raw[_LOCAL.size :] != name:
        raise Fault("zip member's two headers disagree about its name", COPY_AGAIN, entry.name)
    start: int = entry.header + len(raw) + extra_len
    deferred = bool(flags & _DESCRIPTOR_FOLLOWS)
    _check_sizes(entry, crc, packed, size, deferred)
    _check_gap(source, entry, start + entry.packed, end, deferred)
    return start


def _check_sizes(entry: Entry, crc: int, packed: int, size: int, deferred: bool) -> None:
    """Check that the local header repeats the directory, unless it defers to the descriptor or a 64-bit field.

    If it defers, the size is still determined: the members must tile the file.
    """
    if deferred and (crc, packed, size) == (0, 0, 0):
        return
    if crc != entry.crc or packed not in (entry.packed, _FULL32) or size not in (entry.size, _FULL32):
        raise Fault("zip member's two headers disagree about its size or CRC", COPY_AGAIN, entry.name)


def _check_gap(source: Source, entry: Entry, data_end: int, end: int, deferred: bool) -> None:
    """Check that only the member's data descriptor, or nothing, is between its bytes and ``end``."""
    gap = end - data_end
    if gap < 0:
        raise Fault("zip member overlaps the next one", COPY_AGAIN, entry.name)
    if not deferred:
        if gap:
            raise Fault(f"{gap} bytes after it belong to no zip member", COPY_AGAIN, entry.name)
        return
    # torch writes a descriptor after the bytes of every member, with sizes of 32 or 64 bits.
    form = next((form for form in _DESCRIPTORS if form.size == gap), None)
    if form is None:
        raise Fault(f"{gap} bytes after it are not a zip data descriptor", COPY_AGAIN, entry.name)
    if form.unpack(source.read(data_end, gap)) != (b"PK\x07\x08", entry.crc, entry.packed, entry.size):
        raise Fault("zip member's data descriptor disagrees with the directory", COPY_AGAIN, entry.name)
