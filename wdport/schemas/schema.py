"""Make a JSON Schema of a declared type: a frozen dataclass or a typed dictionary whose annotations say everything.

msgspec makes the schema. What it does not know of is added here: fields that are always written although they have a
default, formats that allow no further fields, and constraints on several fields of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET, inspect
from msgspec.json import schema_components

from wdport.shared_types import NOT_FINITE

Schema = dict[str, Any]
"""A schema as JSON values, in JSON Schema 2020-12."""

ObjectType = inspect.DataclassType | inspect.StructType | inspect.TypedDictType

_ANY = "any value"


def schema_of(declared: object, conditions: Mapping[str, Schema], closed: bool) -> Schema:
    """The schema of a type, with one entry in ``$defs`` for every object that it refers to.

    Args:
        declared: a dataclass or a ``TypedDict``.
        conditions: by the name of an object's type, constraints that its fields cannot express.
        closed: whether a field that is not declared is an error.

    Raises:
        TypeError: a type has no counterpart in JSON, or a condition names no object.
    """
    (root,), parts = schema_components([declared], schema_hook=_any)
    objects = {info.cls.__name__: info for info in _objects(inspect.type_info(declared))}
    if unknown := set(conditions) - set(parts):
        raise TypeError(f"conditions of {', '.join(sorted(unknown))}, which is not part of the format")
    for name, part in parts.items():
        conditioned = dict(conditions.get(name, {}))
        properties = {key: _plain(part["properties"][key]) for key in _names(objects[name])}
        for key, more in conditioned.pop("properties", {}).items():
            properties[key] = {**properties[key], **more}
        optional = _optional(objects[name])
        required = [key for key in properties if key not in optional]
        parts[name] = {
            "type": "object",
            "description": plain_words(part.get("description", "")),
            "properties": properties,
            **({"required": required} if required else {}),
            **({"additionalProperties": False} if closed else {}),
            **conditioned,
        }
    root = parts.pop(root["$ref"].removeprefix("#/$defs/"))
    return {**root, **({"$defs": parts} if parts else {})}


def _any(kind: type) -> Schema:
    """The schema of ``object``, any JSON value."""
    if kind is not object:
        raise TypeError(f"{kind!r} has no counterpart in JSON Schema")
    return {"title": _ANY}  # not empty, which msgspec would refuse


def _objects(info: object) -> Iterator[ObjectType]:
    """The types of all objects within a type."""
    visited = set[type]()
    waiting = [info]
    while waiting:
        current: Any = waiting.pop()
        if isinstance(current, ObjectType):
            if current.cls in visited:
                continue
            visited.add(current.cls)
            yield current
            waiting += [field.type for field in current.fields]
        waiting += [getattr(current, name) for name in ("type", "item_type", "value_type") if hasattr(current, name)]
        waiting += [*getattr(current, "types", ()), *getattr(current, "item_types", ())]


def _names(info: ObjectType) -> list[str]:
    """The fields in the order of the declaration; msgspec sorts those of a ``TypedDict``."""
    if isinstance(info, inspect.TypedDictType):
        return list(info.cls.__annotations__)
    return [field.encode_name for field in info.fields]


def _optional(info: ObjectType) -> set[str]:
    """The fields that may be absent: those of a ``TypedDict`` that are not required, and those that are ``UNSET``; a
    field with another default is written."""
    if isinstance(info, inspect.TypedDictType):
        return {field.encode_name for field in info.fields if not field.required}
    return {field.encode_name for field in info.fields if getattr(info.cls, field.name, None) is UNSET}


def _plain(schema: Any) -> Any:
    """A schema of msgspec without titles and defaults, and with a ``const`` for a single choice."""
    if isinstance(schema, list):
        return [_plain(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get(NOT_FINITE):
        rest = {key: value for key, value in schema.items() if key not in (NOT_FINITE, "type")}
        return {**_plain(rest), "anyOf": [{"type": schema["type"]}, {"enum": ["inf", "-inf", "nan"]}]}
    if "anyOf" in schema:  # a number within a union is a union itself
        options = [
            option for alternative in _plain(schema["anyOf"]) for option in alternative.get("anyOf", [alternative])
        ]
        return {**_plain({key: value for key, value in schema.items() if key != "anyOf"}), "anyOf": options}
    if len(schema.get("enum", ())) == 1:
        return {**_plain({key: value for key, value in schema.items() if key != "enum"}), "const": schema["enum"][0]}
    return {key: _plain(value) for key, value in schema.items() if key not in ("title", "default")}


def plain_words(text: str) -> str:
    """A docstring as one paragraph of Markdown."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", re.sub(r"\s+", " ", text.strip())).replace("``", "`")
