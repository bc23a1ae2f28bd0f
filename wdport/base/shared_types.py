"""Types that several published formats share, and the supported dtype policies, under Keras's names.

A format is declared once, next to the code that reads or writes it: a frozen dataclass for a result, a ``TypedDict``
for a file that is read. Descriptions and constraints are in ``Annotated[..., msgspec.Meta(...)]``, from which
``tests/schemas`` makes the published schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

NOT_FINITE: Final = "not finite"
"""Mark of a number that may be a string in the JSON."""

NOT_READ: Final = "Not read"
"""Prefix of the description of a field that is allowed and ignored."""

Text = Annotated[str, Meta(pattern=r"\S")]
"""A text with at least one non-blank character."""

Count = Annotated[int, Meta(ge=0)]
"""An integer of at least 0."""

JsonShape = Sequence[Count]
"""Sizes of the axes, in order; empty for a scalar."""

Positive = Annotated[int, Meta(ge=1)]
"""An integer of at least 1."""

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
"""64 hexadecimal digits."""

Number = Annotated[float, Meta(extra_json_schema={NOT_FINITE: True})]
"""A number; one that is not finite is the string ``inf``, ``-inf`` or ``nan``, since JSON has none."""


def about(description: str) -> Meta:
    """The description of a field."""
    return Meta(description=description)


def given(name: str, value: object = True) -> dict[str, object]:
    """Return the schema of objects that have the field ``name`` with a value that matches ``value``."""
    return {"type": "object", "required": [name], "properties": {name: value}}


POLICIES = {
    "float32": ("float32", "float32"),
    "mixed_bfloat16": ("bfloat16", "float32"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "float64": ("float64", "float64"),
}
"""The compute dtype and the dtype of the weights."""
