"""Hyper-parameters that differ between two models: values as data, and their sentences."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose, isinf
from typing import Annotated

from wdport.base.shared_types import Count, about
from wdport.mapping.kinds.kind import Compared, Level

NEAR = 1e-5
"""Relative difference of numbers that count as equal: 0.001 is stored as 0.0010000000474975 in float32."""


@dataclass(frozen=True)
class Setting:
    """One hyper-parameter that differs."""

    name: Annotated[str, about("Name in Keras or, if Keras has no such hyper-parameter, in PyTorch.")]
    torch: Annotated[object, about("Value in the reference.")]
    keras: Annotated[object, about("Value in the port.")]
    level: Annotated[Level, about(
        "`differs`: it changes what the layer computes. `training`: it is not used in inference.")]  # fmt: skip
    text: Annotated[str, about("The difference in one sentence.")]
    reference: Annotated[str, about("Path of the PyTorch module.")] = ""
    candidate: Annotated[str, about("Path of the Keras layer.")] = ""


@dataclass(frozen=True)
class SettingsReport:
    """Comparison of the hyper-parameters of the two models."""

    layers: Annotated[
        Count, about("Number of pairs of layers for which at least one hyper-parameter was compared.")
    ] = 0
    compared: Annotated[Count, about("Number of hyper-parameters that were compared.")] = 0
    found: Annotated[tuple[Setting, ...], about("The hyper-parameters that differ.")] = ()
    note: Annotated[str, about("Why nothing was compared; empty if anything was.")] = ""
    unread: Annotated[tuple[str, ...], about(
        "Modules whose hyper-parameters could not be compared, because some have unexpected values.")] = ()  # fmt: skip

    def of(self, level: Level) -> list[Setting]:
        return [difference for difference in self.found if difference.level == level]

    @property
    def told(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.layers or self.note or self.unread)

    def at(self, reference: str) -> list[Setting]:
        """The settings of one module of the reference that change its computation."""
        return [difference for difference in self.of("differs") if difference.reference == reference]


def setting(check: Compared, theirs: object, ours: object) -> Setting:
    """The setting of two values that differ, with its sentence."""
    words = told(check, theirs, ours)
    value = (theirs is not None and theirs is not False) if check.how == "present" else theirs
    return Setting(check.keras or check.torch, plain(value), plain(ours), check.level, words)


def told(check: Compared, theirs: object, ours: object) -> str:
    if check.how == "time":
        return f"treats the time axis as the batch: the reference has {check.torch} {text(theirs)}"
    if not check.keras:
        return f"the reference has {check.torch} {text(theirs)}, which has no counterpart in the port's layer"
    if check.how in ("unit", "true") and not check.torch:
        return f"{check.keras} {text(ours)}, unlike the reference"
    name = check.keras if check.keras == check.torch or not check.torch else f"{check.keras} ({check.torch})"
    value = text(theirs)
    if check.how == "present":
        value = f"no {check.torch}" if theirs is None or theirs is False else f"a {check.torch}"
    return f"{name} {text(ours)} where the reference has {value}"


def text(value: object) -> str:
    if isinstance(value, float):
        return "none" if isinf(value) else f"{value:g}"
    if isinstance(value, (list, tuple)):
        return str(value)
    return str(plain(value))


def plain(value: object) -> object:
    """A value as plain JSON; infinity, which means no limit, is null."""
    if isinstance(value, float):
        return None if isinf(value) else value
    if isinstance(value, (list, tuple)):
        return [plain(element) for element in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(named(value))


def named(value: object) -> object:
    """The name of a function; any other value unchanged."""
    return getattr(value, "__name__", type(value).__name__) if callable(value) else value


def equal(theirs: object, ours: object, _: object = None) -> bool:
    if isinstance(theirs, int) and isinstance(ours, int):  # exactly: 128,256 and 128,257 words are different tables
        return theirs == ours
    if isinstance(theirs, (int, float)) and isinstance(ours, (int, float)):
        return isclose(theirs, ours, rel_tol=NEAR)
    return bool(theirs == ours)
