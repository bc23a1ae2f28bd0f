"""Messages between processes: a JSON object, dataclasses as JSON values, and arrays as ``.npy`` files without
pickles.

Nothing that a process sends can run code in the process that reads it.

Dataclasses are read by the declared types of their fields, so that nothing in them is more than data.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import IO, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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
    # The size is checked first: a process could announce more memory than there is.
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
    # Object arrays need pickle, which could run code, and bytes after the array belong to nothing.
    if array.dtype.kind not in _KINDS or file.read(1):
        raise BrokenMessage(f"an array of {array.dtype}")
    return array


Record = TypeVar("Record")


def to_json(value: object) -> object:
    """JSON values of a dataclass and everything in it; what has no counterpart becomes text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def from_json(kind: type[Record], value: object) -> Record:
    """The dataclass of this ``kind``; raises ``TypeError`` or ``ValueError`` if the JSON values are none."""
    read: Record = _read(kind, value)
    return read


def _read(kind: Any, value: Any) -> Any:
    """``value`` as the type ``kind``; raises ``TypeError`` or ``ValueError``."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is object or kind is Any:
        return value
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _types(kind)
        if not isinstance(value, Mapping) or set(value) - set(hints):
            raise TypeError(f"no {kind.__name__}")
        return kind(**{name: _read(hints[name], item) for name, item in value.items()})
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"no {kind}")
        return value
    if origin in (Union, UnionType):
        options = [member for member in arguments if (member is NoneType) == (value is None)]
        return _read(options[0], value) if options and value is not None else None
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise TypeError(f"no {kind}")
        return {str(name): _read(arguments[1], item) for name, item in value.items()}
    if origin is tuple:
        return _tuple(arguments, value)
    # A whole number may be written for a float. True is not an int here, since its exact type is compared.
    if type(value) is int and kind is float:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} where {getattr(kind, '__name__', kind)} is expected")
    return value


def _tuple(arguments: Sequence[Any], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise TypeError("no list")
    if arguments[1:] == (...,):
        return tuple(_read(arguments[0], item) for item in value)
    return tuple(_read(kind, item) for kind, item in zip(arguments, value, strict=True))


@cache
def _types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}
