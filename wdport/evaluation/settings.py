"""Settings of a sampler, from text such as ``"ddpm:1000 ddim:20,50 ddim-textbook:eta1:50"``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from wdport.errors import UsageError

MOST: Final = 1_000_000
"""Steps of a setting."""


@dataclass(frozen=True)
class Setting:
    """A sampler with a number of steps, all of them for None, and an amount of noise."""

    sampler: str
    steps: int | None = None
    eta: float = 0.0

    @property
    def kind(self) -> str:
        """The sampler with its noise."""
        return self.sampler + (f":eta{str(float(self.eta)).removesuffix('.0')}" if self.eta else "")

    def __str__(self) -> str:
        return self.kind + ("" if self.steps is None else f":{self.steps}")


def listed(settings: str | Sequence[str | Setting] | None, default: str) -> list[Setting]:
    """The settings, of which text may have several."""
    if settings is None:
        return [Setting(default)]
    if isinstance(settings, str):
        return parse_settings(settings)
    if not isinstance(settings, Sequence) or not all(isinstance(setting, (str, Setting)) for setting in settings):
        raise UsageError("sweep", "has settings that are not text", "write for example ddpm:1000 ddim:20,50")
    return [
        one for setting in settings for one in ([setting] if isinstance(setting, Setting) else parse_settings(setting))
    ]


def parse_settings(text: str) -> list[Setting]:
    """Settings from text such as ``"ddpm:1000 ddim:20,50 ddim-textbook:eta1:50"``; raises :class:`UsageError`."""
    settings = []
    for word in text.split():
        name, *parts = word.split(":")
        eta = 0.0
        if parts and parts[0].startswith("eta"):
            eta = _number(word, parts.pop(0)[3:], float)
        if len(parts) > 1 or not name:
            raise UsageError("sweep", f"{word[:40]!r} is not SAMPLER:STEPS,STEPS", "write for example ddim:20,50")
        steps = [int(_number(word, number, int)) for number in parts[0].split(",")] if parts else [None]
        settings += [Setting(name, step_count, eta) for step_count in steps]
    if not settings:
        raise UsageError("sweep", "has no setting", "write for example ddpm:1000 ddim:20,50")
    if len(set(map(str, settings))) < len(settings):
        raise UsageError("sweep", "has a setting twice", "give it once")
    return settings


def _number(word: str, text: str, kind: Callable[[str], float]) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = -1
    largest = MOST if kind is int else sys.float_info.max
    if not 0 <= number <= largest:  # nor for NaN
        expected = f"a whole number up to {MOST}" if kind is int else "a finite number from 0"
        what = f"{word[:40]!r} has {text[:20]!r}, which is not {expected}"
        raise UsageError("sweep", what, "write for example ddim:20,50 or ddim-textbook:eta1:50")
    return number
