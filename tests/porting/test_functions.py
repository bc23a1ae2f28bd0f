"""Functions of torch are read by the same declarations as the layers that they equal."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from wdport.mapping.kinds import CATALOGUE, FUNCTIONS
from wdport.mapping.kinds.kind import Kind, LayerCall, TorchCall, TorchFunction
from wdport.porting.functions import bound
from wdport.porting.graph import Node, TensorSource, TracedTensor
from wdport.porting.layer_units import module_of
from wdport.porting.outline.counterparts import LAYERS, call_text, finder, of_function

X = TracedTensor(TensorSource("input", "x"), (2, 4, 6, 6), "float32")
C = TracedTensor(TensorSource("parameter", "w"), (4,), "float32")

SAID: dict[str, tuple[str, tuple[object, ...], str]] = {
    "a dropout of channels": ("dropout2d", (X, 0.1, False), "SpatialDropout2D(0.1)"),
    "a dropout of noise": ("alpha_dropout", (X, 0.1, False), "AlphaDropout(0.1)"),
    "instances, all by position": ("instance_norm", (X, None, None, C, C, True, 0.1, 1e-5),
                                   "GroupNormalization(-1, epsilon=1e-05)"),
    "running statistics": ("instance_norm", (X, C, C, C, C, False, 0.1, 1e-5),
                           "BatchNormalization(momentum=0.9, epsilon=1e-05)"),
    "a slope that is drawn": ("rrelu", (X, 0.125, 0.375), "activations.leaky_relu(negative_slope=0.25)"),
    "channels in another order": ("channel_shuffle", (X, 2), "b h w (groups c) -> b h w (c groups)"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_what_a_function_is_in_keras(case: str) -> None:
    name, args, words = SAID[case]
    node = Node(0, f"torch.nn.functional.{name}", args)
    _, found = of_function(node.name, bound(node), TorchCall(X.shape))
    assert found == words


@pytest.mark.parametrize("function", ["dropout", "dropout1d", "dropout2d", "dropout3d"])
def test_a_dropout_that_drops_in_inference_is_noted(function: str) -> None:
    found, _ = of_function(function, {"p": 0.1}, TorchCall(X.shape))
    assert any("drops values in inference" in note for note in found.notes)
    found, _ = of_function(function, {"p": 0.1, "training": False}, TorchCall(X.shape))
    assert not found.notes


MODULES: dict[str, tuple[dict[str, object], nn.Module]] = {
    "softmax": ({"dim": 1}, nn.Softmax(1)),
    "celu": ({"1": 0.5}, nn.CELU(0.5)),
    "hardshrink": ({"lambd": 0.2}, nn.Hardshrink(0.2)),
    "threshold": ({"1": 0.1, "2": 3.0}, nn.Threshold(0.1, 3.0)),
    "avg_pool2d": ({"1": 3, "divisor_override": 2}, nn.AvgPool2d(3, divisor_override=2)),
    "max_pool1d": ({"kernel_size": 3, "stride": None}, nn.MaxPool1d(3)),
}


@pytest.mark.parametrize("function", MODULES)
def test_the_module_of_a_function(function: str) -> None:
    arguments, module = MODULES[function]
    found: Any = module_of(function, arguments)
    names = inspect.signature(type(module)).parameters
    assert type(found) is type(module)
    assert all(getattr(found, name, None) == getattr(module, name, None) for name in names)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda each: each.name)
def test_functions_and_their_parameters_are_those_of_the_installed_torch(function: TorchFunction) -> None:
    name = function.name.replace("log_sigmoid", "logsigmoid")  # a tensor's own operator has the first name
    found = getattr(nn.functional, name, None) or getattr(torch, name)
    assert hasattr(nn, function.module)
    assert function.module in LAYERS
    try:
        known = list(inspect.signature(inspect.unwrap(found)).parameters)
    except ValueError:  # written in C++
        return
    if {"args", "kwargs"} != set(known):
        assert [name for name in known if name in function.parameters] == list(function.parameters)


def test_every_class_of_the_catalogue_has_a_counterpart() -> None:
    classes = {each.short for kind in CATALOGUE for each in kind.torch if not each.short.startswith("_")}
    assert set(LAYERS) == classes - {"Sequential"}


def test_a_kind_may_declare_its_layer_of_keras() -> None:
    kind = Kind("noise", call=LayerCall("GaussianDropout", {"rate": "p", "seed": "seed"}))
    find = finder(kind)
    assert find is not None
    (call,) = find("Noise", {"p": 0.3, "seed": None}, TorchCall()).calls
    assert call_text(call) == "GaussianDropout(0.3)"
    assert dict(call.origin) == {"rate": "p", "seed": "seed"}


def test_a_softplus_threshold_is_noted_with_its_difference() -> None:
    x = torch.linspace(-9.0, 9.0, 100_000, dtype=torch.float64)
    for threshold, largest in ((20.0, "2.1e-9"), (5.0, "6.7e-3"), (1.0, "3.1e-1")):
        found = LAYERS["Softplus"]("Softplus", {"beta": 1.0, "threshold": threshold}, TorchCall((2, 3)))
        off = (nn.Softplus(threshold=threshold)(x) - nn.Softplus()(x)).abs().max().item()
        assert found.notes == (f"PyTorch is linear above {threshold:g}, Keras nowhere: at most {largest} off",)
        assert off <= float(largest) * 1.02
