"""The rotary positions of a ``config.json``, in the library's old and new spelling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wdport.errors import MisfitError
from wdport.families.library_config import FIX, quoted
from wdport.families.masked_lm.config import Config
from wdport.fields import fields_of
from wdport.model import Document

ROPE: Final = ("rope_parameters", "rope_scaling")
"""The rotary positions in new and in old files; old ones have a separate ``rope_theta``."""

FACTOR: Final = "partial_rotary_factor"


def rotary(document: Document, where: str | Path) -> dict[str, object]:
    """``rope_theta`` if the document states it; raises :class:`MisfitError` for other kinds of rotary positions.

    ``rope_scaling`` precedes ``rope_parameters``, and what is in them the field beside them, as in the library.
    """
    name = next((name for name in reversed(ROPE) if document.get(name)), "")
    rope = document.get(name) if name else {}
    if not isinstance(rope, Mapping):
        raise MisfitError(where, f"{name} is not a table of values or null", FIX)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise MisfitError(
            where, f"{name} has the type {quoted(kind)}", "rotary positions of type default are supported"
        )
    factor = rope.get(FACTOR, document.get(FACTOR))
    if factor is not None and (type(factor) not in (int, float) or factor != 1):
        raise MisfitError(where, f"{FACTOR} is {quoted(factor)}", "1 is supported: heads that are turned as a whole")
    if unknown := sorted(str(key) for key in set(rope) - {"rope_theta", "rope_type", "type", FACTOR}):
        fix = "rope_theta and the type default are supported"
        raise MisfitError(where, f"{name} has {quoted(unknown[0])}, which is not supported", fix, unknown)
    return {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}


def rotary_schema() -> dict[str, object]:
    """JSON Schema of the fields of rotary positions, except ``rope_theta``."""
    theta = {**fields_of(Config)["rope_theta"].schema(), "description": "Base of the frequencies."}
    factor = {"description": "Share of a head that is turned.", "enum": [1, None]}
    kind = {"description": "Kind of rotary positions.", "const": "default"}
    table = {
        "type": "object",
        "properties": {"rope_theta": theta, "rope_type": kind, "type": kind, FACTOR: factor},
        "additionalProperties": False,
    }
    either = {"anyOf": [table, {"type": "null"}]}
    return {
        ROPE[0]: {"description": "Rotary positions.", **either},
        ROPE[1]: {"description": "The same in old files, with rope_theta beside it.", **either},
        FACTOR: factor,
    }
