"""Name patterns: text such as ``blocks.<block>.mlp.0.weight``, matched whole against tensor names; and whether two
patterns overlap.

``<index>`` matches one decimal integer, ``<index+1>`` that integer plus one; everything else is literal. A pattern
matches names (:meth:`NamePattern.match`) and formats them (:meth:`NamePattern.format`).

Both patterns are treated as finite automata over characters and traversed in parallel, which finds that ``conv1<n>``
and ``conv<n>`` both match ``conv10``. Numbers may have any length here; patterns match at most nine digits.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

_PIECE = re.compile(r"<([a-z_]+)([+-][0-9]{1,9})?>")


class PatternError(ValueError):
    """An invalid pattern, or indices for which it has no name."""


@dataclass(frozen=True)
class NamePattern:
    """A name with named integer indices."""

    text: str

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """The names of the indices, in order of appearance."""
        return tuple(piece[1] for piece in _PIECE.finditer(self.text))

    @cached_property
    def pieces(self) -> tuple[str | int, ...]:
        """Literal texts, and for every index its least allowed number, in the order of the name."""
        parts = _PIECE.split(self.text)  # text, index, offset, text, ...
        return tuple(max(0, int(p or 0)) if i % 3 == 2 else p for i, p in enumerate(parts) if i % 3 != 1)

    @cached_property
    def _offsets(self) -> dict[str, int]:
        return {piece[1]: int(piece[2] or 0) for piece in _PIECE.finditer(self.text)}

    @cached_property
    def _matcher(self) -> re.Pattern[str]:
        pieces = _PIECE.split(self.text)  # text, index, offset, text, ...
        parts = [
            re.escape(p) if i % 3 == 0 else f"(?P<{p}>0|[1-9][0-9]{{0,8}})" for i, p in enumerate(pieces) if i % 3 < 2
        ]
        return re.compile("".join(parts), re.ASCII)

    def match(self, name: str) -> dict[str, int] | None:
        """Return the indices of ``name``, or ``None`` if the pattern does not match the whole name."""
        full_match = self._matcher.fullmatch(name)
        if full_match is None:
            return None
        indices = {index: int(number) - self._offsets[index] for index, number in full_match.groupdict().items()}
        # `<n+1>` matches a number that is n plus one, so the number 0 stands for no index.
        return None if any(number < 0 for number in indices.values()) else indices

    def format(self, indices: Mapping[str, int]) -> str:
        """Return the name with these indices; raises :class:`PatternError` if an offset makes one negative."""
        for index, offset in self._offsets.items():
            if indices[index] + offset < 0:
                raise PatternError(
                    f"{self.text} has no name for {index} = {indices[index]}, which gives a number below 0"
                )
        return _PIECE.sub(lambda piece: str(indices[piece[1]] + int(piece[2] or 0)), self.text)


_NUMBERS = re.compile(r"(?:<[a-z_]+(?:[+-][0-9]{1,9})?>|[0-9])+")


def alike(text: str) -> str:
    """Return a key that a pattern shares with every name that it matches: numbers and indices are replaced by one
    symbol."""
    return _NUMBERS.sub("#", text)


class PatternIndex:
    """An index of many patterns, to find those that match a name; only patterns equal except for numbers are tried."""

    def __init__(self, patterns: Iterable[NamePattern]) -> None:
        self._alike: dict[str, list[tuple[int, NamePattern]]] = {}
        for position, pattern in enumerate(patterns):
            self._alike.setdefault(alike(pattern.text), []).append((position, pattern))

    def find(self, name: str) -> list[tuple[int, dict[str, int]]]:
        """Return position and indices of every pattern that matches ``name``."""
        near = self._alike.get(alike(name), ())
        return [(position, indices) for position, pattern in near if (indices := pattern.match(name)) is not None]


def parse_pattern(text: str) -> NamePattern:
    """Parse a pattern; raises :class:`PatternError` with the reason."""
    rest = _PIECE.sub("", text)
    if not text or text != text.strip():
        raise PatternError("a name is empty or has leading or trailing blanks")
    if "<" in rest or ">" in rest:
        raise PatternError(f"{text!r} has a bracket that is not an <index>")
    if "*" in rest or "?" in rest:
        raise PatternError(f"{text!r} has a wildcard; only <index> is allowed")
    pattern = NamePattern(text)
    if len(set(pattern.indices)) != len(pattern.indices):
        raise PatternError(f"{text!r} has a duplicate index")
    # In `<a><b>` or `<a>1<b>` a name such as 111 could be divided in several ways.
    if any(not piece.strip("0123456789") for piece in _PIECE.split(text)[3:-3:3]):
        raise PatternError(f"{text!r} has two indices with only digits between them")
    return pattern


_DIGITS = "0123456789"

States = frozenset[int]


@dataclass(frozen=True)
class Overlap:
    """The shortest names that match both patterns, only the first and only the second; ``None`` if there is none."""

    both: str | None
    first: str | None
    second: str | None


def overlap(first: NamePattern, second: NamePattern) -> Overlap:
    """Compare two patterns, name by name."""
    left, right = _automaton(first), _automaton(second)
    start = (frozenset({0}), frozenset({0}))
    visited, queue = {start}, deque([("", *start)])
    both, ours, theirs = None, None, None
    while queue:
        name, a, b = queue.popleft()
        ends = left.end in a, right.end in b
        both = name if both is None and all(ends) else both
        ours = name if ours is None and ends == (True, False) else ours
        theirs = name if theirs is None and ends == (False, True) else theirs
        # Breadth first and in order: the first name that is found is a shortest one, and the same in every run.
        for letter in sorted(left.letters(a) | right.letters(b)):
            after = left.step(a, letter), right.step(b, letter)
            if after not in visited:
                visited.add(after)
                queue.append((name + letter, *after))
    return Overlap(both, ours, theirs)


@dataclass(frozen=True)
class _Automaton:
    """Transitions by state: letters and the next state; the last state accepts a whole name."""

    arrows: dict[int, list[tuple[str, int]]]
    end: int

    def letters(self, states: States) -> set[str]:
        return {letter for state in states for letters, _ in self.arrows.get(state, ()) for letter in letters}

    def step(self, states: States, letter: str) -> States:
        return frozenset(to for state in states for letters, to in self.arrows.get(state, ()) if letter in letters)


@lru_cache(1024)
def _automaton(pattern: NamePattern) -> _Automaton:
    arrows: dict[int, list[tuple[str, int]]] = {}
    start, last = 0, 0
    for piece in pattern.pieces:
        if piece == "":
            continue
        end = last = last + 1
        for way in [piece] if isinstance(piece, str) else _numbers(piece):
            state = start
            for letters in way[:-1]:
                last += 1
                arrows.setdefault(state, []).append((letters, last))
                state = last
            arrows.setdefault(state, []).append((way[-1], end))
        if not isinstance(piece, str):
            last += 1  # numbers with more digits than the least one: it takes the first of them, then any
            state, length = start, len(str(piece))
            for place in range(length):
                arrows.setdefault(state, []).append((_DIGITS[place == 0 :], last))
                state, last = last, last + 1
            arrows[state] = [(_DIGITS, state), (_DIGITS, end)]
        start = end
    return _Automaton(arrows, start)


def _numbers(least: int) -> Iterator[Sequence[str]]:
    """Yield the integers from ``least`` with the same number of digits: alternatives, as the letters at every
    position."""
    digits = str(least)
    yield digits
    for place, digit in enumerate(digits):
        if above := _DIGITS[int(digit) + 1 :]:
            yield [*digits[:place], above, *[_DIGITS] * (len(digits) - place - 1)]
