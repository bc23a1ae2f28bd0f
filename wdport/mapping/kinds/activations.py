"""Activation functions: what each is called in PyTorch, in Keras and in a table, and how its settings correspond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from wdport.mapping.catalog import layouts
from wdport.mapping.kinds.kind import Compared, Kind, TorchFunction, torch_classes

Settings = Mapping[str, Any]
"""Hyper-parameters of a module of PyTorch by name."""


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
    Activation("SiLU", ("silu",), "activations.silu", row="silu", common=True),
    Activation(
        "GELU", ("gelu",), "activations.gelu", {"approximate": "none"},
        {"approximate": lambda settings: settings["approximate"] == "tanh"},
        row="gelu", common=True,
    ),
    Activation("Softmax", ("softmax",), "layers.Softmax", _DIM, row="softmax", along=True),
    Activation(
        "Softplus", ("softplus",), "activations.softplus", {"beta": 1.0, "threshold": 20.0}, row="softplus", common=True
    ),
    Activation("ELU", ("elu",), "layers.ELU", {"alpha": 1.0}, {"alpha": _value("alpha")}, row="elu", common=True),
    Activation(
        "LeakyReLU", ("leaky_relu",), "layers.LeakyReLU", {"negative_slope": 0.01},
        {"negative_slope": _value("negative_slope")}, row="leaky_relu", common=True,
    ),
    Activation("ReLU6", ("relu6",), "layers.ReLU", {}, {"max_value": lambda _: 6.0}, row="relu6", common=True),
    Activation("", (), "activations.gelu", {"approximate": "tanh"}, row="gelu_tanh"),
    Activation("Hardsigmoid", ("hardsigmoid",), "activations.hard_sigmoid", row="hard_sigmoid", common=True),
    Activation("Hardswish", ("hardswish",), "activations.hard_silu", row="hard_silu", common=True),
    Activation(
        "Hardtanh", ("hardtanh",), "ops.clip", {"min_val": -1.0, "max_val": 1.0},
        {"x_min": _value("min_val"), "x_max": _value("max_val")}, row="hard_tanh", common=True,
    ),
    Activation("SELU", ("selu",), "activations.selu", row="selu", common=True),
    Activation("Mish", ("mish",), "activations.mish", row="mish", common=True),
    Activation(
        "LogSoftmax", ("log_softmax",), "activations.log_softmax", _DIM, row="log_softmax", along=True
    ),
    Activation("Softsign", ("softsign",), "activations.softsign", common=True),
    Activation("CELU", ("celu",), "activations.celu", {"alpha": 1.0}, {"alpha": _value("alpha")}),
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
    Activation("Softmax2d", (), "layers.Softmax", _DIM, along=True),
)  # fmt: skip
"""All activation functions, those that tables name first."""

BY_CLASS: Mapping[str, Activation] = MappingProxyType({each.torch: each for each in ACTIVATIONS if each.torch})
"""Activation by its class in ``torch.nn``."""

ROW_NAMES = tuple(each.row for each in ACTIVATIONS if each.row)
"""What a table may state after a module."""

# Four axes are an image; three are a sequence, whose features come last in both unless the shapes say otherwise.
ANY_LAYOUT = layouts("b c h w -> b h w c", "b c d h w -> b d h w c", "...", "b c l -> b l c")

ALL = (
    Kind(
        "activation",
        axes=ANY_LAYOUT,
        compared=(Compared("negative_slope", "negative_slope", "equal"), Compared("alpha", "alpha", "equal")),
        torch=torch_classes(*BY_CLASS),
        functions=tuple(
            TorchFunction(name, each.torch, ("input", *each.parameters))
            for each in ACTIVATIONS
            for name in each.functions
        ),
        evident=False,
    ),
)
