"""Messages between processes: a JSON object, and arrays as ``.npy`` files without pickles.

Nothing that a process sends can run code in the process that reads it.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

import numpy as np

from wdport.model import Array

_SIZE: Final = struct.Struct(">Q")
_MOST_FACTS: Final = 1 << 28
_MOST_ARRAYS: Final = 1 << 36
_KINDS: Final = "fiub"


class BrokenMessage(Exception):
    """What was read is not a message."""


@dataclass(frozen=True)
class Message:
    """JSON values by name, and arrays."""

    facts: Mapping[str, object] = field(default_factory=dict)
    arrays: tuple[Array, ...] = ()


def send(stream: IO[bytes], facts: Mapping[str, object], arrays: Sequence[Array] = ()) -> None:
    """Write one message."""
    files = [_packed(array) for array in arrays]
    text = json.dumps({"facts": facts, "sizes": [len(file) for file in files]}).encode()
    for chunk in (_SIZE.pack(len(text)), text, *files):
        stream.write(chunk)
    stream.flush()


def receive(stream: IO[bytes]) -> Message:
    """Read one message; raises :class:`BrokenMessage` if there is none, or it holds anything but numbers in arrays."""
    (length,) = _SIZE.unpack(_exactly(stream, _SIZE.size, _SIZE.size))
    try:
        head = json.loads(_exactly(stream, length, _MOST_FACTS))
        facts, sizes = dict(head["facts"]), [int(size) for size in head["sizes"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrokenMessage(f"a message that is not JSON ({type(error).__name__})") from None
    return Message(facts, tuple(_unpacked(_exactly(stream, size, _MOST_ARRAYS)) for size in sizes))


def _exactly(stream: IO[bytes], size: int, max_size: int) -> bytes:
    if not 0 <= size <= max_size:
        raise BrokenMessage(f"a message of {size} bytes")
    data = stream.read(size)
    if len(data) < size:
        raise BrokenMessage("no answer")
    return data


def _packed(array: Array) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def _unpacked(data: bytes) -> Array:
    file = io.BytesIO(data)
    try:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, TypeError, SyntaxError, EOFError, MemoryError, RecursionError) as error:
        raise BrokenMessage(f"an array that cannot be read ({type(error).__name__})") from None
    if array.dtype.kind not in _KINDS or file.read(1):
        raise BrokenMessage(f"an array of {array.dtype}")
    return array
