"""Make the tables of a schema's page: one for the document and one for every part, with a line for each field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from wdport.declared import NOT_READ
from wdport.schemas.schema import Schema

BEGIN: Final = "<!-- fields of {}: made by make schemas -->"
END: Final = "<!-- end of fields -->"

_WORDS: Final[Mapping[str, str]] = {
    "string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null",
    "object": "object", "array": "list",
}  # fmt: skip
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
    found = [_table(schema), *(f"### {_title(name)}\n\n{parts[name]['description']}\n\n{_table(parts[name])}"
                               for name in order)]  # fmt: skip
    return "\n".join(found)


def _met(value: object, parts: Mapping[str, Schema], seen: tuple[str, ...] = ()) -> Iterator[str]:
    """The parts that a schema refers to, each before the parts that it refers to."""
    if isinstance(value, dict):
        if (name := _part(value)) and name not in seen:
            yield name
            yield from _met(parts[name], parts, (*seen, name))
        for key, each in value.items():
            if key not in ("$defs", "examples"):
                yield from _met(each, parts, seen)
    elif isinstance(value, list):
        for each in value:
            yield from _met(each, parts, seen)


def _part(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).removeprefix("#/$defs/")


def _title(name: str) -> str:
    """Convert ``TensorRow`` to "Tensor row"."""
    words = re.sub(r"(Form|Facts|Entry|Document|Result|Report)$", "", name) or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", words).capitalize()


def _table(schema: Schema) -> str:
    rows = [f"| `{name}` | {_type(each)} | {'yes' if needed else ''} | {_cell(each.get('description', ''))} |"
            for name, each, needed in _rows(schema)]  # fmt: skip
    return "\n".join(["| field | value | required | meaning |", "|---|---|---|---|", *rows, ""])


def _rows(schema: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """The fields of an object, each followed by those of a nested object without its own table; without fields that are
    not read."""
    forms = [each for each in (schema, *schema.get("anyOf", ())) if _is_form(each)]
    needed = {name for each in forms for name in each.get("required", ())}
    for name in dict.fromkeys(name for each in forms for name in each["properties"]):
        found = [each["properties"][name] for each in forms if name in each["properties"]]
        inside = found[0] if all(each == found[0] for each in found) else _either(found)
        if not inside.get("description", "").startswith(NOT_READ):
            yield f"{before}{name}", inside, name in needed
            yield from _rows(inside, f"{before}{name}.") if "$ref" not in inside else ()


def _is_form(schema: Mapping[str, Any]) -> bool:
    """Whether this defines the fields of an object, and is not only a condition on them."""
    inside = list(schema.get("properties", {}).values())
    return bool(inside) and all(isinstance(each, dict) and "description" in each for each in inside)


def _either(found: Sequence[Schema]) -> Schema:
    """The alternatives of a field that several forms of an object share."""
    return {"anyOf": list(found), "description": " ".join(dict.fromkeys(each["description"] for each in found))}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a value, in words."""
    if name := _part(schema):
        return f"[{_title(name)}](#{_title(name).lower().replace(' ', '-')})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        values = [each if isinstance(each, str) else json.dumps(each) for each in schema["enum"]]
        return ", ".join(f"`{each}`" for each in values[:_SIMPLE]) + (" and others" if len(values) > _SIMPLE else "")
    if "anyOf" in schema and "properties" not in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "not" in schema and len(schema) == 1:
        return "anything else"
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])}: {', '.join(map(_type, schema['prefixItems']))}"
        return f"list of: {_type(schema['items'])}" if schema.get("items") else "list"
    if kind == "object" and schema.get("additionalProperties"):
        return f"object of: {_type(schema['additionalProperties'])}"
    return _WORDS.get(str(kind), "any value")
