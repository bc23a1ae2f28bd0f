"""Activations: forms, slopes, thresholds and axes whose defaults differ."""

from __future__ import annotations

from functools import partial
from typing import Any

from keras import layers
from torch import nn

from .layers import Function
from .pair import IMAGE, LAST, Pair

X = ((4, 50),)


def pair(name: str, torch: Any, keras: Any, wrong: dict[str, Any], no_model: str = "") -> Pair:
    """Inputs reach beyond every bend."""
    return Pair(name, "activation", torch, keras, X, wrong, scale=3.0, no_model=no_model)


class Drop(layers.Dropout):  # type: ignore[misc]
    """Dropout that is called with ``training``."""

    def __init__(self, rate: float, training: bool = False):
        super().__init__(rate, seed=0)
        self.training = training

    def call(self, x: Any) -> Any:
        return super().call(x, training=self.training)


def f(name: str, **options: Any) -> Any:
    """A function of Keras by name."""
    return partial(Function, name=name, **options)


PAIRS = (
    pair("gelu, erf", nn.GELU, f("gelu", approximate=False), {"tanh": {"approximate": True}}),
    pair("gelu, tanh", partial(nn.GELU, "tanh"), f("gelu", approximate=True), {"erf": {"approximate": False}}),
    pair("leaky_relu, slope 0.01", nn.LeakyReLU, partial(layers.LeakyReLU, negative_slope=0.01),
         {"the layer's 0.3": {"negative_slope": 0.3}, "the function's 0.2": {"negative_slope": 0.2}}),
    pair("leaky_relu, slope 0.2", partial(nn.LeakyReLU, 0.2), f("leaky_relu", negative_slope=0.2),
         {"PyTorch's 0.01": {"negative_slope": 0.01}}),
    pair("rrelu: the mean slope in inference", nn.RReLU, f("leaky_relu", negative_slope=(1 / 8 + 1 / 3) / 2),
         {"the lower slope": {"negative_slope": 1 / 8}, "the upper slope": {"negative_slope": 1 / 3}}),
    pair("relu", nn.ReLU, partial(layers.ReLU), {"relu6": {"max_value": 6.0}, "leaky": {"negative_slope": 0.01}}),
    pair("relu6", nn.ReLU6, partial(layers.ReLU, max_value=6.0), {"no maximum": {"max_value": None}}),
    pair("hardtanh (-2, 3)", partial(nn.Hardtanh, -2.0, 3.0), f("clip", x_min=-2.0, x_max=3.0),
         {"(-1, 1)": {"x_min": -1.0, "x_max": 1.0}, "(-3, 2)": {"x_min": -3.0, "x_max": 2.0}}),
    pair("elu, alpha 0.5", partial(nn.ELU, 0.5), partial(layers.ELU, alpha=0.5), {"alpha 1": {"alpha": 1.0}}),
    pair("celu, alpha 0.5", partial(nn.CELU, 0.5), f("celu", alpha=0.5), {"alpha 1": {"alpha": 1.0}}),
    pair("selu", nn.SELU, f("selu"), {"elu": {"name": "elu"}}),
    pair("silu", nn.SiLU, f("silu"), {"gelu": {"name": "gelu"}, "hard": {"name": "hard_silu"}}),
    pair("hardswish", nn.Hardswish, f("hard_silu"), {"smooth": {"name": "silu"}}),
    pair("hardsigmoid", nn.Hardsigmoid, f("hard_sigmoid"), {"smooth": {"name": "sigmoid"}}),
    pair("mish", nn.Mish, f("mish"), {"silu": {"name": "silu"}}),
    pair("softplus", partial(nn.Softplus, threshold=1e9), f("softplus"), {"relu": {"name": "relu"}},
         no_model="without its threshold PyTorch's overflows in float32"),
    pair("softsign", nn.Softsign, f("softsign"), {"tanh": {"name": "tanh"}}),
    pair("logsigmoid", nn.LogSigmoid, f("log_sigmoid"), {"sigmoid": {"name": "sigmoid"}}),
    pair("tanhshrink", nn.Tanhshrink, f("tanh_shrink"), {"tanh": {"name": "tanh"}}),
    pair("softshrink, 0.5", nn.Softshrink, f("soft_shrink", threshold=0.5), {"0.3": {"threshold": 0.3}}),
    pair("hardshrink, 0.5", nn.Hardshrink, f("hard_shrink", threshold=0.5), {"0.3": {"threshold": 0.3}}),
    pair("threshold 0.1, value 2", partial(nn.Threshold, 0.1, 2.0), f("threshold", threshold=0.1, default_value=2.0),
         {"value 0": {"default_value": 0.0}, "exchanged": {"threshold": 2.0, "default_value": 0.1}}),
    pair("softmax over the last axis", partial(nn.Softmax, -1), partial(layers.Softmax, axis=-1),
         {"the first": {"axis": 0}}),
    pair("log_softmax", partial(nn.LogSoftmax, -1), f("log_softmax", axis=-1), {"the first axis": {"axis": 0}}),
    Pair("softmax over channels", "activation", partial(nn.Softmax, 1), partial(layers.Softmax, axis=-1), IMAGE,
         {"PyTorch's axis 1": {"axis": 1}}, LAST[2]),
    Pair("glu over channels", "activation", partial(nn.GLU, 1), f("glu", axis=-1), IMAGE,
         {"PyTorch's axis 1 is rows": {"axis": 2}},
         LAST[2]),
    Pair("dropout: none in inference", "dropout", partial(nn.Dropout, 0.5), partial(Drop, rate=0.5), X,
         {"dropout as in training": {"training": True}}, code=("training",)),
)  # fmt: skip
