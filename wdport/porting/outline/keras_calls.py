"""Layers and functions of Keras with the arguments that they need, and the defaults of the installed release."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from wdport.mapping.kinds.counterpart import KerasCall, Settings
from wdport.porting.outline.settings import parameters, same, short

_EMPTY = inspect.Parameter.empty

_FIRST_BY_NAME = ("axis", "epsilon", "max_value", "negative_slope", "alpha", "approximate", "keepdims", "data_format",
                  "alpha_initializer", "dim")  # fmt: skip
"""First arguments that are written by name."""


def call_text(call: KerasCall) -> str:
    """A call as source text, without arguments that equal Keras's defaults: ``Conv2D(16, 3, strides=2)``."""
    known, words = defaults(call.name), []
    for at, (key, default) in enumerate(known.items()):
        if key not in call.arguments:
            continue
        value = call.arguments[key]
        if default is _EMPTY or (at == 0 and key not in _FIRST_BY_NAME):
            words.append(_value_text(value, key))
        elif not same(value, default):
            words.append(f"{key}={_value_text(value, key)}")
    words += [f"{key}={_value_text(value, key)}" for key, value in call.arguments.items() if key not in known]
    name = call.name.removeprefix("layers.")
    return f"{name}({', '.join(words)})" if words or name != call.name else name


@dataclass(frozen=True)
class Default:
    """An argument whose default in Keras differs from PyTorch's, where the PyTorch layer has the default.

    Attributes:
        layer: the Keras layer.
        argument: its argument; ``keras`` is its default.
        setting: PyTorch's hyper-parameter; ``torch`` is its default.
        needed: the required value of the argument.
    """

    layer: str
    argument: str
    keras: object
    setting: str
    torch: object
    needed: object

    def __str__(self) -> str:
        own = "" if self.setting == self.argument else self.setting
        if not same(self.torch, self.needed):
            own = f"{self.setting} {short(self.torch)}"
        told = f" ({own})" if own else ""
        return f"{self.layer}: {self.argument} is {short(self.keras)} by default, here {short(self.needed)}{told}"


def differing(torch_class: str, settings: Settings, call: KerasCall) -> Iterator[Default]:
    """Arguments whose default differs in Keras, if the layer has PyTorch's default, which its code does not show."""
    own, theirs = parameters(torch_class) if torch_class else {}, defaults(call.name)
    for key, value in call.arguments.items():
        if isinstance(value, KerasCall):
            yield from differing(torch_class, settings, value)
        setting, known = call.origin.get(key, ""), theirs.get(key, _EMPTY)
        if setting not in own or known is _EMPTY or own[setting] is _EMPTY or same(value, known):
            continue
        if same(settings.get(setting), own[setting]):
            yield Default(call.name.removeprefix("layers."), key, known, setting, own[setting], value)


def exists(name: str) -> bool:
    """Whether the installed Keras has it."""
    return find(name) is not None


def find(name: str) -> Any:
    """The layer's class or the function; ``None`` if the installed Keras does not have it."""
    import keras

    found: Any = keras
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


@cache
def defaults(name: str) -> Mapping[str, object]:
    """The arguments of a layer or a function, without the tensor, and their defaults."""
    found = find(name)
    if found is None:
        return {}
    told = [each for each in inspect.signature(found).parameters.values() if each.kind is not each.VAR_KEYWORD]
    return {each.name: each.default for each in (told if name.startswith("layers.") else told[1:])}


def _value_text(value: object, name: str) -> str:
    return call_text(value) if isinstance(value, KerasCall) else short(value, name)
