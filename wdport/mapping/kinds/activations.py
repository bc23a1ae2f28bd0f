"""Activation functions: what each is called in PyTorch, in Keras and in a table, and how its settings correspond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, log1p
from types import MappingProxyType
from typing import Any

from wdport.mapping.axes import ANY_LAYOUT
from wdport.mapping.kinds.kind import (
    Compared,
    Counterpart,
    KerasCall,
    Kind,
    Settings,
    TorchCall,
    TorchClass,
    TorchFunction,
    keras_axis,
)


@dataclass(frozen=True)
class Activation:
    """An activation function.

    Attributes:
        torch: its class in ``torch.nn``; empty for another activation with other settings that a table names too.
        functions: its names in ``torch.nn.functional``.
        parameters: hyper-parameters of the class with their defaults, in the order of the functions' arguments.
        keras: the layer or the function of Keras, such as ``activations.silu``.
        arguments: values of Keras's arguments, by the hyper-parameters.
        row: what a table calls it after a module (``then: relu``); empty if Keras's layers do not include it.
        note: a difference to mention.
        along: whether it has an axis.
        settings: hyper-parameters that a module does not have as attributes.
        title: what messages call it, if that is not Keras's name.
        common: whether models often exchange it for another by mistake, so that ``map suggest`` tries it.
    """

    torch: str
    functions: tuple[str, ...]
    keras: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    arguments: Mapping[str, Callable[[Settings], object]] = field(default_factory=dict)
    row: str = ""
    note: str = ""
    along: bool = False
    settings: Callable[[Any], Settings] = lambda module: {}
    title: str = ""
    common: bool = False

    @property
    def keras_name(self) -> str:
        """The name in Keras without its module, such as ``silu``."""
        return self.keras.rpartition(".")[2]


def _value(name: str) -> Callable[[Settings], object]:
    return lambda settings: settings[name]


def _mean_slope(settings: Settings) -> object:
    return (settings["lower"] + settings["upper"]) / 2


_DIM = {"dim": -1}
_LAMBD = {"lambd": 0.5}
_THRESHOLD = {"threshold": _value("lambd")}

ACTIVATIONS = (
    Activation("ReLU", ("relu",), "layers.ReLU", row="relu", common=True),
    Activation("Sigmoid", ("sigmoid",), "activations.sigmoid", row="sigmoid", common=True),
    Activation("Tanh", ("tanh",), "activations.tanh", row="tanh", common=True),
    Activation("SiLU", ("silu",), "activations.silu", row="silu", title="SiLU", common=True),
    Activation(
        "GELU", ("gelu",), "activations.gelu", {"approximate": "none"},
        {"approximate": lambda settings: settings["approximate"] == "tanh"},
        row="gelu", common=True,
    ),
    Activation("Softmax", ("softmax",), "layers.Softmax", _DIM, row="softmax", along=True),
    Activation(
        "Softplus", ("softplus",), "activations.softplus", {"beta": 1.0, "threshold": 20.0}, row="softplus", common=True
    ),
    Activation(
        "ELU", ("elu",), "layers.ELU", {"alpha": 1.0}, {"alpha": _value("alpha")}, row="elu", title="ELU", common=True
    ),
    Activation(
        "LeakyReLU", ("leaky_relu",), "layers.LeakyReLU", {"negative_slope": 0.01},
        {"negative_slope": _value("negative_slope")}, row="leaky_relu", common=True,
    ),
    Activation("ReLU6", ("relu6",), "layers.ReLU", {}, {"max_value": lambda _: 6.0}, row="relu6", common=True),
    # A table's row cannot state `approximate`, so it has a name for each of the two.
    Activation("", (), "activations.gelu", {"approximate": "tanh"}, row="gelu_tanh"),
    Activation(
        "Hardsigmoid", ("hardsigmoid",), "activations.hard_sigmoid", row="hard_sigmoid", title="hard sigmoid",
        common=True,
    ),
    Activation("Hardswish", ("hardswish",), "activations.hard_silu", row="hard_silu", title="hard SiLU", common=True),
    Activation(
        "Hardtanh", ("hardtanh",), "ops.clip", {"min_val": -1.0, "max_val": 1.0},
        {"x_min": _value("min_val"), "x_max": _value("max_val")}, row="hard_tanh", common=True,
    ),
    Activation("SELU", ("selu",), "activations.selu", row="selu", title="SELU", common=True),
    Activation("Mish", ("mish",), "activations.mish", row="mish", title="Mish", common=True),
    Activation(
        "LogSoftmax", ("log_softmax",), "activations.log_softmax", _DIM, row="log_softmax", along=True
    ),
    Activation("Softsign", ("softsign",), "activations.softsign", common=True),
    Activation("CELU", ("celu",), "activations.celu", {"alpha": 1.0}, {"alpha": _value("alpha")}, title="CELU"),
    Activation("LogSigmoid", ("logsigmoid", "log_sigmoid"), "activations.log_sigmoid"),
    Activation("Tanhshrink", ("tanhshrink",), "activations.tanh_shrink"),
    Activation("Softshrink", ("softshrink",), "activations.soft_shrink", _LAMBD, _THRESHOLD),
    Activation("Hardshrink", ("hardshrink",), "activations.hard_shrink", _LAMBD, _THRESHOLD),
    Activation(
        "Threshold", ("threshold",), "activations.threshold", {"threshold": None, "value": None},
        {"threshold": _value("threshold"), "default_value": _value("value")},
    ),
    Activation(
        "RReLU", ("rrelu",), "activations.leaky_relu", {"lower": 1 / 8, "upper": 1 / 3},
        {"negative_slope": _mean_slope},
        note="in inference the mean slope; in training it is drawn, which Keras does not do",
    ),
    Activation("Softmin", ("softmin",), "layers.Softmax", _DIM, note="of the negative input", along=True),
    Activation("GLU", ("glu",), "activations.glu", _DIM, along=True),
    Activation("Softmax2d", (), "layers.Softmax", along=True, settings=lambda _: {"dim": 1}),
)  # fmt: skip
"""All activation functions, those that tables name first."""

BY_CLASS: Mapping[str, Activation] = MappingProxyType(
    {activation.torch: activation for activation in ACTIVATIONS if activation.torch}
)
"""Activation by its class in ``torch.nn``."""

ROW_NAMES = tuple(activation.row for activation in ACTIVATIONS if activation.row)
"""What a table may state after a module."""


def _counterpart(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    activation = BY_CLASS[name]
    return _along(activation, settings, call) if activation.along else _elementwise(activation, settings)


def _elementwise(activation: Activation, settings: Settings) -> Counterpart:
    settings = {key: settings.get(key, default) for key, default in activation.parameters.items()}
    notes = [activation.note] if activation.note else []
    if activation.torch == "Softplus":
        if settings["beta"] != 1.0:
            return Counterpart((), (f"softplus(beta x) / beta with beta {settings['beta']:g}",))
        threshold = settings["threshold"]
        # The largest difference is that at the threshold, softplus(t) - t: 2.1e-9 at PyTorch's default of 20.
        if threshold <= 20.0:
            difference = f"{log1p(exp(-threshold)):.1e}".replace("e-0", "e-")
            notes.append(f"PyTorch is linear above {threshold:g}, Keras nowhere: at most {difference} off")
    arguments = {key: value(settings) for key, value in activation.arguments.items()}
    layers = activation.keras.startswith("layers.")
    origin = {key: key for key in arguments if layers and key in activation.parameters}
    return Counterpart((KerasCall(activation.keras, arguments, origin),), tuple(notes))


def _along(activation: Activation, settings: Settings, call: TorchCall) -> Counterpart:
    """Softmax, its logarithm and GLU, which have an axis."""
    rank, dim = len(call.shape), settings.get("dim", -1)
    notes = []
    if dim is None:
        # What torch.nn.functional._get_softmax_dim does, with a warning.
        dim = 0 if rank in (0, 1, 3) else 1
        notes.append(f"dim is not given: torch uses axis {dim}")
    axis = dim
    if rank and call.axes is not None:
        place = keras_axis(call.axes, dim % rank)
        # Keras has channels last, so the last axis is written as -1, which any rank understands.
        axis = (-1 if dim % rank == rank - 1 else dim) if place is None else place
    if activation.note:
        notes.append(activation.note)
    if axis % max(rank, 1) != dim % max(rank, 1):
        notes.append(f"axis {dim} is axis {axis} with channels last")
    return Counterpart((KerasCall(activation.keras, {"axis": axis}),), tuple(notes))


ALL = (
    Kind(
        "activation",
        axes=ANY_LAYOUT,
        compared=(Compared("negative_slope", "negative_slope", "equal"), Compared("alpha", "alpha", "equal")),
        torch=tuple(
            TorchClass(f"torch.nn.{name}", settings=activation.settings) for name, activation in BY_CLASS.items()
        ),
        functions=tuple(
            TorchFunction(
                name,
                activation.torch,
                ("input", *activation.parameters),
                aliases=(f"_{name}",) if activation.along else (),
            )
            for activation in ACTIVATIONS
            for name in activation.functions
        ),
        call=_counterpart,
        evident=False,
    ),
)
