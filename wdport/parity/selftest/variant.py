"""A correct port, and the gates that fail it: each is a false alarm."""

from __future__ import annotations

from dataclasses import dataclass

from wdport.compare.glossary import label


@dataclass(frozen=True)
class Alarm:
    """A gate that fails a correct port, and where."""

    gate: str
    place: str

    def __str__(self) -> str:
        return f"{label(self.gate)} at {self.place}"


@dataclass(frozen=True)
class Variant:
    """One correct port, or one correct way to run it.

    ``logic`` is its largest isolated float64 error, ``ratio`` the largest isolated float32 error as a multiple of
    the reference's, and ``rejected`` the fixed tolerances that reject its float32 output, each ``None`` if it was not
    measured. ``alarms`` are the gates that fail, each a false alarm. ``why`` explains why a rewrite computes the
    same.
    """

    example: str
    name: str
    logic: float | None
    ratio: float | None
    alarms: tuple[Alarm, ...]
    rejected: tuple[str, ...] | None = None
    why: str = ""
