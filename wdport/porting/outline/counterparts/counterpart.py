"""What corresponds to a PyTorch layer in Keras, and what a layer was given in the run, which that may depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wdport.porting.outline.axes import Axes
from wdport.porting.outline.keras_calls import KerasCall
from wdport.porting.outline.settings import Settings


@dataclass(frozen=True)
class Given:
    """A call of a layer: its first input's shape and axes, the arguments that it was given by name with their kind of
    value (``bool`` for a mask of true and false), which of its outputs are read, and the dtype of the port."""

    shape: tuple[int, ...] = ()
    axes: Axes | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    used: frozenset[int] = frozenset({0})
    dtype: str = "float32"


@dataclass(frozen=True)
class Counterpart:
    """The calls of Keras, one behind the other, that compute the same in inference; none where Keras has no such layer.

    Attributes:
        kind: what a table calls the layer; empty where it has no kind, since there are no tensors to move.
        calls: layers and functions; each alternative layer of an RNN of several layers is one.
        notes: what differs beside defaults, or what to do where there are no calls.
        move: a rearrangement with channels last, as a rule, where that is all there is.
    """

    kind: str = ""
    calls: tuple[KerasCall, ...] = ()
    notes: tuple[str, ...] = ()
    move: str = ""


Find = Callable[[str, Settings, Given], Counterpart]
"""A function of the class's name, the hyper-parameters and the call."""


def layer(name: str, arguments: Mapping[str, object], **origin: str) -> KerasCall:
    """``keras.layers.NAME``; ``origin`` tells the PyTorch hyper-parameters that arguments are."""
    return KerasCall(f"layers.{name}", dict(arguments), origin)


def activation(name: str, **arguments: object) -> KerasCall:
    return KerasCall(f"activations.{name}", arguments)
