"""Make the tables of a schema's page: one for the document and one for every part, with a line for each field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from wdport.schemas.schema import Schema
from wdport.shared_types import NOT_READ

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
    words = re.sub(r"(Form|Facts|Entry|Document|Result|Report)$", "", name) or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", words).capitalize()


def _table(schema: Schema) -> str:
    rows = [f"| `{name}` | {_type(field)} | {'yes' if needed else ''} | {_cell(field.get('description', ''))} |"
            for name, field, needed in _rows(schema)]  # fmt: skip
    return "\n".join(["| field | value | required | meaning |", "|---|---|---|---|", *rows, ""])


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
    """The type of a value, in words."""
    if name := _part(schema):
        return f"[{_title(name)}](#{_title(name).lower().replace(' ', '-')})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        values = [choice if isinstance(choice, str) else json.dumps(choice) for choice in schema["enum"]]
        return ", ".join(f"`{value}`" for value in values[:_SIMPLE]) + (" and others" if len(values) > _SIMPLE else "")
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
