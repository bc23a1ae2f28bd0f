"""A correct port, and what the gates said against it: each is a false alarm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Alarm:
    """A gate that fails a correct port, and where."""

    gate: str
    place: str

    def __str__(self) -> str:
        return f"{self.gate} at {self.place}"


@dataclass(frozen=True)
class Variant:
    """One correct port or one correct way to run it.

    ``logic`` is its largest isolated float64 error, ``ratio`` the largest isolated float32 error as a multiple of
    the reference's and ``rejected`` the fixed tolerances that reject its float32 output, ``None`` where that was not
    measured; ``alarms`` the gates that fail: every one is false. ``why`` it is correct, where it is
    another way to compute the same.
    """

    example: str
    name: str
    logic: float | None
    ratio: float | None
    alarms: tuple[Alarm, ...]
    rejected: tuple[str, ...] | None = None
    why: str = ""
