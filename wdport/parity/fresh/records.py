"""Dataclasses as JSON values and back: how processes hand over a pair and a verdict.

They are read by the declared types of their fields, so that nothing in them is more than data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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
    if type(value) is int and kind is float:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} where {getattr(kind, '__name__', kind)} is due")
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
