"""Read an open safetensors file: its JSON header entry by entry, its tensors and the places of their bytes.

The header may have 100 MB, so it is never parsed as a whole: anything that is not a tensor's entry is refused when it
is reached, before memory is allocated for it.

The format: 8 bytes of header length, a JSON object, and the data, which the tensors must tile without
holes or overlaps. It records no CRC, so a flipped bit in the data cannot be seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import prod
from typing import Final, NamedTuple

from wdport.base.limits import (
    MAX_ENTRY_BYTES,
    MAX_HEADER_BYTES,
    MAX_METADATA,
    MAX_METADATA_BYTES,
    MAX_RANK,
    MAX_TENSORS,
)
from wdport.checkpoint.faults import COPY_AGAIN, OTHER_DTYPE, SCALED, Fault
from wdport.checkpoint.source import Contents, Source, Span
from wdport.checkpoint.strict_json import strict_prefix
from wdport.checkpoint.tensor import SAFETENSORS, StorageRef, TensorRef, row_major, tensor_ref

RESAVE: Final = "get the file from its author again: safetensors does not write this"
METADATA: Final = "__metadata__"
_UNREAD: Final = {
    **dict.fromkeys(
        ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"), SCALED
    ),
    **dict.fromkeys(("U16", "U32", "U64"), OTHER_DTYPE),
}
"""Dtypes that safetensors writes and this reader does not read, with the advice."""

# Possessive quantifiers (`*+`, `++`) never give back what they matched, so no header makes a pattern take quadratic
# time.
_BLANK: Final = rb"[ \t\n\r]*+"
_TEXT: Final = rb'"((?:[^"\\\x00-\x1f]++|\\.)*+)"'
_NATURAL: Final = rb"(?:0|[1-9][0-9]{0,18})"
_NATURALS: Final = rb"\[ ((?:%b(?: , %b){0,%d}+)?+) \]" % (_NATURAL, _NATURAL, MAX_RANK)  # one too many is seen


def _tokens(pattern: bytes) -> re.Pattern[bytes]:
    """Compile the pattern, with a blank matching any JSON white space."""
    return re.compile(pattern.replace(b" ", _BLANK), re.DOTALL)


# The class of _TEXT has no blank in it: a blank there would be taken for a place between tokens.
_OPEN: Final = _tokens(rb" \{ (\})?+")
_NAME: Final = _tokens(_TEXT + rb" : ")
_NEXT: Final = _tokens(rb" (,|\}) ")
_PAIR: Final = _tokens(_TEXT + rb" : " + _TEXT + rb" (,|\}) ")
_END: Final = _tokens(rb" \Z")
_ENTRY: Final = _tokens(
    rb'"([^"\\\x00-\x1f]*+)" : \{ "dtype" : "([A-Z0-9_]++)" , "shape" : ' + _NATURALS
    + rb' , "data_offsets" : \[ (%b) , (%b) \] \} (,|\}) ' % (_NATURAL, _NATURAL)
)  # fmt: skip


class HeaderEntry(NamedTuple):
    """The header's entry of one tensor."""

    name: str
    tag: str
    shape: tuple[int, ...]
    begin: int
    end: int


class TensorHeader:
    """Iterating yields every tensor's :class:`HeaderEntry` once; ``metadata`` is complete afterwards.

    A context manager that releases the bytes at the end, since an exception keeps a reference to local variables.
    """

    def __init__(self, raw: bytearray) -> None:
        self._raw = raw
        self.metadata: dict[str, str] | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._raw.clear()

    def __iter__(self) -> Iterator[HeaderEntry]:
        raw = self._raw
        # Counted at once in C, before the first entry is parsed; a name that contains this text is counted as well.
        if raw.count(b'"data_offsets"') > MAX_TENSORS:
            raise Fault(f"more than {MAX_TENSORS} tensors", RESAVE)
        opened = _OPEN.match(raw)
        if opened is None:
            raise Fault("the header is not a JSON object", COPY_AGAIN)
        position, more = opened.end(), opened[1] is None
        while more:
            # One pattern reads the form that the safetensors library writes; the general parser reads any other order
            # or escape.
            match = _ENTRY.match(raw, position)
            if match is not None and match[1] != METADATA.encode():
                name, tag, shape, begin, end, mark = match.groups()
                sizes = tuple(map(int, shape.split(b","))) if shape else ()
                yield _ranked(HeaderEntry(_decoded(name), tag.decode(), sizes, int(begin), int(end)))
                position, more = match.end(), mark == b","
            else:
                entry, position, more = self._general(position)
                if entry is not None:
                    yield _ranked(entry)
        if _END.match(raw, position) is None:
            raise _not_json()

    def _general(self, position: int) -> tuple[HeaderEntry | None, int, bool]:
        """Return an entry in any form that JSON allows, or None for the metadata; its end, and whether another one
        follows."""
        match = _NAME.match(self._raw, position)
        if match is None:
            raise _not_json()
        name, position = _text(self._raw, *match.span(1)), match.end()
        if name == METADATA:
            entry, position = None, self._read_metadata(position)
        else:
            entry, position = _one(name, bytes(self._raw[position : position + MAX_ENTRY_BYTES]), position)
        mark = _NEXT.match(self._raw, position)
        if mark is None:
            raise _not_json()
        return entry, mark.end(), mark[1] == b","

    def _read_metadata(self, position: int) -> int:
        """Read the metadata and return its end."""
        if self.metadata is not None:
            raise Fault(f"duplicate key {METADATA!r} in its JSON", COPY_AGAIN)
        opened = _OPEN.match(self._raw, position)
        table: dict[str, str] = {}
        start = position
        position, more = (opened.end(), opened[1] is None) if opened else (position, True)
        while more:
            pair = _PAIR.match(self._raw, position) if opened else None
            if pair is None:
                raise Fault(f"the header's {METADATA} is not a table of text", RESAVE)
            if pair.end() - start > MAX_METADATA_BYTES:
                raise Fault(f"the header's {METADATA} has more than {MAX_METADATA_BYTES} bytes", RESAVE)
            name, more = _text(self._raw, *pair.span(1)), pair[3] == b","
            if name in table:
                raise Fault(f"duplicate key {name!r} in its JSON", COPY_AGAIN)
            if len(table) == MAX_METADATA:
                raise Fault(f"the header's {METADATA} has more than {MAX_METADATA} entries", RESAVE)
            table[name], position = _text(self._raw, *pair.span(2)), pair.end()
        self.metadata = table
        return position


