"""A correct port, and the gates that fail it: each is a false alarm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from wdport.compare.glossary import label
from wdport.declared import Number


@dataclass(frozen=True)
class Alarm:
    """A gate that fails a correct port."""

    gate: Annotated[str, Meta(description="Letter of the gate.")]
    place: Annotated[str, Meta(description="Where.")]

    def __str__(self) -> str:
        return f"{label(self.gate)} at {self.place}"


@dataclass(frozen=True)
class Variant:
    """One correct port, or one correct way to run it."""

    example: Annotated[str, Meta(description="Model.")]
    name: Annotated[str, Meta(description="What was changed.")]
    logic: Annotated[Number | None, Meta(description="Largest isolated float64 error; null if it was not measured.")]
    ratio: Annotated[Number | None, Meta(description=
        "Largest isolated float32 error as a multiple of the reference's; null if it was not measured.")]  # fmt: skip
    alarms: Annotated[tuple[Alarm, ...], Meta(description="Gates that fail: every one is a false alarm.")]
    rejected: Annotated[tuple[str, ...] | None, Meta(description=
        "Fixed tolerances that reject its output; null if that was not measured.")] = None  # fmt: skip
    why: Annotated[str, Meta(description="Why it is correct, if it is another way to compute the same.")] = ""
