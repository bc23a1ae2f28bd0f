"""The catalogue of layer kinds names classes that both libraries have, and says of a module what kind it is."""

from __future__ import annotations

import inspect
from typing import Any

import keras
import pytest
import torch
from torch import nn

from wdport.mapping.kinds import CATALOGUE, KINDS, kinds_of_layer, kinds_of_module
from wdport.mapping.kinds.activations import BY_CLASS
from wdport.mapping.kinds.kind import Kind

layers: Any = keras.layers

MODULES: dict[str, tuple[nn.Module, tuple[str, ...]]] = {
    "one group": (nn.Conv2d(4, 4, 3), ("conv2d",)),
    "a group per channel": (nn.Conv2d(4, 4, 3, groups=4), ("conv2d", "depthwise_conv2d")),
    "three axes": (nn.Conv3d(4, 4, 3, groups=4), ("conv3d",)),
    "one direction": (nn.LSTM(3, 4), ("lstm",)),
    "two directions": (nn.LSTM(3, 4, bidirectional=True), ("bidirectional_lstm",)),
    "a cell": (nn.GRUCell(3, 4), ("gru_cell",)),
    "instances": (nn.InstanceNorm2d(4), ("group_norm",)),
    "instances with running statistics": (nn.InstanceNorm2d(4, track_running_stats=True), ("batch_norm",)),
    "batches across devices": (nn.SyncBatchNorm(4), ("batch_norm",)),
    "a base of PyTorch's": (nn.MultiheadAttention(4, 2).out_proj, ("linear",)),
    "a layer without tensors": (nn.Dropout(), ()),
    "a function": (nn.ReLU(), ()),
}


@pytest.mark.parametrize("case", MODULES)
def test_the_kinds_of_a_module(case: str) -> None:
    module, kinds = MODULES[case]
    assert kinds_of_module(module) == kinds


def test_the_kinds_of_a_layer() -> None:
    class Mine(layers.Layer):  # type: ignore[misc]
        """A user's own."""

    assert kinds_of_layer(layers.Conv2D(3, 3)) == ("conv2d", "conv1d", "conv3d", "linear")
    assert kinds_of_layer(layers.Dense(3)) == ("linear", "conv1d", "conv2d", "conv3d")
    assert kinds_of_layer(layers.LayerNormalization()) == ("layer_norm", "rms_norm")
    assert kinds_of_layer(layers.Dropout(0.1)) == ()
    assert kinds_of_layer(Mine()) is None


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: kind.name)
def test_both_libraries_have_what_a_kind_names(kind: Kind) -> None:
    for each in kind.torch:
        found: Any = torch
        for part in each.name.split(".")[1:]:
            found = getattr(found, part)
        assert issubclass(found, nn.Module), each.name
    assert all(hasattr(layers, name) or hasattr(keras, name) for name in kind.keras)


def test_names_are_unique_and_every_kind_is_known_by_its_class() -> None:
    assert len({kind.name for kind in CATALOGUE}) == len(CATALOGUE)
    assert {kind.name for kind in CATALOGUE if not kind.torch} == {"attention"}
    assert set(KINDS) <= {kind.name for kind in CATALOGUE}


def test_activations_are_those_of_both_libraries() -> None:
    for each in BY_CLASS.values():
        module = getattr(nn, each.torch)
        known = {name: own.default for name, own in inspect.signature(module).parameters.items()}
        for name, value in each.parameters.items():
            assert name in known or "kwargs" in known
            assert value is None or known.get(name) in (value, None) or name == "dim", (each.torch, name)
        where, _, name = each.keras.partition(".")
        assert hasattr(getattr(keras, where), name), each.keras
        assert all(hasattr(nn.functional, function) or function == "log_sigmoid" for function in each.functions)
