"""Whether two name patterns can fit the same name, decided on the patterns alone, with a name as the proof.

Both patterns are read as finite automata over characters and walked side by side, so that ``conv1<n>`` and ``conv<n>``
are seen to meet in ``conv10``. Numbers may have any length here; patterns read nine digits.
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
    """What two patterns have in common: a name of both, of the first alone and of the second alone, the shortest ones;
    ``None`` where there is no such name."""

    both: str | None
    first: str | None
    second: str | None


def overlap(first: NamePattern, second: NamePattern) -> Overlap:
    """Compare two patterns, name by name."""
    left, right = _automaton(first), _automaton(second)
    start = (frozenset({0}), frozenset({0}))
    seen, queue = {start}, deque([("", *start)])
    both, ours, theirs = None, None, None
    while queue:
        name, a, b = queue.popleft()
        ends = left.end in a, right.end in b
        both = name if both is None and all(ends) else both
        ours = name if ours is None and ends == (True, False) else ours
        theirs = name if theirs is None and ends == (False, True) else theirs
        for letter in sorted(left.letters(a) | right.letters(b)):
            after = left.step(a, letter), right.step(b, letter)
            if after not in seen:
                seen.add(after)
                queue.append((name + letter, *after))
    return Overlap(both, ours, theirs)


@dataclass(frozen=True)
class _Automaton:
    """By state, the letters that lead on and where to; the last state is that of a whole name."""

    arrows: dict[int, list[tuple[str, int]]]
    end: int

    def letters(self, states: States) -> set[str]:
        return {letter for state in states for letters, _ in self.arrows.get(state, ()) for letter in letters}

    def step(self, states: States, letter: str) -> States:
        return frozenset(to for state in states for letters, to in self.arrows.get(state, ()) if letter in letters)


@lru_cache(1024)
def _automaton(pattern: NamePattern) -> _Automaton:
    arrows: dict[int, list[tuple[str, int]]] = {}
    at, last = 0, 0
    for piece in pattern.pieces:
        if piece == "":
            continue
        end = last = last + 1
        for way in [piece] if isinstance(piece, str) else _numbers(piece):
            state = at
            for letters in way[:-1]:
                last += 1
                arrows.setdefault(state, []).append((letters, last))
                state = last
            arrows.setdefault(state, []).append((way[-1], end))
        if not isinstance(piece, str):
            last += 1  # numbers with more digits than the least one: it takes the first of them, then any
            state, length = at, len(str(piece))
            for place in range(length):
                arrows.setdefault(state, []).append((_DIGITS[place == 0 :], last))
                state, last = last, last + 1
            arrows[state] = [(_DIGITS, state), (_DIGITS, end)]
        at = end
    return _Automaton(arrows, at)


def _numbers(least: int) -> Iterator[Sequence[str]]:
    """Every whole number from ``least`` on that has as many digits: ways to write it, the letters at every place."""
    digits = str(least)
    yield digits
    for place, digit in enumerate(digits):
        if above := _DIGITS[int(digit) + 1 :]:
            yield [*digits[:place], above, *[_DIGITS] * (len(digits) - place - 1)]
