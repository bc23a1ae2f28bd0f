"""The keys of ``parity.toml`` and of ``parity-baseline.json``."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from wdport.declared import Also, Text

Day = Annotated[str, Also(format="date", pattern=r"^\d{4}-\d{2}-\d{2}$", examples=["2027-01-31"])]
"""A TOML date, without quotes; validators get it as a string."""


class BoundForm(TypedDict, total=False):
    """A bound in place of the default. A looser one needs a reason and a last day."""

    value: Required[Annotated[float, Also(exclusiveMinimum=0)]]
    """The bound: a positive, finite number."""
    reason: Text
    """Why it is not the default."""
    expires: Day
    """The last day on which it is in force, a date of TOML without quotes. From the next day on, the gate policy (P)
    fails and the default is in force again."""


class SettingsForm(TypedDict, total=False):
    """How to treat hyper-parameters that differ."""

    differs: Literal["warn", "fail"]
    """``fail``: a hyper-parameter that differs between the two models fails the gate policy (P);
    ``warn``, the default, only reports it."""


class WaiverForm(TypedDict):
    """One layer that may fail one gate until a given day."""

    tap: Annotated[str, Also(pattern=r"^(?=[\s\S]*\S)[^*?<>\[\]{}]+$")]
    """Full path of the layer in the reference; patterns are not allowed."""
    gate: str
    """The gate that it may fail, by its name or its letter."""
    reason: Text
    """Why the failure is acceptable."""
    expires: Day
    """The last day on which it is in force, a date of TOML without quotes."""


class PolicyForm(TypedDict, total=False):
    """A policy: bounds, the treatment of settings that differ, and waivers of single layers."""

    bounds: dict[str, BoundForm]
    """Bounds that differ from the defaults, by name."""
    settings: SettingsForm
    """What becomes of hyper-parameters that differ."""
    waivers: list[WaiverForm]
    """Layers that may fail, each for one gate."""


_Error = Annotated[float, Also(minimum=1e-15)] | Literal["inf"]


class TapRecord(TypedDict):
    """Errors of one layer, rounded up to one significant digit; infinity, which only a waived layer can have, is the
    text ``inf``."""

    isolated: _Error
    """Relative float64 error of its outputs when it is fed the reference's inputs."""
    cumulative: _Error
    """Relative float64 error of its outputs within the running network."""
    rms_ratio: Annotated[float, Also(minimum=1)] | Literal["inf"]
    """Root mean square of its float32 error as a multiple of the reference's own."""


class BaselineForm(TypedDict):
    """Errors of every layer, recorded by ``wdport verify --update-baseline``."""

    schema: Literal[1]
    """Format of the file."""
    taps: Annotated[dict[str, TapRecord], Also(minProperties=1)]
    """By the path of a layer in the reference, its errors."""
