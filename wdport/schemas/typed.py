"""Make a JSON Schema from types: a format is declared once, as typed dictionaries with documented fields.

The same declaration types the code that writes a format, gives readers the known names, and generates the published
schema and the tables of its page. For constraints that a type cannot express, :class:`wdport.declared.Also` adds
keywords to one field, and ``conditions`` to a whole dictionary. A field whose name is reserved in Python has a trailing
``_``.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from typing import is_typeddict as is_declared

Schema = dict[str, Any]
"""A schema as JSON values, in JSON Schema 2020-12."""

_PLAIN: Final[Mapping[object, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    object: {},
}


def schema_of(declared: object, conditions: Mapping[str, Schema], closed: bool) -> Schema:
    """The schema of a type, with one entry in ``$defs`` for every dictionary that it refers to.

    Args:
        declared: the type: a ``TypedDict``, or a type composed of them.
        conditions: by the name of a dictionary, constraints that its type cannot express.
        closed: whether a field that is not declared is an error.

    Raises:
        TypeError: a type has no counterpart in JSON, or a condition names no dictionary.
    """
    maker = _Maker(conditions, closed)
    root = maker.of(declared)
    if unused := set(conditions) - set(maker.found):
        raise TypeError(f"conditions of {', '.join(sorted(unused))}, which is not part of the format")
    if set(root) == {"$ref"}:
        root = maker.found.pop(root["$ref"].removeprefix("#/$defs/"))
    return {**root, **({"$defs": maker.found} if maker.found else {})}


class _Maker:
    """Makes the schemas of types; ``found`` are those of the referenced dictionaries."""

    def __init__(self, conditions: Mapping[str, Schema], closed: bool) -> None:
        self.conditions, self.closed = conditions, closed
        self.found: dict[str, Schema] = {}

    def of(self, hint: Any) -> Schema:
        origin, given = get_origin(hint), get_args(hint)
        if origin is None and hint in _PLAIN:
            return dict(_PLAIN[hint])
        if is_declared(hint):
            return self._reference(hint)
        if origin in (Required, NotRequired):
            return self.of(given[0])
        if origin is Annotated:
            return {**self.of(given[0]), **{key: value for each in given[1:] for key, value in each.items()}}
        if origin is Literal:
            return {"const": given[0]} if len(given) == 1 else {"enum": list(given)}
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(each) for each in given]}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.of(given[1])}
        if origin in (list, Sequence):
            return {"type": "array", "items": self.of(given[0])}
        if origin is tuple:
            size = len(given)
            return {"type": "array", "prefixItems": [self.of(each) for each in given], "items": False,
                    "minItems": size}  # fmt: skip
        raise TypeError(f"{hint!r} has no counterpart in JSON Schema")

    def _reference(self, declared: type) -> Schema:
        name = declared.__name__
        if name not in self.found:
            self.found[name] = {}  # a dictionary may hold others of its own kind
            self.found[name] = self._dictionary(declared)
        return {"$ref": f"#/$defs/{name}"}

    def _dictionary(self, declared: Any) -> Schema:
        hints = get_type_hints(declared, include_extras=True)
        fields = dict(_fields(declared))
        required = [key.rstrip("_") for key, field in fields.items() if _required(hints[key], field.total)]
        beside = dict(self.conditions.get(declared.__name__, {}))
        more = beside.pop("properties", {})
        return {
            "type": "object",
            "description": plain_words(inspect.getdoc(declared) or ""),
            "properties": {
                key.rstrip("_"): {"description": field.meaning, **self.of(hints[key]), **more.get(key, {})}
                for key, field in fields.items()
            },
            **({"required": required} if required else {}),
            **({"additionalProperties": False} if self.closed else {}),
            **beside,
        }


class _Field(NamedTuple):
    """A field's type and description, and whether its class requires fields by default."""

    meaning: str
    total: bool


def _required(hint: object, total: bool) -> bool:
    origin = get_origin(hint)
    return origin is Required or (total and origin is not NotRequired)


def _fields(declared: type) -> Iterator[tuple[str, _Field]]:
    """Every field of a class, those of its bases last; raises ``TypeError`` for one without a description."""
    module = sys.modules[declared.__module__]
    made = _classes(declared.__module__)[declared.__name__]
    total: bool = getattr(declared, "__total__")
    for field, below in zip(made.body, [*made.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = below.value if isinstance(below, ast.Expr) else None
            if not isinstance(said, ast.Constant) or not isinstance(said.value, str):
                raise TypeError(f"{declared.__name__}.{field.target.id} has no description")
            yield field.target.id, _Field(plain_words(said.value), total)
    for base in made.bases:
        if isinstance(base, ast.Name) and is_declared(found := getattr(module, base.id)):
            yield from _fields(found)


@cache
def _classes(module: str) -> Mapping[str, ast.ClassDef]:
    parsed = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: each for each in parsed.body if isinstance(each, ast.ClassDef)}


def plain_words(text: str) -> str:
    """A docstring as one paragraph of Markdown."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", re.sub(r"\s+", " ", text.strip())).replace("``", "`")