def _one(name: str, window: bytes, position: int) -> tuple[HeaderEntry, int]:
    """Return the entry at the start of ``window``, which is at ``position``, and its end."""
    try:
        # latin-1 keeps one character per byte, so that `length` is a number of bytes.
        value, length = strict_prefix(window.decode("latin-1"))
    except ValueError:
        if len(window) < MAX_ENTRY_BYTES:
            raise _not_json() from None
        what = f"its header entry is not valid JSON, or longer than {MAX_ENTRY_BYTES} bytes"
        raise Fault(what, RESAVE, name) from None
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise Fault("its header entry is not dtype, shape and data_offsets", RESAVE, name)
    tag, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(tag, str):
        raise Fault("its dtype is not text", RESAVE, name)
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise Fault("its shape or data_offsets are not natural numbers", RESAVE, name)
    return HeaderEntry(name, tag, tuple(shape), offsets[0], offsets[1]), position + length


def _ranked(entry: HeaderEntry) -> HeaderEntry:
    if len(entry.shape) > MAX_RANK:
        raise Fault(f"has {len(entry.shape)} axes (at most {MAX_RANK} are read)", RESAVE, entry.name)
    return entry


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _not_json() from None


def _text(raw: bytearray, start: int, stop: int) -> str:
    """Decode the content between the quotes of a JSON string."""
    try:
        # A view that is still open would make the bytearray's `clear` fail.
        with memoryview(raw) as view, view[start:stop] as part:
            if raw.find(b"\\", start, stop) < 0:
                return str(part, "utf-8")
            return str(json.loads(b'"%b"' % bytes(part)))
    except ValueError:
        raise _not_json() from None


def _not_json() -> Fault:
    return Fault("the header is not valid JSON", COPY_AGAIN)


_LENGTH_BYTES: Final = 8


def read_safetensors(source: Source) -> Contents:
    """Parse the header without reading data."""
    header, data_start = _header(source)
    tensors: dict[str, TensorRef] = {}
    spans: dict[str, Span] = {}
    with header:
        for entry in header:
            if entry.name in tensors:
                raise Fault(f"duplicate key {entry.name!r} in its JSON", COPY_AGAIN)
            tensors[entry.name] = _tensor(entry)
            spans[entry.name] = Span(source, data_start + entry.begin, entry.end - entry.begin, None, entry.name)
    _check_tiling(spans, data_start, source.size)
    return Contents("safetensors", tensors, spans, [source], dict(header.metadata or {}))


def omitted_names(contents: Contents) -> dict[str, str]:
    """Return the names that ``safetensors.torch.save_model`` omitted, each with the name that it wrote: it writes one
    name of a tensor that has several, and the others to the metadata."""
    tensors = contents.tree if isinstance(contents.tree, dict) and contents.format == "safetensors" else {}
    return {name: other for name, other in contents.metadata.items()
            if isinstance(other, str) and other in tensors and name not in tensors and name != "format"}  # fmt: skip


def _header(source: Source) -> tuple[TensorHeader, int]:
    """Return the header and the offset of the data."""
    if source.size < _LENGTH_BYTES:
        raise Fault("is too short for a safetensors file", COPY_AGAIN)
    length = int.from_bytes(source.read(0, _LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES or length > source.size - _LENGTH_BYTES:
        raise Fault(f"its header claims {length} bytes, more than the file can hold", COPY_AGAIN)
    return TensorHeader(source.view(_LENGTH_BYTES, length)), _LENGTH_BYTES + length


def _tensor(entry: HeaderEntry) -> TensorRef:
    """Convert one header entry to a tensor."""
    dtype = SAFETENSORS.get(entry.tag)
    if dtype is None:
        raise Fault(f"has dtype {entry.tag}, which is not read", _UNREAD.get(entry.tag, RESAVE), entry.name)
    try:
        ref = tensor_ref(StorageRef(entry.name, dtype, prod(entry.shape)), 0, entry.shape, row_major(entry.shape))
    except Fault as fault:
        fault.part = entry.name
        raise
    if entry.end - entry.begin != ref.nbytes:
        what = f"has {entry.end - entry.begin} bytes where its shape needs {ref.nbytes}"
        raise Fault(what, COPY_AGAIN, entry.name)
    return ref


def _check_tiling(spans: dict[str, Span], start: int, size: int) -> None:
    """Check that the sorted spans are consecutive from ``start`` to ``size``."""
    position = start
    # Also by length: an empty tensor at the same offset as another one precedes it and leaves no hole.
    for span in sorted(spans.values(), key=lambda span: (span.start, span.nbytes)):
        if span.start != position:
            fault = "overlaps the tensor before it" if span.start < position else "follows a hole in the data"
            raise Fault(fault, COPY_AGAIN, span.name)
        position += span.nbytes
    if position != size:
        raise Fault(f"holds {size - start} bytes of data where its header describes {position - start}", COPY_AGAIN)
