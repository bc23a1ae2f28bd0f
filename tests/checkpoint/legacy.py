"""Builders of files as torch wrote them before 1.6, good and bad, from parts."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence

import torch

from .forge import FALSE, PERSID, SIX_FLOATS, TRUE, name, number, pickled, table, tensor, text, tuple_of

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
PROTOCOL = b"\x80\x02M\xe9\x03."
SIZES = table({"short": number(2), "int": number(4), "long": number(4)})


def system(little: bool = True) -> bytes:
    flag = TRUE if little else FALSE
    return pickled(table({"protocol_version": number(1001), "little_endian": flag, "type_sizes": SIZES}))


def stored(key: str = "0", count: int = 6, cls: str = "FloatStorage", view: bytes = b"N", where: str = "cpu") -> bytes:
    """The persistent id of a storage, with its sixth element."""
    parts = (text("storage"), name("torch", cls), text(key), text(where), number(count), view)
    return tuple_of(*parts) + PERSID


GOOD_PICKLE = pickled(table({"w": tensor(source=stored())}))


def keys_of(keys: Sequence[str]) -> bytes:
    return pickled(b"](" + b"".join(map(text, keys)) + b"e")


def legacy(
    pickle: bytes = GOOD_PICKLE,
    storages: Mapping[str, tuple[int, bytes]] | None = None,
    *,
    head: bytes = MAGIC + PROTOCOL + system(),
    keys: bytes | None = None,
) -> bytes:
    """The bytes of a file with that object; ``storages`` are counts and bytes by key."""
    data = {"0": (6, SIX_FLOATS)} if storages is None else storages
    tail = b"".join(struct.pack("<q", count) + raw for count, raw in data.values())
    return head + pickle + (keys_of(list(data)) if keys is None else keys) + tail


def saved(content: object) -> bytes:
    """``content`` as torch writes it when asked for the old format."""
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()
