"""Activations: names, slopes and axes."""

from __future__ import annotations

from wdport.mapping.kinds.activations import BY_CLASS, Activation
from wdport.porting.outline.counterparts.counterpart import Counterpart, Given, layer
from wdport.porting.outline.keras_calls import KerasCall
from wdport.porting.outline.layout import keras_axis
from wdport.porting.outline.settings import Settings


def activation(name: str, told: Settings, given: Given) -> Counterpart:
    """All activations but ``PReLU``."""
    return (_along if BY_CLASS[name].along else _plain)(name, told, given)


def _plain(name: str, told: Settings, given: Given) -> Counterpart:
    """Elementwise activations."""
    own = BY_CLASS[name]
    notes = [own.note]
    settings = {**own.parameters, **{key: value for key, value in told.items() if key in own.parameters}}
    if name == "Softplus":
        if settings["beta"] != 1.0:
            return Counterpart("activation", (), (f"softplus(beta x) / beta with beta {settings['beta']:g}",))
        if settings["threshold"] <= 20.0:
            notes.append(f"PyTorch is linear above {settings['threshold']:g}, Keras nowhere: at most 2.1e-9 off")
    return Counterpart("activation", (_call(own, settings),), tuple(filter(None, notes)))


def _call(own: Activation, settings: Settings) -> KerasCall:
    arguments = {key: value(settings) for key, value in own.arguments.items()}
    layers = own.keras.startswith("layers.")
    return KerasCall(own.keras, arguments, {key: key for key in arguments if layers and key in own.parameters})


def _along(name: str, told: Settings, given: Given) -> Counterpart:
    """Softmax, its logarithm and GLU, which have an axis."""
    own, rank = BY_CLASS[name], len(given.shape)
    dim = told.get("dim", -1)
    notes = []
    if dim is None:
        dim = 0 if rank in (0, 1, 3) else 1
        notes.append(f"dim is not given: torch uses axis {dim}")
    axis = dim
    if rank and given.axes is not None:
        moved = keras_axis(given.axes, dim % rank)
        axis = (-1 if dim % rank == rank - 1 else dim) if moved is None else moved
    if own.note:
        notes.append(own.note)
    if axis % max(rank, 1) != dim % max(rank, 1):
        notes.append(f"axis {dim} is axis {axis} with channels last")
    return Counterpart("activation", (KerasCall(own.keras, {"axis": axis}),), tuple(notes))


def prelu(name: str, told: Settings, given: Given) -> Counterpart:
    """``PReLU``: a slope for every channel, or one for all."""
    spatial = tuple(range(1, len(given.shape) - 1))
    if told.get("num_parameters", 1) == 1:
        shared: tuple[int, ...] = (*spatial, len(given.shape) - 1) if len(given.shape) > 1 else ()
    else:
        shared = spatial
    return Counterpart("prelu", (layer("PReLU", {"shared_axes": list(shared) or None}),))
