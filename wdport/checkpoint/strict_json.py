"""Parse bytes to a JSON object without duplicate keys, NaN and infinity.

A document that would take many times its size in memory is refused before it is parsed.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final

from wdport.base.limits import MAX_DEPTH, MAX_JSON_MARKS
from wdport.checkpoint.faults import COPY_AGAIN, Fault


def strict_json(raw: bytes, part: str, finite: bool = True, marks: int = MAX_JSON_MARKS) -> dict[str, object]:
    """Parse the JSON object in ``raw``, which messages call ``part``; duplicate keys are refused in any object.

    ``finite=False`` accepts NaN and infinity, for a caller that reports where they are. ``marks`` is the maximum
    number of brackets, braces, commas and colons.
    """
    # Counting in C is cheap; json.loads would make objects of up to 230 bytes each before it could be stopped.
    if sum(map(raw.count, _MARKS)) > marks:
        raise Fault(f"the {part} has more than {marks} brackets, commas and colons", COPY_AGAIN)
    try:
        value = json.loads(raw.decode("utf-8"), **(_STRICT if finite else _UNIQUE))
    # json.loads recurses once per bracket, so deep nesting ends in RecursionError, not in ValueError.
    except (ValueError, RecursionError):
        raise Fault(f"the {part} is not valid JSON", COPY_AGAIN) from None
    if not isinstance(value, dict):
        raise Fault(f"the {part} is not a JSON object", COPY_AGAIN)
    return value


def strict_prefix(text: str) -> tuple[object, int]:
    """Return the JSON value at the start of ``text`` and its length; raises ``ValueError``."""
    try:
        return _DECODER.raw_decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def require_shallow(value: object, part: str) -> None:
    """Refuse a value that is nested too deeply to be traversed."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        tables = [node.values() if isinstance(node, dict) else node for node in level if isinstance(node, (dict, list))]
        level = [child for table in tables for child in table]
        if not level:
            return
    raise Fault(f"the {part} is nested more than {MAX_DEPTH} deep", COPY_AGAIN)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, value in pairs:
        if key in table:
            raise Fault(f"duplicate key {key!r} in its JSON", COPY_AGAIN)
        table[key] = value
    return table


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    # "1e999" is valid JSON, and float() returns infinity for it.
    if not isfinite(number):
        raise ValueError(text)
    return number


_MARKS: Final = (b"[", b"{", b",", b":")
_UNIQUE: Final[Any] = {"object_pairs_hook": _unique}
_STRICT: Final[Any] = {**_UNIQUE, "parse_constant": _no_constant, "parse_float": _finite}
_DECODER: Final = json.JSONDecoder(**_STRICT)
