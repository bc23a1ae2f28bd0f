"""Results of known faults: of one fault, and groups of them with the gate that tests them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Bounds = Mapping[str, float]
"""Bounds by name."""


@dataclass(frozen=True)
class Kill:
    """Result of one fault.

    ``gate`` is the first that killed it, "" if none did; ``sites`` are the places found faulty, ``site`` the faulty
    one, ``exact`` whether they agree; ``margin`` is the largest error over its bound, in decades; ``inputs`` the case
    that showed it. ``causes`` are those of the diagnosis, if it was ``sought``, and ``facts`` are words of a correct
    diagnosis that does not name the fault. ``equivalent`` says why the fault does not change what the network computes,
    if that is known: it must then survive. ``ratio`` is the largest isolated float32 error as a multiple of the
    reference's, ``single`` the gate that kills it in float32 only ("" if none does), ``rejected`` the fixed tolerances
    that reject its output; ``None`` if that was not measured.
    """

    example: str
    mutant: str
    site: str
    gate: str
    expected: str
    sites: tuple[str, ...]
    exact: bool
    margin: float
    causes: tuple[str, ...] = ()
    equivalent: str = ""
    inputs: str = ""
    sought: bool = False
    facts: str = ""
    ratio: float | None = None
    single: str | None = None
    rejected: tuple[str, ...] | None = None

    @property
    def killed(self) -> bool:
        """Whether a gate detected the fault."""
        return bool(self.gate)

    @property
    def right(self) -> bool:
        """Whether the result is as expected: gate and place, or survival of an equivalent."""
        if self.equivalent:
            return not self.killed
        return self.gate == self.expected and self.exact

    @property
    def diagnosed(self) -> bool:
        """Whether the probable cause is the fault."""
        return self.mutant in self.causes or (bool(self.facts) and any(self.facts in cause for cause in self.causes))

    @property
    def misdiagnosed(self) -> bool:
        """Whether causes are named, all of them wrong."""
        return bool(self.causes) and not self.diagnosed


@dataclass(frozen=True)
class Group:
    """Faults of one kind: the gate that tests them ("" for several), a short description, and their results."""

    gate: str
    name: str
    kills: Iterator[Kill]


def fate(example: str, place: str, gate: str, fault: str, margin: float, killed: bool) -> Kill:
    """Result of a fault at a gate that does not distinguish places; a ``fault`` without a name is no fault, and must
    survive."""
    reason = "" if fault else "nothing is changed"
    return Kill(example, fault or "no fault", place, gate if killed else "", gate, (place,) if killed else (),
                killed, float(margin), equivalent=reason)  # fmt: skip
