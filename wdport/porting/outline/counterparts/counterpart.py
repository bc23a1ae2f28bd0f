"""The counterpart of a PyTorch layer in Keras, and the facts about the layer's call that it may depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wdport.porting.outline.axes import Axes
from wdport.porting.outline.keras_calls import KerasCall
from wdport.porting.outline.settings import Settings


@dataclass(frozen=True)
class Given:
    """A call of a layer: its first input's shape and axes, its arguments by name with the kind of their values
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
        kind: the layer's kind in a table; empty if it has none, since there are no tensors to move.
        calls: layers and functions; each layer of an RNN of several layers is one.
        notes: differences besides defaults, or what to do if there are no calls.
        move: a rearrangement with channels last, as a rule, if the counterpart is just that.
    """

    kind: str = ""
    calls: tuple[KerasCall, ...] = ()
    notes: tuple[str, ...] = ()
    move: str = ""


Find = Callable[[str, Settings, Given], Counterpart]
"""Finds a counterpart from the class's name, the hyper-parameters and the call."""


def layer(name: str, arguments: Mapping[str, object], **origin: str) -> KerasCall:
    """``keras.layers.NAME``; ``origin`` gives the PyTorch hyper-parameters of arguments."""
    return KerasCall(f"layers.{name}", dict(arguments), origin)
