"""The keys of ``parity.toml`` and of ``parity-baseline.json``."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from msgspec import Meta

from wdport.declared import Text

Day = Annotated[
    str, Meta(extra_json_schema={"format": "date"}, pattern=r"^\d{4}-\d{2}-\d{2}$", examples=["2027-01-31"])
]
"""A TOML date, without quotes; validators get it as a string."""


class BoundForm(TypedDict, total=False):
    """A bound in place of the default. A looser one needs a reason and a last day."""

    value: Required[Annotated[float, Meta(gt=0), Meta(description=
        "The bound: a positive, finite number.")]]  # fmt: skip
    reason: Annotated[Text, Meta(description="Why it is not the default.")]
    expires: Annotated[Day, Meta(description=
        "The last day on which it is in force, a date of TOML without quotes. From the next day on, the gate policy "
        "(P) fails and the default is in force again.")]  # fmt: skip


class SettingsForm(TypedDict, total=False):
    """How to treat hyper-parameters that differ."""

    differs: Annotated[Literal["warn", "fail"], Meta(description=
        "`fail`: a hyper-parameter that differs between the two models fails the gate policy (P); `warn`, the "
        "default, only reports it.")]  # fmt: skip


class WaiverForm(TypedDict):
    """One layer that may fail one gate until a given day."""

    tap: Annotated[str, Meta(pattern=r"^(?=[\s\S]*\S)[^*?<>\[\]{}]+$"), Meta(description=
        "Full path of the layer in the reference; patterns are not allowed.")]  # fmt: skip
    gate: Annotated[str, Meta(description="The gate that it may fail, by its name or its letter.")]
    reason: Annotated[Text, Meta(description="Why the failure is acceptable.")]
    expires: Annotated[Day, Meta(description="The last day on which it is in force, a date of TOML without quotes.")]


class PolicyForm(TypedDict, total=False):
    """A policy: bounds, the treatment of settings that differ, and waivers of single layers."""

    bounds: Annotated[dict[str, BoundForm], Meta(description="Bounds that differ from the defaults, by name.")]
    settings: Annotated[SettingsForm, Meta(description="What becomes of hyper-parameters that differ.")]
    waivers: Annotated[list[WaiverForm], Meta(description="Layers that may fail, each for one gate.")]


_Error = Annotated[float, Meta(ge=1e-15)] | Literal["inf"]


class TapRecord(TypedDict):
    """Errors of one layer, rounded up to one significant digit; infinity, which only a waived layer can have, is the
    text ``inf``."""

    isolated: Annotated[_Error, Meta(description=
        "Relative float64 error of its outputs when it is fed the reference's inputs.")]  # fmt: skip
    cumulative: Annotated[_Error, Meta(description="Relative float64 error of its outputs within the running network.")]
    rms_ratio: Annotated[Annotated[float, Meta(ge=1)] | Literal["inf"], Meta(description=
        "Root mean square of its float32 error as a multiple of the reference's own.")]  # fmt: skip


class BaselineForm(TypedDict):
    """Errors of every layer, recorded by ``wdport verify --update-baseline``."""

    schema: Annotated[Literal[1], Meta(description="Format of the file.")]
    taps: Annotated[dict[str, TapRecord], Meta(min_length=1), Meta(description=
        "By the path of a layer in the reference, its errors.")]  # fmt: skip
