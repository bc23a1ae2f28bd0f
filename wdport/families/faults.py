"""What became of known faults: one fault's fate, and groups of them, each with the gate that is about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Bounds = Mapping[str, float]
"""Bounds by name."""


@dataclass(frozen=True)
class Kill:
    """One fault's fate.

    ``gate`` is the first that killed it, "" if none did; ``sites`` are the places found faulty, ``site`` the one that
    was, ``exact`` whether they agree; ``margin`` is the largest error over its bound, in decades; ``inputs`` the case
    that showed it. ``causes`` is what the diagnosis says, where it was ``sought``, and ``facts`` are what a right one
    says if it does not name the fault. ``equivalent`` says why the fault
    does not change what the network computes, where that is known: it must then survive. ``ratio`` is the largest
    isolated float32 error as a multiple of the reference's, ``single`` the gate that kills it in float32 alone ("" if
    none does), ``rejected`` the fixed tolerances that reject its output; ``None`` where that was not measured.
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
        """Whether a gate noticed."""
        return bool(self.gate)

    @property
    def right(self) -> bool:
        """Whether the harness did what it ought to: the gate and the place, or survival of an equivalent."""
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
    """Faults of one kind: the gate that is about them ("" if there is more than one), a few words, and what becomes
    of them."""

    gate: str
    name: str
    kills: Iterator[Kill]


def fate(example: str, place: str, gate: str, fault: str, margin: float, killed: bool) -> Kill:
    """A fault's fate at a gate that does not tell places apart; a ``fault`` without name is none, and must live."""
    reason = "" if fault else "nothing is changed"
    return Kill(example, fault or "no fault", place, gate if killed else "", gate, (place,) if killed else (),
                killed, float(margin), equivalent=reason)  # fmt: skip
