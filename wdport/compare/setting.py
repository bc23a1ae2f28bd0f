"""One hyper-parameter that two layers were told differently: its values as data, and the sentence."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

from wdport.compare.setting_checks import named
from wdport.mapping.kinds import Compared, Level


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


def setting(each: Compared, theirs: object, ours: object) -> Setting:
    """Two values that differ, of which the sentence is made."""
    words = told(each, theirs, ours)
    value = (theirs is not None and theirs is not False) if each.how == "present" else theirs
    return Setting(each.keras or each.torch, plain(value), plain(ours), each.level, words)


def told(each: Compared, theirs: object, ours: object) -> str:
    """What the port's layer has, and what the reference's has in its place."""
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
