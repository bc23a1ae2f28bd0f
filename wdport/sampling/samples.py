"""Samples as arrays: states and their decoded form, under the names that the model's family gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wdport.model import Array

Done = Callable[[float], None]
"""Called with the number of finished samples, including fractions."""


@dataclass(frozen=True, eq=False)
class Samples:
    """``state`` (n, *shape) in standard units, and ``decoded``, None if states are not decoded.

    Both are also attributes under the family's ``names``. ``decoded`` is in the units of the data if the model holds
    their mean and standard deviation, otherwise in standard units. ``features`` are the names of the features
    along the last axis of both; empty if the model has none. ``given`` contains the values with which every sample was
    drawn: the condition under its name, such as "scale" or "labels", and under "window" the index of the window of the
    training data whose statistics convert the sample to the units of the data.
    """

    state: Array
    decoded: Array | None
    names: tuple[str, str] = ("state", "decoded")
    features: tuple[str, ...] = ()
    given: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.state)

    def __repr__(self) -> str:
        arrays = (f"{name} {array.dtype}{list(array.shape)}" for name, array in self.arrays.items())
        return f"Samples({', '.join([f'{len(self)}', *arrays, *([repr(self.features)] if self.features else [])])})"

    def __getattr__(self, name: str) -> Any:
        # From the dictionary: copying and unpickling ask for attributes before there are any, and would recurse.
        names = self.__dict__.get("names", ())
        if name not in names:
            raise AttributeError(f"samples have no {name!r}; they have {', '.join(names)}")
        return (self.state, self.decoded)[names.index(name)]

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays that exist, by the family's names."""
        both = zip(self.names, (self.state, self.decoded), strict=True)
        return {name: array for name, array in both if array is not None}

    @staticmethod
    def join(parts: Sequence[Samples]) -> Samples:
        decoded = [part.decoded for part in parts if part.decoded is not None]
        states = np.concatenate([part.state for part in parts])
        return Samples(states, np.concatenate(decoded) if decoded else None, parts[0].names, parts[0].features)

    def part(self, start: int, stop: int) -> Samples:
        """The samples from ``start`` to ``stop`` (exclusive)."""
        decoded = None if self.decoded is None else self.decoded[start:stop]
        return Samples(self.state[start:stop], decoded, self.names, self.features)
