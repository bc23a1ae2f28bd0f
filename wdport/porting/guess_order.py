"""The order of guesses if several units have the same input: by names, and by earlier findings.

The models' values decide whether a guess is right; the order only affects the number of runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from wdport.porting.options import FillOption
from wdport.porting.units import likeness

_NUMBER = re.compile(r"\d+")


def folded(path: str) -> str:
    """A path with every number replaced by one character."""
    return _NUMBER.sub("#", path)


@dataclass
class Guide:
    """The settled choices of a run."""

    names: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    right: int = 0
    wrong: int = 0

    def settle(self, option: FillOption, among: Sequence[FillOption]) -> None:
        """Record that an option, chosen from these, is right."""
        keras, units = folded(option.keras), _units(among)
        self.names[folded(option.unit.path), keras] += 1
        if option.unit.path in units:
            self.places[keras, len(units), units.index(option.unit.path)] += 1
        if len(units) > 1:
            best = max(units, key=lambda path: likeness(path, option.keras))
            self.right += best == option.unit.path
            self.wrong += best != option.unit.path

    def order(self, options: Sequence[FillOption]) -> list[FillOption]:
        """Sort the options, the most likely first."""
        units = _units(options)
        trusted = self.right >= self.wrong

        def key(option: FillOption) -> tuple[object, ...]:
            keras = folded(option.keras)
            learned = self.names[folded(option.unit.path), keras] if trusted else 0
            placed = self.places[keras, len(units), units.index(option.unit.path)]
            named = round(likeness(option.unit.path, option.keras), 2) if trusted else 0.0
            return (bool(option.unit.part.startswith("chunk")), -learned, -placed, -named, option.unit.order)

        return sorted(options, key=key)


def _units(options: Sequence[FillOption]) -> list[str]:
    """The units of these options, in the order of their calls."""
    orders = {option.unit.path: option.unit.order for option in options}
    return sorted(orders, key=lambda path: orders[path])
