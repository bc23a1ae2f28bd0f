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


_TITLES = {_function_name(each): each.title for each in ACTIVATIONS if each.title}

EXACT_FROM = 37.0
"""Above this, log(1 + exp(x)) is x in float64, so a larger threshold of softplus changes nothing."""


@dataclass(frozen=True)
class Function:
    """A function of one array: ``name`` and ``parameters`` in common terms, ``own`` in its library's terms."""

    name: str
    parameters: Parameters
    own: str

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
        keys = {(each.name, *each.parameters.values()) for each in (self, other)}
        return self.name == other.name or keys in SAME


def _relu(negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Parameters:
    limit = inf if max_value is None else float(max_value)
    return {"negative_slope": float(negative_slope), "max_value": limit, "threshold": float(threshold)}


def _clip(low: float, high: float, own: str) -> Function:
    return Function("relu", _relu(0.0, high), own) if low == 0 else Function("clip", {"min": low, "max": high}, own)


def _celu(alpha: float, own: str) -> Function:
    return Function("celu", {"alpha": float(alpha)}, own)


def _softplus(beta: float, threshold: float, own: str) -> Function:
    bend = inf if threshold >= EXACT_FROM else threshold
    return Function("softplus", {"beta": float(beta), "threshold": bend}, own)


_SAME_EVERYWHERE = [each for each in ACTIVATIONS if not each.parameters and each.keras.startswith("activations.")]
"""Activations without settings, which Keras has under one name."""

_TORCH: Mapping[str, Callable[[Any, str], Function | None]] = {
    "Softplus": lambda module, own: _softplus(module.beta, module.threshold, own),
    "Softmax2d": lambda _, own: Function("softmax", {"axis": -3}, own),
    "Softmin": lambda *_: None,  # the softmax of another input
    "Identity": lambda _, own: Function("linear", {}, own),
}
"""Functions of classes of ``torch.nn`` that their declarations as activations do not state."""

_SLOPES = {"keras": 0.2, "jax": 0.01}
_KERAS: Mapping[str, Callable[..., Function]] = {
    "relu": lambda own, **given: Function("relu", _relu(**given), own),
    "relu6": lambda own: Function("relu", _relu(0.0, 6.0), own),
    "leaky_relu": lambda own, negative_slope: Function("relu", _relu(negative_slope), own),
    "hard_tanh": lambda own: _clip(-1.0, 1.0, own),
    "clip": lambda own, x_min, x_max: _clip(x_min, x_max, own),
    "elu": lambda own, alpha=1.0: Function("elu", {"alpha": float(alpha)}, own),
    "celu": lambda own, alpha=1.0: _celu(alpha, own),
    "gelu": lambda own, approximate: Function("gelu", {"approximate": bool(approximate)}, own),
    "softplus": lambda own: _softplus(1.0, inf, own),
    "soft_shrink": lambda own, threshold=0.5: Function("soft_shrink", {"threshold": threshold}, own),
    "hard_shrink": lambda own, threshold=0.5: Function("hard_shrink", {"threshold": threshold}, own),
    "threshold": lambda own, **given: Function("threshold", given, own),
    **{name: partial(lambda common, own, axis=-1: Function(common, {"axis": axis}, own), name)
       for name in ("softmax", "log_softmax", "glu")},
    **{name: partial(lambda common, own: Function(common, {}, own), common) for name, common in {
        **{each.keras_name: each.keras_name for each in _SAME_EVERYWHERE},
        **{each: each for each in ("linear", "exponential", "squareplus")},
        "swish": "silu", "hard_swish": "hard_silu",
    }.items()},
}  # fmt: skip
"""By name of a function of Keras or JAX: its common form, given its own name and its arguments."""


def of_module(module: object) -> Function | None:
    """The function of a module of ``torch.nn``."""
    if not computes_as_torch(module):
        return None
    names = (each.__name__ for each in type(module).__mro__)
    name = next((each for each in names if each in _TORCH or each in BY_CLASS), "")
    if not name:
        return None
    if name in _TORCH:
        return _TORCH[name](module, name)
    activation = BY_CLASS[name]
    settings = {key: getattr(module, key) for key in activation.parameters}
    if activation.along:
        return Function(_function_name(activation), {} if settings["dim"] is None else {"axis": settings["dim"]}, name)
    arguments = {key: value(settings) for key, value in activation.arguments.items()}
    return _KERAS[_function_name(activation)](own=name, **arguments)


def of_layer(layer: KerasLayer) -> Function | None:
    """The function of a Keras layer, or of a user's own layer that stores it as ``activation``."""
    if not computes_as_keras(layer):
        return of_callable(getattr(layer, "activation", None))
    for name, (function, *attributes) in _LAYERS.items():
        arguments = {each: getattr(layer, each) for each in attributes} if is_keras(layer, name) else {}
        if arguments and isinstance(arguments.get("axis", 0), int):
            return _KERAS[function](own=name, **arguments)
    return of_callable(layer.activation) if is_keras(layer, "Activation") else None


def of_callable(function: object) -> Function | None:
    """The function for one of Keras or JAX, or for ``functools.partial`` of one with keyword arguments."""
    told: dict[str, Value] = {}
    if isinstance(function, partial):
        if function.args:
            return None
        told, function = dict(function.keywords), function.func
    name, home = str(getattr(function, "__name__", "")), str(getattr(function, "__module__", ""))
    library = home.partition(".")[0]
    if library not in ("keras", "jax") or name not in _KERAS:
        return None
    if name == "gelu":  # keras.ops and jax.nn approximate unless they are told not to, keras.activations does not
        told = {"approximate": "activations" not in home, **told}
    if name == "leaky_relu":
        told = {"negative_slope": _SLOPES[library], **told}
    try:
        return _KERAS[name](own=name, **told)
    except TypeError:  # an argument that it is not known to take
        return None


def by_name(name: str) -> Function | None:
    """The function of this name in :data:`wdport.compare.layouts.AFTER`, which a table states after a module."""
    if name in ("gelu", "gelu_tanh"):
        return Function("gelu", {"approximate": name == "gelu_tanh"}, name)
    if name == "leaky_relu":
        return Function("relu", _relu(0.01), name)
    return _KERAS[name](own=name) if name in _KERAS else None
