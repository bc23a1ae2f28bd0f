"""A policy in memory: bounds that differ from the defaults and waived taps, each with its reason and last day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

WAIVABLE = ("A", "B")
"""The gates that judge single taps; no other gate has anything that one tap's waiver could mean."""


@dataclass(frozen=True)
class BoundSetting:
    """One bound of the policy; ``expires`` is the last day that it holds, ``None`` where it needs none."""

    name: str
    value: float
    default: float
    reason: str = ""
    expires: date | None = None

    @property
    def looser(self) -> bool:
        """Whether it lets more through than the default."""
        return not self.value <= self.default

    def expired(self, today: date) -> bool:
        """Whether its last day has gone by."""
        return self.expires is not None and today > self.expires

    def in_force(self, today: date) -> float:
        """The bound on this day: an expired one is the default again, but nothing gets looser by expiring."""
        return self.default if self.looser and self.expired(today) else self.value


@dataclass(frozen=True)
class Waiver:
    """One tap (module path of the reference) that one gate may find fault with, until ``expires``, included."""

    tap: str
    gate: str
    reason: str
    expires: date

    def expired(self, today: date) -> bool:
        """Whether its last day has gone by."""
        return today > self.expires


@dataclass(frozen=True)
class Policy:
    """A policy file's content; ``source`` is the file and ``read`` the day that it was read on. With ``settings`` a
    hyper-parameter that differs fails, too."""

    bounds: tuple[BoundSetting, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    source: str = ""
    read: date = date.min
    settings: bool = False

    def bounds_on(self, today: date) -> dict[str, float]:
        """The policy's bounds in force on a day, by name."""
        return {setting.name: setting.in_force(today) for setting in self.bounds}


def loosened(policy: Policy) -> dict[str, float]:
    """The bounds that let more through than the defaults on the day that the policy was read, by name.

    A run under a policy is worth what still fails under these: known faults must.
    """
    held = policy.bounds_on(policy.read)
    return {each.name: held[each.name] for each in policy.bounds if not held[each.name] <= each.default}
