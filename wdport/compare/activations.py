"""Activation functions on both sides: identified by name and settings, as layers or fused into another layer, or
missing on one side.

An unknown function, such as a user's own, is treated as no function: it is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from wdport.compare.calls import Call, ExpectedCall
from wdport.compare.layouts import AFTER
from wdport.compare.pairs import Pair, computes_as_keras, computes_as_torch, is_keras, is_torch
from wdport.compare.relations import same
from wdport.compare.setting_values import Setting, equal, plain, text
from wdport.compare.taps import Tap
from wdport.mapping.kinds import CATALOGUE
from wdport.mapping.kinds.activations import ACTIVATIONS, BY_CLASS, Activation
from wdport.models.interface import KerasLayer

Value = float | int | bool
Parameters = Mapping[str, Value]

SAME = ({("elu", 1.0), ("celu", 1.0)},)
"""Pairs of functions that are equal for one value of a parameter."""

_LAYERS: Mapping[str, tuple[str, ...]] = {
    "ReLU": ("relu", "negative_slope", "max_value", "threshold"),
    "LeakyReLU": ("leaky_relu", "negative_slope"),
    "ELU": ("elu", "alpha"),
    "Softmax": ("softmax", "axis"),
}
"""Layers of Keras that are one function: its name and the layer's attributes that are its arguments."""


def _function_name(activation: Activation) -> str:
    return _LAYERS.get(activation.keras_name, (activation.keras_name,))[0]


_TITLES = {_function_name(activation): activation.title for activation in ACTIVATIONS if activation.title}

EXACT_FROM = 37.0
"""Above this, log(1 + exp(x)) is x in float64, so a larger threshold of softplus changes nothing."""


@dataclass(frozen=True)
class ActivationFunction:
    """A function of one array: ``name`` and ``parameters`` in common terms, ``alias`` in its library's terms."""

    name: str
    parameters: Parameters
    alias: str

    @property
    def shown(self) -> str:
        """The usual name, the same as in :mod:`wdport.compare.recognize`, which identifies functions from values."""
        if self.name == "gelu":
            return "GELU by tanh" if self.parameters["approximate"] else "GELU"
        if self.name == "relu":
            slope, limit = self.parameters["negative_slope"], self.parameters["max_value"]
            return f"leaky ReLU {slope:g}" if slope else "ReLU6" if limit == 6 else "ReLU"
        return _TITLES.get(self.name, self.name)

    def does_as(self, other: ActivationFunction) -> bool:
        """Whether the two are the same function with the same parameters."""
        return (self.name, dict(self.parameters)) == (other.name, dict(other.parameters))

    def same_by_name(self, other: ActivationFunction) -> bool:
        """Whether the two have the same name, or equivalent names."""
        keys = {(function.name, *function.parameters.values()) for function in (self, other)}
        return self.name == other.name or keys in SAME


