"""Activations: names, slopes and axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from wdport.porting.outline.counterparts.counterpart import Counterpart, Given, activation, layer
from wdport.porting.outline.keras_calls import KerasCall
from wdport.porting.outline.layout import keras_axis
from wdport.porting.outline.settings import Settings


def _clip(told: Settings) -> KerasCall:
    return KerasCall("ops.clip", {"x_min": told.get("min_val", -1.0), "x_max": told.get("max_val", 1.0)})


def _slope(told: Settings) -> KerasCall:
    slope = told.get("negative_slope", 0.01)
    return layer("LeakyReLU", {"negative_slope": slope}, negative_slope="negative_slope")


_CALLS: Mapping[str, Callable[[Settings], KerasCall]] = MappingProxyType({
    "ReLU": lambda told: layer("ReLU", {}),
    "ReLU6": lambda told: layer("ReLU", {"max_value": 6.0}),
    "LeakyReLU": _slope,
    "ELU": lambda told: layer("ELU", {"alpha": told.get("alpha", 1.0)}, alpha="alpha"),
    "CELU": lambda told: activation("celu", alpha=told.get("alpha", 1.0)),
    "SELU": lambda told: activation("selu"),
    "GELU": lambda told: activation("gelu", approximate=told.get("approximate", "none") == "tanh"),
    "SiLU": lambda told: activation("silu"),
    "Hardswish": lambda told: activation("hard_silu"),
    "Sigmoid": lambda told: activation("sigmoid"),
    "Hardsigmoid": lambda told: activation("hard_sigmoid"),
    "Tanh": lambda told: activation("tanh"),
    "Hardtanh": _clip,
    "Mish": lambda told: activation("mish"),
    "Softplus": lambda told: activation("softplus"),
    "Softsign": lambda told: activation("softsign"),
    "LogSigmoid": lambda told: activation("log_sigmoid"),
    "Tanhshrink": lambda told: activation("tanh_shrink"),
    "Softshrink": lambda told: activation("soft_shrink", threshold=told.get("lambd", 0.5)),
    "Hardshrink": lambda told: activation("hard_shrink", threshold=told.get("lambd", 0.5)),
    "Threshold": lambda told: activation("threshold", threshold=told["threshold"], default_value=told["value"]),
    "RReLU": lambda told: activation(
        "leaky_relu", negative_slope=(told.get("lower", 1 / 8) + told.get("upper", 1 / 3)) / 2
    ),
})  # fmt: skip

NAMES = tuple(_CALLS)

_NOTES: Mapping[str, str] = MappingProxyType({
    "RReLU": "in inference the mean slope; in training it is drawn, which Keras does not do",
    "LogSigmoid": "",
})  # fmt: skip


def plain(name: str, told: Settings, given: Given) -> Counterpart:
    """Elementwise activations."""
    notes = [_NOTES.get(name, "")]
    if name == "Softplus":
        if told.get("beta", 1.0) != 1.0:
            return Counterpart("activation", (), (f"softplus(beta x) / beta with beta {told['beta']:g}",))
        if told.get("threshold", 20.0) <= 20.0:
            notes.append(f"PyTorch is linear above {told.get('threshold', 20.0):g}, Keras nowhere: at most 2.1e-9 off")
    return Counterpart("activation", (_CALLS[name](told),), tuple(filter(None, notes)))


def along(name: str, told: Settings, given: Given) -> Counterpart:
    """Softmax, its logarithm and GLU, which have an axis."""
    rank = len(given.shape)
    dim = told.get("dim", -1)
    notes = []
    if dim is None:
        dim = 0 if rank in (0, 1, 3) else 1
        notes.append(f"dim is not given: torch uses axis {dim}")
    axis = dim
    if rank and given.axes is not None:
        moved = keras_axis(given.axes, dim % rank)
        axis = (-1 if dim % rank == rank - 1 else dim) if moved is None else moved
    call = {
        "LogSoftmax": activation("log_softmax", axis=axis), "GLU": activation("glu", axis=axis),
    }.get(name, layer("Softmax", {"axis": axis}))  # fmt: skip
    if name == "Softmin":
        notes.append("of the negative input")
    if axis % max(rank, 1) != dim % max(rank, 1):
        notes.append(f"axis {dim} is axis {axis} with channels last")
    return Counterpart("activation", (call,), tuple(notes))


def prelu(name: str, told: Settings, given: Given) -> Counterpart:
    """``PReLU``: a slope for every channel, or one for all."""
    spatial = tuple(range(1, len(given.shape) - 1))
    if told.get("num_parameters", 1) == 1:
        shared: tuple[int, ...] = (*spatial, len(given.shape) - 1) if len(given.shape) > 1 else ()
    else:
        shared = spatial
    return Counterpart("prelu", (layer("PReLU", {"shared_axes": list(shared) or None}),))
