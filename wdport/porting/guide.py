"""The order of guesses where several units are given the same input: by names, and by what was found before.

A guess is wrong or right by what the models compute; the order only decides how many runs it takes to find out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache

from wdport.porting.options import Option

_NUMBER = re.compile(r"\d+")


def folded(path: str) -> str:
    """A path with every number made one sign."""
    return _NUMBER.sub("#", path)


@lru_cache(maxsize=65536)
def likeness(torch: str, keras: str) -> float:
    """How alike two paths are, from 0 to 1."""
    first, second = (re.sub(r"[./_]+", " ", path.lower()) for path in (torch, keras))
    whole = SequenceMatcher(None, first, second, autojunk=False).ratio()
    last = SequenceMatcher(None, first.rpartition(" ")[2], second.rpartition(" ")[2], autojunk=False).ratio()
    return whole + last / 2


@dataclass
class Guide:
    """What a run has settled so far."""

    names: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    right: int = 0
    wrong: int = 0

    def settle(self, option: Option, among: Sequence[Option]) -> None:
        """An option turned out to be right, chosen from these."""
        keras, units = folded(option.keras), _units(among)
        self.names[folded(option.unit.path), keras] += 1
        if option.unit.path in units:
            self.places[keras, len(units), units.index(option.unit.path)] += 1
        if len(units) > 1:
            best = max(units, key=lambda path: likeness(path, option.keras))
            self.right += best == option.unit.path
            self.wrong += best != option.unit.path

    def order(self, options: Sequence[Option]) -> list[Option]:
        """The likeliest first."""
        units = _units(options)
        trusted = self.right >= self.wrong

        def key(option: Option) -> tuple[object, ...]:
            keras = folded(option.keras)
            learned = self.names[folded(option.unit.path), keras] if trusted else 0
            placed = self.places[keras, len(units), units.index(option.unit.path)]
            named = round(likeness(option.unit.path, option.keras), 2) if trusted else 0.0
            return (bool(option.unit.part.startswith("chunk")), -learned, -placed, -named, option.unit.order)

        return sorted(options, key=key)


def _units(options: Sequence[Option]) -> list[str]:
    """The units of these options, in the order of their calls."""
    found = {option.unit.path: option.unit.order for option in options}
    return sorted(found, key=lambda path: found[path])
