"""Decide from two name patterns whether they can match the same name, with such a name as proof.

Both patterns are treated as finite automata over characters and traversed in parallel, which finds that ``conv1<n>``
and ``conv<n>`` both match ``conv10``. Numbers may have any length here; patterns match at most nine digits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from wdport.mapping.names import NamePattern

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
