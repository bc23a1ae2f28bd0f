"""Annotations that a declared format adds to Python types: keywords of JSON Schema.

A format is a ``TypedDict`` beside the code that reads or writes it, with a description below every field.
:mod:`wdport.schemas` generates the published schemas from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal


class Also(dict[str, Any]):
    """Keywords of JSON Schema in addition to a type: ``Annotated[str, Also(minLength=1)]``."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # types that hold it have to be hashable


NOT_READ: Final = "Not read"
"""Prefix of the description of a field that is allowed and ignored."""

Text = Annotated[str, Also(pattern=r"\S")]
"""A text with at least one non-blank character."""

Count = Annotated[int, Also(minimum=0)]
"""An integer of at least 0."""

Positive = Annotated[int, Also(minimum=1)]
"""An integer of at least 1."""

Sha256 = Annotated[str, Also(pattern="^[0-9a-f]{64}$")]
"""64 hexadecimal digits."""

Number = float | Literal["inf", "-inf", "nan"]
"""A number; one that is not finite is text, since JSON has none."""


def given(name: str, value: object = True) -> dict[str, object]:
    """Return the schema of objects that have the field ``name`` with a value that matches ``value``."""
    return {"type": "object", "required": [name], "properties": {name: value}}
