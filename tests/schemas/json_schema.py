"""Make a JSON Schema of a declared type, a frozen dataclass or a typed dictionary whose annotations say everything,
and the tables of its page.

msgspec makes the schema. What it does not know of is added here: fields that are always written although they have a
default, formats that allow no further fields, and constraints on several fields of an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, inspect
from msgspec.json import schema_components

from wdport.base.shared_types import NOT_FINITE, NOT_READ

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


BEGIN: Final = "<!-- fields of {}: made by make schemas -->"
END: Final = "<!-- end of fields -->"

_TYPES: Final = ("string", "integer", "number", "boolean", "null", "object", "array")
_TITLES: Final[Mapping[str, str]] = {"PartWords": "Names for parts", "SelftestResult": "Self-test result"}
"""Headings of objects whose type has another name."""
_SIMPLE: Final = 6
"""Maximum number of choices that are shown."""


def filled(page: str, name: str, schema: Schema) -> str:
    """Fill the tables of ``schema`` between the two markers of a page; raises ``ValueError`` if it has none."""
    begin = BEGIN.format(name)
    before, mark, rest = page.partition(f"{begin}\n")
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"no {begin} and {END}")
    return f"{before}{mark}\n{tables(schema)}\n{end}{after}"


def tables(schema: Schema) -> str:
    """The tables of a schema in Markdown: the document itself, then its parts in order of first reference."""
    parts = schema.get("$defs", {})
    order = list(dict.fromkeys(_met(schema, parts)))
    sections = [_table(schema), *(f"### {_title(name)}\n\n{parts[name]['description']}\n\n{_table(parts[name])}"
                                  for name in order)]  # fmt: skip
    return "\n".join(sections)


def _met(value: object, parts: Mapping[str, Schema], visited: tuple[str, ...] = ()) -> Iterator[str]:
    """The parts that a schema refers to, each before the parts that it refers to."""
    if isinstance(value, dict):
        if (name := _part(value)) and name not in visited:
            yield name
            yield from _met(parts[name], parts, (*visited, name))
        for key, element in value.items():
            if key not in ("$defs", "examples"):
                yield from _met(element, parts, visited)
    elif isinstance(value, list):
        for element in value:
            yield from _met(element, parts, visited)


def _part(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).removeprefix("#/$defs/")


def _title(name: str) -> str:
    """Convert ``TensorRow`` to "Tensor row"."""
    if name in _TITLES:
        return _TITLES[name]
    words = re.sub(r"(Form|Facts|Entry|Document|Result|Report)$", "", name) or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", words).capitalize()


def _table(schema: Schema) -> str:
    rows = [f"| `{name}` | {_type(field)} | {'yes' if needed else ''} | {_cell(field.get('description', ''))} |"
            for name, field, needed in _rows(schema)]  # fmt: skip
    return "\n".join(["| field | type | required | meaning |", "|---|---|---|---|", *rows, ""])


def _rows(schema: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """The fields of an object, each followed by those of a nested object without its own table; without fields that are
    not read."""
    forms = [form for form in (schema, *schema.get("anyOf", ())) if _is_form(form)]
    needed = {name for form in forms for name in form.get("required", ())}
    for name in dict.fromkeys(name for form in forms for name in form["properties"]):
        alternatives = [form["properties"][name] for form in forms if name in form["properties"]]
        same = all(alternative == alternatives[0] for alternative in alternatives)
        inside = alternatives[0] if same else _either(alternatives)
        if not inside.get("description", "").startswith(NOT_READ):
            yield f"{before}{name}", inside, name in needed
            yield from _rows(inside, f"{before}{name}.") if "$ref" not in inside else ()


def _is_form(schema: Mapping[str, Any]) -> bool:
    """Whether this defines the fields of an object, and is not only a condition on them."""
    inside = list(schema.get("properties", {}).values())
    return bool(inside) and all(isinstance(field, dict) and "description" in field for field in inside)


def _either(alternatives: Sequence[Schema]) -> Schema:
    """The alternatives of a field that several forms of an object share."""
    descriptions = dict.fromkeys(alternative["description"] for alternative in alternatives)
    return {"anyOf": list(alternatives), "description": " ".join(descriptions)}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a value, under the names of JSON Schema, such as "array of strings"."""
    if name := _part(schema):
        return f"[{_title(name)}](#{_title(name).lower().replace(' ', '-')})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        shown = ", ".join(map(_choice, schema["enum"][:_SIMPLE]))
        return shown + (" and others" if len(schema["enum"]) > _SIMPLE else "")
    if "anyOf" in schema and "properties" not in schema:
        common = {key: schema[key] for key in ("type",) if key in schema}
        return _one_of(list(dict.fromkeys(word for option in schema["anyOf"] for word in _choices(common | option))))
    if "not" in schema and len(schema) == 1:
        return "anything else"
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            elements = schema["prefixItems"]
            if all(element == elements[0] for element in elements):
                return f"array of {len(elements)} {_elements(elements[0], 'values ')}"
            return f"array of {len(elements)} values: {', '.join(map(_grouped, elements))}"
        return f"array of {_elements(schema['items'])}" if schema.get("items") else "array"
    if kind == "object" and schema.get("additionalProperties"):
        return f"object of {_elements(schema['additionalProperties'])}"
    return kind if kind in _TYPES else _ANY


def _elements(schema: Mapping[str, Any], noun: str = "") -> str:
    """The type of the elements of an array or an object: in the plural, or in parentheses after ``noun``."""
    word = _type(schema)
    if (grouped := _grouped(schema)) != word:
        return f"{noun}{grouped}"
    first, blank, rest = word.partition(" ")
    return f"{first}s{blank}{rest}" if first in _TYPES else word


def _grouped(schema: Mapping[str, Any]) -> str:
    """The type of a value, in parentheses if it has alternatives or lists the types of its elements."""
    word = _type(schema)
    return f"({word})" if len(schema.get("anyOf", schema.get("enum", ()))) > 1 or ":" in word else word


def _choice(value: object) -> str:
    """A value that a field may have; a string is quoted only if it is empty."""
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _choices(schema: Schema) -> list[str]:
    """The type of a value, or each of a few values that it may have."""
    few = len(schema.get("enum", ())) <= _SIMPLE
    return list(map(_choice, schema["enum"])) if "enum" in schema and few else [_type(schema)]


def _one_of(words: Sequence[str]) -> str:
    """These words with commas and "or"; without commas if one of them has a comma."""
    if len(words) == 1 or any("," in word for word in words):
        return " or ".join(words)
    return f"{', '.join(words[:-1])} or {words[-1]}"
