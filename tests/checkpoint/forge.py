"""Builders of small checkpoints, good and bad, from parts: pickle opcodes, zip members, whole files."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT.parent / "shared" / "golden"

# Pickle -----------------------------------------------------------------------------------------------

MARK, STOP, TUPLE, REDUCE, BUILD, PERSID = b"(", b".", b"t", b"R", b"b", b"Q"
DICT, LIST, EMPTY, SETITEM, SETITEMS, APPEND, APPENDS = b"}", b"]", b")", b"s", b"u", b"a", b"e"
NONE, TRUE, FALSE = b"N", b"\x88", b"\x89"


def pickled(*parts: bytes) -> bytes:
    return b"\x80\x02" + b"".join(parts) + STOP


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def tuple_of(*parts: bytes) -> bytes:
    return MARK + b"".join(parts) + TUPLE


def name(module: str, attribute: str) -> bytes:
    return b"c" + f"{module}\n{attribute}\n".encode()


ORDERED = name("collections", "OrderedDict") + EMPTY + REDUCE
REBUILD = name("torch._utils", "_rebuild_tensor_v2")


def storage(
    key: str = "0", count: int = 6, cls: str = "FloatStorage", tag: str = "storage", where: str = "cpu"
) -> bytes:
    return tuple_of(text(tag), name("torch", cls), text(key), text(where), number(count)) + PERSID


def tensor(
    shape: Iterable[int] = (2, 3),
    strides: Iterable[int] = (3, 1),
    offset: int = 0,
    source: bytes = b"",
    hooks: bytes = ORDERED,
    grad: bytes = FALSE,
) -> bytes:
    sizes, steps = (tuple_of(*map(number, values)) for values in (shape, strides))
    return REBUILD + tuple_of(source or storage(), number(offset), sizes, steps, grad, hooks) + REDUCE


def table(entries: Mapping[str, bytes]) -> bytes:
    return DICT + MARK + b"".join(text(key) + value for key, value in entries.items()) + SETITEMS


GOOD_PICKLE = pickled(table({"w": tensor()}))
SIX_FLOATS = struct.pack("<6f", *range(6))

# Zip --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """One zip member; what is None is filled in truthfully."""

    name: str
    data: bytes
    method: int = 0
    flags: int = 0
    crc: int | None = None
    size: int | None = None
    packed: int | None = None
    local_name: str | None = None
    local_crc: int | None = None
    local_method: int | None = None
    descriptor: bytes = b""
    gap: bytes = b""
    shift: int = 0
    """Added to the offset that the directory gives."""
    comment: bytes = b""


def write_zip(members: Iterable[Member], *, before: bytes = b"", after: bytes = b"", count: int = 0) -> bytes:
    body, directory, total = before, b"", 0
    for member in members:
        total += 1
        crc = zlib.crc32(member.data) if member.crc is None else member.crc
        size = len(member.data) if member.size is None else member.size
        packed = size if member.packed is None else member.packed
        offset = len(body) + member.shift
        raw = member.name.encode()
        local = (member.local_name or member.name).encode()
        local_crc = crc if member.local_crc is None else member.local_crc
        method = member.method if member.local_method is None else member.local_method
        body += struct.pack(
            "<4s5H3L2H", b"PK\3\4", 0, member.flags, method, 0, 0, local_crc, packed, size, len(local), 0
        )
        body += local + member.data + member.descriptor + member.gap
        directory += struct.pack("<4s6H3L", b"PK\1\2", 0, 0, member.flags, member.method, 0, 0, crc, packed, size)
        directory += struct.pack("<5H2L", len(raw), 0, len(member.comment), 0, 0, 0, offset) + raw + member.comment
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count or total, count or total, len(directory), len(body), 0)
    return body + directory + end + after


def members(
    pickle: bytes = GOOD_PICKLE, storages: Mapping[str, bytes] | None = None, **records: bytes
) -> dict[str, Member]:
    data = {"0": SIX_FLOATS} if storages is None else storages
    contents = {"data.pkl": pickle, "byteorder": b"little", **records}
    contents |= {f"data/{key}": value for key, value in data.items()} | {"version": b"3\n"}
    return {key: Member(f"archive/{key}", value) for key, value in contents.items()}


def archive(pickle: bytes = GOOD_PICKLE, storages: Mapping[str, bytes] | None = None, **records: bytes) -> bytes:
    """The bytes of a checkpoint with that data.pkl."""
    return write_zip(members(pickle, storages, **records).values())


def altered(key: str, **changes: object) -> bytes:
    """A good checkpoint but for one member's fields."""
    parts = members()
    parts[key] = replace(parts[key], **changes)  # type: ignore[arg-type]
    return write_zip(parts.values())


# tar --------------------------------------------------------------------------------------------------

TarMember = tuple[tarfile.TarInfo, bytes]


def in_tar(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, **fields: Any) -> TarMember:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tarred(*members: TarMember) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as opened:
        for info, data in members:
            opened.addfile(info, io.BytesIO(data))
    return made.getvalue()


# safetensors ------------------------------------------------------------------------------------------


def safetensors(header: object, data: bytes = SIX_FLOATS, length: int | None = None) -> bytes:
    """``header`` is bytes as they are, or an object to be written as JSON."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: object = "F32", shape: object = (2, 3), offsets: object = (0, 24)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}
