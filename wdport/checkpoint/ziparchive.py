"""Read the members of an open zip file as byte ranges, after checking that they tile the file.

PyTorch and Keras write only stored (uncompressed) members, one after another. Anything else is refused: two readers of
the same archive must not be able to see different bytes. Only TorchScript's source code, which
is never read, may be compressed.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from wdport.checkpoint.faults import COPY_AGAIN, LOAD_AND_SAVE, SAVE_WITH_KERAS, WEIGHTS_FILE, Fault
from wdport.checkpoint.sniff import refuse_foreign_zip, refuse_keras_or_numpy
from wdport.checkpoint.source import Source, Span
from wdport.checkpoint.zipdirectory import Directory, Entry, read_directory
from wdport.limits import MAX_MEMBERS

_LOCAL: Final = Struct("<4s5H3L2H")
_DESCRIPTORS: Final = (Struct("<4s3L"), Struct("<4sL2Q"))
_ENCRYPTED: Final = 0x2041  # bits 0, 6 and 13
_DESCRIPTOR_FOLLOWS: Final = 0x0008
_UTF8_NAMES: Final = 0x0800
_FULL32: Final = 0xFFFFFFFF
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
    form = next((form for form in _DESCRIPTORS if form.size == gap), None)
    if form is None:
        raise Fault(f"{gap} bytes after it are not a zip data descriptor", COPY_AGAIN, entry.name)
    if form.unpack(source.read(data_end, gap)) != (b"PK\x07\x08", entry.crc, entry.packed, entry.size):
        raise Fault("zip member's data descriptor disagrees with the directory", COPY_AGAIN, entry.name)
