"""A policy in memory: bounds that differ from the defaults and waived taps, each with its reason and last day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

WAIVABLE = ("A", "B")
"""The gates that judge single taps, and to which a waiver can apply."""


@dataclass(frozen=True)
class BoundSetting:
    """One bound of the policy; ``expires`` is the last day on which it is in force, ``None`` if it needs none."""

    name: str
    value: float
    default: float
    reason: str = ""
    expires: date | None = None

    @property
    def looser(self) -> bool:
        """Whether it is looser than the default."""
        return not self.value <= self.default

    def expired(self, today: date) -> bool:
        """Whether its last day has passed."""
        return self.expires is not None and today > self.expires

    def in_force(self, today: date) -> float:
        """The bound on this day: the default after expiry, unless that would be looser."""
        return self.default if self.looser and self.expired(today) else self.value


@dataclass(frozen=True)
class Waiver:
    """One tap (module path of the reference) that may fail one gate up to and including ``expires``."""

    tap: str
    gate: str
    reason: str
    expires: date

    def expired(self, today: date) -> bool:
        """Whether its last day has passed."""
        return today > self.expires


@dataclass(frozen=True)
class Policy:
    """A policy file's content; ``source`` is the file and ``read`` the day on which it was read. With ``settings``, a
    hyper-parameter that differs also fails."""

    bounds: tuple[BoundSetting, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    source: str = ""
    read: date = date.min
    settings: bool = False

    @property
    def empty(self) -> bool:
        """Whether it has no requirements."""
        return not (self.bounds or self.waivers or self.settings)

    def bounds_on(self, today: date) -> dict[str, float]:
        """The policy's bounds in force on a day, by name."""
        return {setting.name: setting.in_force(today) for setting in self.bounds}


def loosened(policy: Policy) -> dict[str, float]:
    """The bounds that are looser than the defaults on the day on which the policy was read, by name.

    Known faults must still fail under these bounds.
    """
    held = policy.bounds_on(policy.read)
    return {setting.name: held[setting.name] for setting in policy.bounds if not held[setting.name] <= setting.default}
