"""Hyper-parameters that two models were told differently: values as data, and the sentences."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

from wdport.mapping.kinds.kind import Compared, Level


@dataclass(frozen=True)
class Setting:
    """One hyper-parameter that differs.

    Attributes:
        name: Keras's name of it, or PyTorch's where Keras has none.
        torch: the reference's value as plain data; ``None`` too where only Keras has such a setting.
        keras: the port's; ``None`` too where only PyTorch has it.
        level: ``differs`` if the layer computes something else for it, ``training`` if inference does not read it.
        text: the sentence.
        reference: the module's path.
        candidate: the layer's.
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
    """What two models were told differently.

    Attributes:
        layers: the pairs of layers of which anything was compared.
        compared: the hyper-parameters that both sides of these state.
        found: those that differ, in the order of the taps.
        note: why nothing was compared, if so.
        unread: modules of whose settings something is not what the kind has by that name.
    """

    layers: int = 0
    compared: int = 0
    found: tuple[Setting, ...] = ()
    note: str = ""
    unread: tuple[str, ...] = ()

    def of(self, level: Level) -> list[Setting]:
        """Those of one level."""
        return [each for each in self.found if each.level == level]

    @property
    def told(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.layers or self.note or self.unread)

    def at(self, reference: str) -> list[Setting]:
        """Those of one module of the reference that it computes by."""
        return [each for each in self.of("differs") if each.reference == reference]


def setting(each: Compared, theirs: object, ours: object) -> Setting:
    """Two values that differ, of which the sentence is made."""
    words = told(each, theirs, ours)
    value = (theirs is not None and theirs is not False) if each.how == "present" else theirs
    return Setting(each.keras or each.torch, plain(value), plain(ours), each.level, words)


def told(each: Compared, theirs: object, ours: object) -> str:
    """What the port's layer has, and what the reference's has in its place."""
    if each.how == "time":
        return f"takes the steps for the batch: the reference has {each.torch} {text(theirs)}"
    if not each.keras:
        return f"the reference has {each.torch} {text(theirs)}, which the port's layer has no counterpart of"
    if each.how in ("unit", "true") and not each.torch:
        return f"{each.keras} {text(ours)}, which is not how the reference computes"
    name = each.keras if each.keras == each.torch or not each.torch else f"{each.keras} ({each.torch})"
    value = text(theirs)
    if each.how == "present":
        value = f"no {each.torch}" if theirs is None or theirs is False else f"a {each.torch}"
    return f"{name} {text(ours)} where the reference has {value}"


def text(value: object) -> str:
    """A value as a sentence has it."""
    if isinstance(value, float):
        return "none" if isinf(value) else f"{value:g}"
    if isinstance(value, (list, tuple)):
        return str(value)
    return str(plain(value))


def plain(value: object) -> object:
    """A value as JSON has it; infinity, which stands for no limit, is null."""
    if isinstance(value, float):
        return None if isinf(value) else value
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(named(value))


def named(value: object) -> object:
    """A function by its name."""
    return getattr(value, "__name__", type(value).__name__) if callable(value) else value
