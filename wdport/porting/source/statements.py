"""Statements of a call, and loops over them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wdport.porting.source.code import Code

NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
"""A whole number in a line of code."""


def equal_pieces(first: str, other: str, number: int) -> list[bool] | None:
    """Which pieces of a line, split at its numbers, are equal in another pass of a loop, if all others are 0 in the
    first pass and its ``number`` in the other; ``None`` if they are not."""
    pieces, others = NUMBER.split(first), NUMBER.split(other)
    fits = len(pieces) == len(others) and all(
        piece == one or (piece, one) == ("0", str(number)) for piece, one in zip(pieces, others, strict=True)
    )
    return [piece == one for piece, one in zip(pieces, others, strict=True)] if fits else None


@dataclass
class Statement:
    """``names = code``; without names, a return or the code alone."""

    names: tuple[str, ...]
    code: Code
    returns: bool = False
    unpacks: bool = False

    @property
    def parts(self) -> tuple[Any, ...]:
        if self.returns:
            return ("return ", *self.code.parts)
        if not self.names:
            return self.code.parts
        return (f"{', '.join(self.names)} = ", *self.code.parts)


@dataclass(frozen=True)
class Loop:
    """Statements that are repeated for the elements of lists: the name of an element by its list, and of its index, if
    that is needed; ``starts`` are the numbers of the first elements."""

    names: Mapping[str, str]
    times: int
    statements: Sequence[Statement]
    index: str = ""
    starts: Mapping[str, int] = field(default_factory=dict)

    def span(self, name: str, length: int | None) -> str:
        """The elements of a list of this length that it is over."""
        start = self.starts.get(name, 0)
        stop = start + self.times
        return name if length == self.times else f"{name}[{start or ''}:{'' if stop == length else stop}]"