def _relu(negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Parameters:
    limit = inf if max_value is None else float(max_value)
    return {"negative_slope": float(negative_slope), "max_value": limit, "threshold": float(threshold)}


def _clip(low: float, high: float, alias: str) -> ActivationFunction:
    name, parameters = ("relu", _relu(0.0, high)) if low == 0 else ("clip", {"min": low, "max": high})
    return ActivationFunction(name, parameters, alias)


def _softplus(beta: float, threshold: float, alias: str) -> ActivationFunction:
    # Keras has no threshold; PyTorch's default of 20 is kept, so that the difference of 2.1e-9 is reported.
    bend = inf if threshold >= EXACT_FROM else threshold
    return ActivationFunction("softplus", {"beta": float(beta), "threshold": bend}, alias)


_SAME_EVERYWHERE = [activation for activation in ACTIVATIONS
                    if not activation.parameters and activation.keras.startswith("activations.")]  # fmt: skip
"""Activations without settings, which Keras has under one name."""

_TORCH: Mapping[str, Callable[[Any, str], ActivationFunction | None]] = {
    "Softplus": lambda module, alias: _softplus(module.beta, module.threshold, alias),
    "Softmax2d": lambda _, alias: ActivationFunction("softmax", {"axis": -3}, alias),
    "Softmin": lambda *_: None,  # the softmax of another input
    "Identity": lambda _, alias: ActivationFunction("linear", {}, alias),
}
"""Functions of classes of ``torch.nn`` that their declarations as activations do not state."""

# Defaults of `leaky_relu`, which the two libraries do not share.
_SLOPES = {"keras": 0.2, "jax": 0.01}
_KERAS: Mapping[str, Callable[..., ActivationFunction]] = {
    "relu": lambda alias, **parameters: ActivationFunction("relu", _relu(**parameters), alias),
    "relu6": lambda alias: ActivationFunction("relu", _relu(0.0, 6.0), alias),
    "leaky_relu": lambda alias, negative_slope: ActivationFunction("relu", _relu(negative_slope), alias),
    "hard_tanh": lambda alias: _clip(-1.0, 1.0, alias),
    "clip": lambda alias, x_min, x_max: _clip(x_min, x_max, alias),
    "elu": lambda alias, alpha=1.0: ActivationFunction("elu", {"alpha": float(alpha)}, alias),
    "celu": lambda alias, alpha=1.0: ActivationFunction("celu", {"alpha": float(alpha)}, alias),
    "gelu": lambda alias, approximate: ActivationFunction("gelu", {"approximate": bool(approximate)}, alias),
    "softplus": lambda alias: _softplus(1.0, inf, alias),
    "soft_shrink": lambda alias, threshold=0.5: ActivationFunction("soft_shrink", {"threshold": threshold}, alias),
    "hard_shrink": lambda alias, threshold=0.5: ActivationFunction("hard_shrink", {"threshold": threshold}, alias),
    "threshold": lambda alias, **parameters: ActivationFunction("threshold", parameters, alias),
    **{name: partial(lambda common, alias, axis=-1: ActivationFunction(common, {"axis": axis}, alias), name)
       for name in ("softmax", "log_softmax", "glu")},
    **{name: partial(lambda common, alias: ActivationFunction(common, {}, alias), common) for name, common in {
        **{activation.keras_name: activation.keras_name for activation in _SAME_EVERYWHERE},
        **{keras_name: keras_name for keras_name in ("linear", "exponential", "squareplus")},
        "swish": "silu", "hard_swish": "hard_silu",
    }.items()},
}  # fmt: skip
"""By name of a function of Keras or JAX: its common form, given its library's name and its arguments."""


def of_module(module: object) -> ActivationFunction | None:
    """The function of a module of ``torch.nn``."""
    if not computes_as_torch(module):
        return None
    # The nearest base class counts: a user's subclass of GELU computes GELU, unless it defines `forward`.
    names = (base.__name__ for base in type(module).__mro__)
    name = next((class_name for class_name in names if class_name in _TORCH or class_name in BY_CLASS), "")
    if not name:
        return None
    if name in _TORCH:
        return _TORCH[name](module, name)
    activation = BY_CLASS[name]
    settings = {key: getattr(module, key) for key in activation.parameters}
    if activation.along:
        axis = {} if settings["dim"] is None else {"axis": settings["dim"]}
        return ActivationFunction(_function_name(activation), axis, name)
    arguments = {key: value(settings) for key, value in activation.arguments.items()}
    return _KERAS[_function_name(activation)](alias=name, **arguments)


def of_layer(layer: KerasLayer) -> ActivationFunction | None:
    """The function of a Keras layer, or of a user's own layer that stores it as ``activation``."""
    if not computes_as_keras(layer):
        return of_callable(getattr(layer, "activation", None))
    for name, (function, *attributes) in _LAYERS.items():
        arguments = {attribute: getattr(layer, attribute) for attribute in attributes} if is_keras(layer, name) else {}
        if arguments and isinstance(arguments.get("axis", 0), int):
            return _KERAS[function](alias=name, **arguments)
    return of_callable(layer.activation) if is_keras(layer, "Activation") else None


def of_callable(function: object) -> ActivationFunction | None:
    """The function for one of Keras or JAX, or for ``functools.partial`` of one with keyword arguments."""
    settings: dict[str, Value] = {}
    if isinstance(function, partial):
        if function.args:
            return None
        settings, function = dict(function.keywords), function.func
    name, home = str(getattr(function, "__name__", "")), str(getattr(function, "__module__", ""))
    if home == "wdport.nets.activations" and not settings:
        return by_name(name)
    library = home.partition(".")[0]
    if library not in ("keras", "jax") or name not in _KERAS:
        return None
    if name == "gelu":  # keras.ops and jax.nn approximate by default, keras.activations does not
        settings = {"approximate": "activations" not in home, **settings}
    if name == "leaky_relu":
        settings = {"negative_slope": _SLOPES[library], **settings}
    try:
        return _KERAS[name](alias=name, **settings)
    except TypeError:  # an argument that it is not known to take
        return None


def by_name(name: str) -> ActivationFunction | None:
    """The function of this name in :data:`wdport.compare.layouts.AFTER`, which a table states after a module."""
    if name in ("gelu", "gelu_tanh"):
        return ActivationFunction("gelu", {"approximate": name == "gelu_tanh"}, name)
    if name == "leaky_relu":
        return ActivationFunction("relu", _relu(0.01), name)
    return _KERAS[name](alias=name) if name in _KERAS else None


_ALONE = ("", "activation", "sequential")
"""Kinds of rows whose layer may be just a function."""

_LINEAR = tuple(torch_class.short for kind in CATALOGUE if kind.activates for torch_class in kind.torch)
"""Modules that apply no function to their output, where a Keras layer may."""


def applied(pair: Pair) -> tuple[ActivationFunction, ActivationFunction] | None:
    """The reference's function and the port's, if both are known: activation layers, or the function that the table
    states after the module and the one fused into the port's layer."""
    if pair.kind in _ALONE:
        theirs, ours = of_module(pair.module), of_layer(pair.layer)
        return None if theirs is None or ours is None or pair.layout.after else (theirs, ours)
    if not (computes_as_torch(pair.module) and is_torch(pair.module, *_LINEAR) and computes_as_keras(pair.layer)):
        return None
    theirs, ours = by_name(pair.layout.after or "linear"), of_callable(getattr(pair.layer, "activation", None))
    return None if theirs is None or ours is None else (theirs, ours)


def unlike(theirs: ActivationFunction, ours: ActivationFunction, pair: Pair) -> list[Setting]:
    """The differences of two functions: their names, or their numbers and axes."""
    if not theirs.same_by_name(ours) or (theirs.name == "gelu" and theirs.shown != ours.shown):
        return [Setting("activation", theirs.alias, ours.alias, "differs", _sentence(theirs, ours, pair))]
    settings = []
    for name in sorted(theirs.parameters.keys() & ours.parameters.keys()):
        expected, actual = theirs.parameters[name], ours.parameters[name]
        if name == "axis":
            places = pair.axes([int(expected)])
            if places is None or len(places) != 1 or places == (int(actual) % pair.rank,):
                continue
            expected = places[0]
        elif equal(expected, actual):
            continue
        words = f"{name} {text(actual)} where the reference has {text(expected)}"
        settings.append(Setting(name, plain(expected), plain(actual), "differs", words))
    return settings


def _sentence(theirs: ActivationFunction, ours: ActivationFunction, pair: Pair) -> str:
    if pair.kind not in _ALONE and ours.name == "linear":
        return lacking(theirs.alias)
    if pair.kind not in _ALONE and theirs.name == "linear":
        names = (name for name in AFTER if (function := by_name(name)) and function.does_as(ours))
        return beside(next(names, ours.shown))
    return f"activation: {ours.shown} where {'the table' if pair.layout.after else 'the reference'} has {theirs.shown}"


def other_activation(tap: Tap, port_call: Call, expected: ExpectedCall) -> list[str]:
    """The activation that follows the layer on only one side: one sentence, or none."""
    if len(port_call.outputs) != 1 or len(expected.outputs) != 1:
        return []
    ours, theirs = np.asarray(port_call.outputs[0]), np.asarray(expected.outputs[0])
    stated = tap.layout.after
    # The port's output would be right with the function applied to it, so it is missing.
    if stated and same(AFTER[stated](ours), theirs):
        return [lacking(stated)]
    for name in () if stated else AFTER:
        if same(AFTER[name](theirs), ours):
            return [beside(name)]
    return []


def lacking(name: str) -> str:
    """The message that the port's layer lacks an activation that the table states."""
    return f"lacks the {name} that the table states after the module"


def beside(name: str) -> str:
    """The message that the port's layer has an activation that is not stated for the reference's module."""
    rest = f"; if it follows the module, state `then: {name}`" if name in AFTER else ""
    return f"has a {name} that the reference's module does not have{rest}"
