"""A value of a recording's index in; the same, of the type that a recorder gives it, out.

Python would take "false" for true, 0.5 for the seed 0 and true for the batch 1. Each of them raises :class:`TypeError`
or :class:`ValueError`.
"""

from __future__ import annotations

import re
import reprlib
from math import isfinite
from typing import Final

from wdport.errors import printable
from wdport.limits import MAX_RANK

LARGEST: Final = 1 << 48
"""Far above every size, seed and number of bytes."""

_SHA256: Final = re.compile("[0-9a-f]{64}")


def table(value: object) -> dict[str, object]:
    """Values by name."""
    if not isinstance(value, dict):
        raise TypeError(f"{_shown(value)} is no table")
    return value


def items(value: object, length: int | None = None) -> list[object]:
    """Several values, ``length`` if it is given."""
    if not isinstance(value, list) or length not in (None, len(value)):
        raise TypeError(f"{_shown(value)} is no list" + (f" of {length}" if length else ""))
    return value


def text(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{_shown(value)} is no text")
    return value


def texts(value: object) -> list[str]:
    """Several texts."""
    return [text(each) for each in items(value)]


def boolean(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{_shown(value)} is neither true nor false")
    return value


def count(value: object) -> int:
    """A whole number from 0."""
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise TypeError(f"{_shown(value)} is no whole number from 0")
    return value


def number(value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise TypeError(f"{_shown(value)} is no number")
    return float(value)


def pair(value: object) -> tuple[float, float]:
    """Two numbers that are not negative."""
    first, second = map(number, items(value, 2))
    if first < 0 or second < 0:
        raise ValueError(f"{_shown(value)} is negative")
    return first, second


def sha256(value: object) -> str | None:
    """A hash, or nothing."""
    if value is not None and not _SHA256.fullmatch(text(value)):
        raise ValueError(f"{_shown(value)} is no SHA-256")
    return value if isinstance(value, str) else None


def shape(value: object) -> tuple[int, ...]:
    """Sizes of axes."""
    sizes = tuple(map(count, items(value)))
    if len(sizes) > MAX_RANK:
        raise ValueError(f"a shape has {len(sizes)} axes")
    return sizes


def _shown(value: object) -> str:
    return printable(reprlib.repr(value), 40)
