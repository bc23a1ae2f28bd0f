"""Samples as arrays: states, and what they are decoded to, by the names that the model's family gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wdport.diffusion.schedules import Array


@dataclass(frozen=True, eq=False)
class Samples:
    """``state`` (n, *shape) in standard units, and ``decoded``, None where states are not decoded.

    Both are also attributes under ``names``, which are the family's. ``decoded`` is in the units of the data where the
    model carries their mean and standard deviation, otherwise in standard units.
    """

    state: Array
    decoded: Array | None
    names: tuple[str, str] = ("state", "decoded")

    def __len__(self) -> int:
        return len(self.state)

    def __getattr__(self, name: str) -> Any:
        names = self.__dict__.get("names", ())
        if name not in names:
            raise AttributeError(f"samples have no {name!r}; they have {', '.join(names)}")
        return (self.state, self.decoded)[names.index(name)]

    @property
    def arrays(self) -> dict[str, Array]:
        """Those that are there, by the family's names."""
        both = zip(self.names, (self.state, self.decoded), strict=True)
        return {name: array for name, array in both if array is not None}

    @staticmethod
    def join(parts: Sequence[Samples]) -> Samples:
        """Several batches as one."""
        decoded = [part.decoded for part in parts if part.decoded is not None]
        states = np.concatenate([part.state for part in parts])
        return Samples(states, np.concatenate(decoded) if decoded else None, parts[0].names)

    def part(self, start: int, stop: int) -> Samples:
        """Those from ``start`` up to ``stop``."""
        decoded = None if self.decoded is None else self.decoded[start:stop]
        return Samples(self.state[start:stop], decoded, self.names)
