"""Layers and functions of Keras with the arguments that they need, and the defaults of the installed release."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from wdport.mapping.kinds.counterpart import KerasCall, Settings
from wdport.porting.outline.settings import equal, parameters, short

_EMPTY = inspect.Parameter.empty

_FIRST_BY_NAME = ("axis", "epsilon", "max_value", "negative_slope", "alpha", "approximate", "keepdims", "data_format",
                  "alpha_initializer", "dim")  # fmt: skip
"""First arguments that are written by name."""


def call_text(call: KerasCall) -> str:
    """A call as source text, without arguments that equal Keras's defaults: ``Conv2D(16, 3, strides=2)``."""
    declared, words = defaults(call.name), []
    for position, (key, default) in enumerate(declared.items()):
        if key not in call.arguments:
            continue
        value = call.arguments[key]
        if default is _EMPTY or (position == 0 and key not in _FIRST_BY_NAME):
            words.append(_value_text(value, key))
        elif not equal(value, default):
            words.append(f"{key}={_value_text(value, key)}")
    words += [f"{key}={_value_text(value, key)}" for key, value in call.arguments.items() if key not in declared]
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
        torch_text = "" if self.setting == self.argument else self.setting
        if not equal(self.torch, self.needed):
            torch_text = f"{self.setting} {short(self.torch)}"
        suffix = f" ({torch_text})" if torch_text else ""
        return f"{self.layer}: {self.argument} is {short(self.keras)} by default, here {short(self.needed)}{suffix}"


def differing(torch_class: str, settings: Settings, call: KerasCall) -> Iterator[Default]:
    """Arguments whose default differs in Keras, if the layer has PyTorch's default, which its code does not show."""
    torch, keras = parameters(torch_class) if torch_class else {}, defaults(call.name)
    for key, value in call.arguments.items():
        if isinstance(value, KerasCall):
            yield from differing(torch_class, settings, value)
        setting, default = call.origin.get(key, ""), keras.get(key, _EMPTY)
        if setting not in torch or default is _EMPTY or torch[setting] is _EMPTY or equal(value, default):
            continue
        if equal(settings.get(setting), torch[setting]):
            yield Default(call.name.removeprefix("layers."), key, default, setting, torch[setting], value)


def exists(name: str) -> bool:
    """Whether the installed Keras has it."""
    return find(name) is not None


def find(name: str) -> Any:
    """The layer's class or the function; ``None`` if the installed Keras does not have it."""
    import keras

    attribute: Any = keras
    for part in name.split("."):
        attribute = getattr(attribute, part, None)
    return attribute


@cache
def defaults(name: str) -> Mapping[str, object]:
    """The arguments of a layer or a function, without the tensor, and their defaults."""
    function = find(name)
    if function is None:
        return {}
    named = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    return {parameter.name: parameter.default for parameter in (named if name.startswith("layers.") else named[1:])}


def _value_text(value: object, name: str) -> str:
    return call_text(value) if isinstance(value, KerasCall) else short(value, name)
