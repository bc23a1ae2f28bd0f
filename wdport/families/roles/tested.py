"""Roles of a family whose faults are known, for the self-test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from wdport.families.faults import Group
from wdport.families.roles.family import Family
from wdport.model import Array, Configuration

if TYPE_CHECKING:
    from wdport.families.mutants import Mutant


@runtime_checkable
class Faulty(Family, Protocol):
    """The role of a family whose known faults `wdport selftest` tries."""

    @property
    def causes_known(self) -> bool:
        """Whether its faults have the words of a correct diagnosis, so that reported causes can be judged."""
        ...

    def smallest(self) -> Configuration:
        """The fastest configuration that has the parts of the quick mutants."""
        ...

    def examples(self) -> dict[str, Configuration]:
        """Small configurations that together have every part of the family, by a short description."""
        ...

    def random_tensors(self, config: Configuration, seed: int) -> dict[str, Array]:
        """A checkpoint's tensors, float32, with every weight and bias random."""
        ...


@runtime_checkable
class FaultyAround(Protocol):
    """The role of a family with known faults outside the network."""

    def faults(self, held: Mapping[str, float], quick: bool = False) -> Iterator[Group]:
        """The results of those faults at the family's own gates, with these bounds."""
        ...


@runtime_checkable
class Rewritten(Protocol):
    """The role of a family with alternative ways to compute its layers."""

    def rewrites(self, config: Configuration) -> Sequence[Mutant]:
        """Correct ports that compute the same in another way: mutants, applied everywhere at once, that must
        survive."""
        ...
