"""Constraints of a mapping table that its types cannot express: names of kinds and rules, and fields that go
together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from wdport.declared import given
from wdport.mapping.axes import Combine
from wdport.mapping.catalog import RULES
from wdport.mapping.form import Axes, Rows
from wdport.mapping.kinds import KINDS
from wdport.mapping.kinds.activations import ROW_NAMES
from wdport.mapping.kinds.kind import Kind
from wdport.schemas.schema import Schema

_ARROW: Schema = {"pattern": get_args(Axes)[1].pattern, "examples": get_args(Axes)[1].examples}
_ROWS = tuple(Rows.__annotations__)
_ABSENT: Any = False
"""The schema that no value satisfies: a property with it must be absent."""


def _with(name: str, then: Schema) -> Schema:
    """Require ``then`` if the field ``name`` is given."""
    return {"if": given(name), "then": then}


def _one(name: str, *others: str) -> Schema:
    """Require the field ``name`` and none of the others."""
    return {**given(name), "properties": {name: True, **dict.fromkeys(others, _ABSENT)}}


def _kind(kind: Kind) -> Schema:
    """The fields that a row of this kind may have."""
    names: Schema = {"type": "object", "propertyNames": {"enum": list(kind.names)}} if kind.names else _ABSENT
    return {
        "if": given("kind", {"const": kind.name}),
        "then": {"properties": {"names": names, "formerly": names, **({} if kind.flattens else {"flatten": _ABSENT})}},
    }


_LAYER: Schema = {
    "properties": {
        "kind": {"enum": list(KINDS)},
        "then": {"enum": list(ROW_NAMES)},
        "flatten": {"not": {"pattern": r"\[|\.\.\."}},
        "axes": {"not": {"pattern": r"\["}},
    },
    "dependentRequired": {"names": ["kind"], "formerly": ["kind"], "flatten": ["kind"]},
    "allOf": [_kind(kind) for kind in KINDS.values()],
}

_TENSOR: Schema = {
    "properties": {
        "rule": {"anyOf": [{"enum": list(RULES)}, dict(_ARROW)]},
        "combine": {"enum": [name for name in get_args(Combine) if name]},
    },
    "dependentRequired": {"keras": ["rule"], "rule": ["keras"]},
    "allOf": [
        {
            "oneOf": [
                _one("keras", "drop"),
                _one("check", "keras", "drop"),
                _one("drop", "keras", "check"),
            ]
        },
        _with("combine", {"properties": {"torch": {"type": "array", "minItems": 2}}}),
        {
            "if": given("combine", {"const": "weight_norm"}),
            "then": {"properties": {"torch": {"type": "array", "maxItems": 2}}},
        },
        *(_with(name, {"properties": {"torch": {"anyOf": [{"type": "string"}, {"type": "array", "maxItems": 1}]}}})
          for name in ("check", "drop")),
    ]
}  # fmt: skip

_WITHOUT_WHEN: Schema = {"type": "object", "properties": {"when": _ABSENT}}

_SECTION: Schema = {
    "anyOf": [given(name) for name in _ROWS],
    **_with("when", {"properties": {name: {"type": "array", "items": _WITHOUT_WHEN} for name in _ROWS}}),
}

CONDITIONS: Mapping[str, Schema] = {
    "LayerRow": _LAYER,
    "TensorRow": _TENSOR,
    "SectionForm": _SECTION,
    "TableForm": {
        "anyOf": [
            *(given(name) for name in (*_ROWS, "sections")),
            given("include", {"type": "array", "minItems": 1}),
        ]
    },
}
"""Conditions by dictionary of :mod:`wdport.mapping.form`."""
