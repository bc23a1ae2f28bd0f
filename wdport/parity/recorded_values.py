"""Check the type of a value in a recording's index, and return it as that type.

Python's conversions would turn "false" into true, 0.5 into the seed 0 and true into the batch 1. Here, each of them
raises :class:`TypeError` or :class:`ValueError`.
"""

from __future__ import annotations

import re
import reprlib
from math import isfinite
from typing import Final

from wdport.errors import printable
from wdport.limits import MAX_RANK

LARGEST: Final = 1 << 48
"""Greater than any size, seed or number of bytes."""

_SHA256: Final = re.compile("[0-9a-f]{64}")


def table(value: object) -> dict[str, object]:
    """A dictionary with string keys."""
    if not isinstance(value, dict):
        raise TypeError(f"{_shown(value)} is not an object")
    return value


def items(value: object, length: int | None = None) -> list[object]:
    """A list, of ``length`` items if given."""
    if not isinstance(value, list) or length not in (None, len(value)):
        raise TypeError(f"{_shown(value)} is not a list" + (f" of {length}" if length else ""))
    return value


def text(value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{_shown(value)} is not a string")
    return value


def texts(value: object) -> list[str]:
    """A list of strings."""
    return [text(element) for element in items(value)]


def boolean(value: object) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise TypeError(f"{_shown(value)} is not true or false")
    return value


def count(value: object) -> int:
    """A non-negative integer."""
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise TypeError(f"{_shown(value)} is not a non-negative integer")
    return value


def number(value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise TypeError(f"{_shown(value)} is not a number")
    return float(value)


def pair(value: object) -> tuple[float, float]:
    """Two non-negative numbers."""
    first, second = map(number, items(value, 2))
    if first < 0 or second < 0:
        raise ValueError(f"{_shown(value)} is negative")
    return first, second


def sha256(value: object) -> str | None:
    """A SHA-256 hash, or ``None``."""
    if value is not None and not _SHA256.fullmatch(text(value)):
        raise ValueError(f"{_shown(value)} is not a SHA-256")
    return value if isinstance(value, str) else None


def shape(value: object) -> tuple[int, ...]:
    """An array shape."""
    sizes = tuple(map(count, items(value)))
    if len(sizes) > MAX_RANK:
        raise ValueError(f"a shape has {len(sizes)} axes")
    return sizes


def _shown(value: object) -> str:
    return printable(reprlib.repr(value), 40)
