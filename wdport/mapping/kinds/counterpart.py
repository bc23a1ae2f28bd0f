"""The counterpart of a PyTorch layer in Keras, and the facts about the layer's call that it may depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wdport.mapping.kinds.image_axes import Axes

Settings = Mapping[str, Any]
"""Hyper-parameters of a module of PyTorch by name; for an optional tensor, whether it exists."""


@dataclass(frozen=True)
class KerasCall:
    """A layer (``layers.Conv2D``) or a function (``ops.pad``, ``activations.gelu``) and the arguments that it needs.

    ``origin`` gives the hyper-parameter of PyTorch's layer that an argument corresponds to, if any.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)


def layer(name: str, arguments: Mapping[str, object], **origin: str) -> KerasCall:
    """``keras.layers.NAME``; ``origin`` gives the PyTorch hyper-parameters of arguments."""
    return KerasCall(f"layers.{name}", dict(arguments), origin)


@dataclass(frozen=True)
class TorchCall:
    """A call of a PyTorch layer: its first input's shape and axes, its arguments by name with the kind of their values
    (``bool`` for a boolean mask), which of its outputs are read, and the dtype of the port."""

    shape: tuple[int, ...] = ()
    axes: Axes | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    used: frozenset[int] = frozenset({0})
    dtype: str = "float32"


@dataclass(frozen=True)
class Counterpart:
    """The sequence of Keras calls that computes the same in inference; empty if Keras has no such layer.

    Attributes:
        calls: layers and functions; each layer of an RNN of several layers is one.
        notes: differences besides defaults, or what to do if there are no calls.
        kind: the layer's kind in a table, if it is not the one that declares the counterpart.
        move: a rearrangement with channels last, as a rule, if the counterpart is just that.
        partial: a call that computes a part, with which the last note begins, if there are no calls.
    """

    calls: tuple[KerasCall, ...] = ()
    notes: tuple[str, ...] = ()
    kind: str = ""
    move: str = ""
    partial: KerasCall | None = None


FindCounterpart = Callable[[str, Settings, TorchCall], Counterpart]
"""Finds a counterpart from the class's name in ``torch.nn``, the hyper-parameters and the call."""
