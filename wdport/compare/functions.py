"""Identify activation functions by name and settings on either side, since the libraries' names and defaults differ.

An unknown function, such as a user's own, is treated as no function: it is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from wdport.compare.pairs import computes_as_keras, computes_as_torch, is_keras
from wdport.mapping.kinds.activations import ACTIVATIONS, BY_CLASS, Activation
from wdport.model import KerasLayer

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
    """The name of an activation as a function of Keras."""
    return _LAYERS.get(activation.keras_name, (activation.keras_name,))[0]


_TITLES = {_function_name(activation): activation.title for activation in ACTIVATIONS if activation.title}

EXACT_FROM = 37.0
"""Above this, log(1 + exp(x)) is x in float64, so a larger threshold of softplus changes nothing."""


@dataclass(frozen=True)
class Function:
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

    def does_as(self, other: Function) -> bool:
        """Whether the two are the same function with the same parameters."""
        return (self.name, dict(self.parameters)) == (other.name, dict(other.parameters))

    def same_by_name(self, other: Function) -> bool:
        """Whether the two have the same name, or equivalent names."""
        keys = {(function.name, *function.parameters.values()) for function in (self, other)}
        return self.name == other.name or keys in SAME


def _relu(negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Parameters:
    limit = inf if max_value is None else float(max_value)
    return {"negative_slope": float(negative_slope), "max_value": limit, "threshold": float(threshold)}


def _clip(low: float, high: float, alias: str) -> Function:
    return Function("relu", _relu(0.0, high), alias) if low == 0 else Function("clip", {"min": low, "max": high}, alias)


def _celu(alpha: float, alias: str) -> Function:
    return Function("celu", {"alpha": float(alpha)}, alias)


def _softplus(beta: float, threshold: float, alias: str) -> Function:
    bend = inf if threshold >= EXACT_FROM else threshold
    return Function("softplus", {"beta": float(beta), "threshold": bend}, alias)


_SAME_EVERYWHERE = [
    activation
    for activation in ACTIVATIONS
    if not activation.parameters and activation.keras.startswith("activations.")
]
"""Activations without settings, which Keras has under one name."""

_TORCH: Mapping[str, Callable[[Any, str], Function | None]] = {
    "Softplus": lambda module, alias: _softplus(module.beta, module.threshold, alias),
    "Softmax2d": lambda _, alias: Function("softmax", {"axis": -3}, alias),
    "Softmin": lambda *_: None,  # the softmax of another input
    "Identity": lambda _, alias: Function("linear", {}, alias),
}
"""Functions of classes of ``torch.nn`` that their declarations as activations do not state."""

_SLOPES = {"keras": 0.2, "jax": 0.01}
_KERAS: Mapping[str, Callable[..., Function]] = {
    "relu": lambda alias, **parameters: Function("relu", _relu(**parameters), alias),
    "relu6": lambda alias: Function("relu", _relu(0.0, 6.0), alias),
    "leaky_relu": lambda alias, negative_slope: Function("relu", _relu(negative_slope), alias),
    "hard_tanh": lambda alias: _clip(-1.0, 1.0, alias),
    "clip": lambda alias, x_min, x_max: _clip(x_min, x_max, alias),
    "elu": lambda alias, alpha=1.0: Function("elu", {"alpha": float(alpha)}, alias),
    "celu": lambda alias, alpha=1.0: _celu(alpha, alias),
    "gelu": lambda alias, approximate: Function("gelu", {"approximate": bool(approximate)}, alias),
    "softplus": lambda alias: _softplus(1.0, inf, alias),
    "soft_shrink": lambda alias, threshold=0.5: Function("soft_shrink", {"threshold": threshold}, alias),
    "hard_shrink": lambda alias, threshold=0.5: Function("hard_shrink", {"threshold": threshold}, alias),
    "threshold": lambda alias, **parameters: Function("threshold", parameters, alias),
    **{name: partial(lambda common, alias, axis=-1: Function(common, {"axis": axis}, alias), name)
       for name in ("softmax", "log_softmax", "glu")},
    **{name: partial(lambda common, alias: Function(common, {}, alias), common) for name, common in {
        **{activation.keras_name: activation.keras_name for activation in _SAME_EVERYWHERE},
        **{keras_name: keras_name for keras_name in ("linear", "exponential", "squareplus")},
        "swish": "silu", "hard_swish": "hard_silu",
    }.items()},
}  # fmt: skip
"""By name of a function of Keras or JAX: its common form, given its library's name and its arguments."""


def of_module(module: object) -> Function | None:
    """The function of a module of ``torch.nn``."""
    if not computes_as_torch(module):
        return None
    names = (base.__name__ for base in type(module).__mro__)
    name = next((class_name for class_name in names if class_name in _TORCH or class_name in BY_CLASS), "")
    if not name:
        return None
    if name in _TORCH:
        return _TORCH[name](module, name)
    activation = BY_CLASS[name]
    settings = {key: getattr(module, key) for key in activation.parameters}
    if activation.along:
        return Function(_function_name(activation), {} if settings["dim"] is None else {"axis": settings["dim"]}, name)
    arguments = {key: value(settings) for key, value in activation.arguments.items()}
    return _KERAS[_function_name(activation)](alias=name, **arguments)


def of_layer(layer: KerasLayer) -> Function | None:
    """The function of a Keras layer, or of a user's own layer that stores it as ``activation``."""
    if not computes_as_keras(layer):
        return of_callable(getattr(layer, "activation", None))
    for name, (function, *attributes) in _LAYERS.items():
        arguments = {attribute: getattr(layer, attribute) for attribute in attributes} if is_keras(layer, name) else {}
        if arguments and isinstance(arguments.get("axis", 0), int):
            return _KERAS[function](alias=name, **arguments)
    return of_callable(layer.activation) if is_keras(layer, "Activation") else None


def of_callable(function: object) -> Function | None:
    """The function for one of Keras or JAX, or for ``functools.partial`` of one with keyword arguments."""
    settings: dict[str, Value] = {}
    if isinstance(function, partial):
        if function.args:
            return None
        settings, function = dict(function.keywords), function.func
    name, home = str(getattr(function, "__name__", "")), str(getattr(function, "__module__", ""))
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


def by_name(name: str) -> Function | None:
    """The function of this name in :data:`wdport.compare.layouts.AFTER`, which a table states after a module."""
    if name in ("gelu", "gelu_tanh"):
        return Function("gelu", {"approximate": name == "gelu_tanh"}, name)
    if name == "leaky_relu":
        return Function("relu", _relu(0.01), name)
    return _KERAS[name](alias=name) if name in _KERAS else None
