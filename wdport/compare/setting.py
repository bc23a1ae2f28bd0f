"""Hyper-parameters that differ between two models: values as data, and their sentences."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

from wdport.mapping.kinds.kind import Compared, Level


@dataclass(frozen=True)
class Setting:
    """One hyper-parameter that differs.

    Attributes:
        name: its name in Keras, or in PyTorch if Keras has none.
        torch: the reference's value as plain data; also ``None`` if only Keras has the setting.
        keras: the port's; also ``None`` if only PyTorch has it.
        level: ``differs`` if it changes what the layer computes, ``training`` if inference does not read it.
        text: the sentence.
        reference: path of the module.
        candidate: path of the layer.
    """

    name: str
    torch: object
    keras: object
    level: Level
    text: str
    reference: str = ""
    candidate: str = ""


@dataclass(frozen=True)
class SettingsReport:
    """The settings that differ between two models.

    Attributes:
        layers: number of pairs of layers with at least one comparison.
        compared: number of hyper-parameters that both sides state.
        found: those that differ, in the order of the taps.
        note: why nothing was compared; empty if something was.
        unread: modules with a setting that does not have the kind's meaning for its name.
    """

    layers: int = 0
    compared: int = 0
    found: tuple[Setting, ...] = ()
    note: str = ""
    unread: tuple[str, ...] = ()

    def of(self, level: Level) -> list[Setting]:
        """The settings of one level."""
        return [each for each in self.found if each.level == level]

    @property
    def told(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.layers or self.note or self.unread)

    def at(self, reference: str) -> list[Setting]:
        """The settings of one module of the reference that change its computation."""
        return [each for each in self.of("differs") if each.reference == reference]


def setting(each: Compared, theirs: object, ours: object) -> Setting:
    """The setting of two values that differ, with its sentence."""
    words = told(each, theirs, ours)
    value = (theirs is not None and theirs is not False) if each.how == "present" else theirs
    return Setting(each.keras or each.torch, plain(value), plain(ours), each.level, words)


def told(each: Compared, theirs: object, ours: object) -> str:
    """The sentence on the port's value and the reference's."""
    if each.how == "time":
        return f"treats the time axis as the batch: the reference has {each.torch} {text(theirs)}"
    if not each.keras:
        return f"the reference has {each.torch} {text(theirs)}, which has no counterpart in the port's layer"
    if each.how in ("unit", "true") and not each.torch:
        return f"{each.keras} {text(ours)}, unlike the reference"
    name = each.keras if each.keras == each.torch or not each.torch else f"{each.keras} ({each.torch})"
    value = text(theirs)
    if each.how == "present":
        value = f"no {each.torch}" if theirs is None or theirs is False else f"a {each.torch}"
    return f"{name} {text(ours)} where the reference has {value}"


def text(value: object) -> str:
    """A value as text for a sentence."""
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
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(named(value))


def named(value: object) -> object:
    """The name of a function; any other value unchanged."""
    return getattr(value, "__name__", type(value).__name__) if callable(value) else value
