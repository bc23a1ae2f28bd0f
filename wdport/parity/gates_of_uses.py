"""The gates of what a converted model is used for, which `verify` adds to those of the network.

The gates themselves are in the package that :data:`wdport.families.shipped.USES` names; a comparison knows this
interface alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from wdport.compare.comparison import Comparison
from wdport.compare.findings import Gate
from wdport.compare.sides import Companion
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Family
from wdport.families.shipped import provided
from wdport.models.interface import Configuration, KerasModel
from wdport.parity.verdict import Trajectory


class NetworkInUse(Companion, Protocol):
    """The network that a use of the model runs: another function of the same weights, on the same inputs."""

    name: str

    def gate(self, trajectories: Sequence[Trajectory] = ()) -> Gate:
        """The gate on its errors, with those of the full battery's ``trajectories``."""


class UseGates(Protocol):
    """The gates of all uses."""

    def lacking(self, family: Family) -> Sequence[str]:
        """The letters of gates that a family cannot have, for a note."""

    def planned(self, family: Family, config: Configuration, full: bool) -> Mapping[str, bool]:
        """The letters of all of these gates, in their order, each with whether it runs."""

    def network(
        self, family: Family, config: Configuration, models: Mapping[str, KerasModel], full: bool
    ) -> NetworkInUse | None:
        """The network in use of Keras models by dtype; ``None`` if it is the model itself."""

    def gates(self, prepared: Prepared, comparison: Comparison, network: bool, full: bool) -> list[Gate]:
        """The gates of the verbs that the family offers; ``network`` states whether there is a network in use."""

    def trajectories(self, prepared: Prepared, comparison: Comparison) -> tuple[Gate, tuple[Trajectory, ...]]:
        """The gate on whole runs of the network in use, and the errors along them."""


def use_gates() -> UseGates:
    """The gates of all uses, imported when they are first needed."""
    return cast(UseGates, provided("gates"))
