"""What other code uses of a port: shapes, names and dtypes of its outputs, sizes other than the stated ones, and the
model that Keras builds from the file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import torch
from keras import layers, ops
from torch import nn

from tests.parity.own_models import verify_own
from wdport.parity.reports.text import render_text

TABLE = """
format: 2
inputs: ["x: b 2 n=9"]
layers:
  - {torch: conv, keras: conv, kind: conv1d}
  - {torch: head, keras: head, kind: linear}
  - {torch: norm, keras: norm, kind: batch_norm}
"""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head, self.norm = nn.Conv1d(2, 4, 3, 2, 1), nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.norm(self.head(nn.functional.leaky_relu(self.conv(x), 0.3).mean(-1)))
        return {"scores": y, "best": y[:, 0], "likely": y > 0}


@keras.saving.register_keras_serializable("tests")
class Slope(layers.Layer):
    """Leaves its slope out of its configuration, unless ``stored``."""

    def __init__(self, slope: float = 0.01, stored: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.slope, self.stored = slope, stored

    def call(self, x: Any) -> Any:
        return ops.leaky_relu(x, self.slope)

    def get_config(self) -> dict[str, Any]:
        stored = {"slope": self.slope, "stored": True} if self.stored else {}
        return {**super().get_config(), **stored}


@keras.saving.register_keras_serializable("tests")
class Private(Slope):
    """Has its slope in a dictionary, which is not compared."""

    def __init__(self, slope: float = 0.01, **options: Any) -> None:
        super().__init__(0.0, **options)
        self._values = {"slope": slope}

    def call(self, x: Any) -> Any:
        return ops.leaky_relu(x, self._values["slope"])


@keras.saving.register_keras_serializable("tests")
class Restless(layers.BatchNormalization):
    """Changes its statistics in inference as well, after it has used them."""

    def call(self, x: Any, training: bool = False) -> Any:
        y = super().call(x, training=False)
        self.moving_mean.assign(self.moving_mean * 0.9)
        return y


def port(
    same: bool = False,
    stored: bool = True,
    name: str = "scores",
    axis: bool = False,
    likely: str = "bool",
    norm: Callable[..., layers.Layer] = layers.BatchNormalization,
    slope: type[Slope] = Slope,
) -> keras.Model:
    x = keras.Input((None, 2))
    y = x if same else layers.ZeroPadding1D(1)(x)
    y = slope(0.3, stored=stored, name="slope")(
        layers.Conv1D(4, 3, 2, padding="same" if same else "valid", name="conv")(y)
    )
    y = norm(epsilon=1e-5, name="norm")(layers.Dense(3, name="head")(layers.GlobalAveragePooling1D()(y)))
    best = y[:, :1] if axis else y[:, 0]
    return keras.Model(x, {name: y, "best": best, "likely": ops.cast(y > 0, likely)})


PORTS: dict[str, tuple[Callable[[], keras.Model], str]] = {
    "correct": (port, ""),
    "padding that is right for odd sizes": (lambda: port(same=True), "output"),
    "an axis more": (lambda: port(axis=True), "shape (4,) where the port has (4, 1)"),
    "another name": (lambda: port(name="logits"), "names best, likely, scores where the port has best, likely, logits"),
    "another dtype": (lambda: port(likely="float32"), "dtype bool where the port has float"),
    "statistics of inference": (
        lambda: port(norm=Restless),
        "norm/moving_mean is assigned by calls in evaluation mode",
    ),
    "an attribute that is not saved": (lambda: port(stored=False), "slope has slope 0.01 where Keras builds it"),
    "a dictionary that is not saved": (
        lambda: port(stored=False, slope=Private),
        "the outputs of the model that keras.saving.load_model builds from the file are off by",
    ),
}


@pytest.mark.parametrize("name", PORTS)
def test_what_other_code_uses_is_compared(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, message = PORTS[name]
    monkeypatch.setattr(sys.modules[__name__], "chosen", build, raising=False)
    verdict = verify_own(tmp_path, TABLE, Net(), f"{__name__}:Net", f"{__name__}:chosen")
    assert bool(verdict) == (not message)
    assert message in verdict.summary()


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv0, self.conv1 = nn.Conv1d(2, 4, 3, 2, 1), nn.Conv1d(4, 4, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv1(self.conv0(x).relu()).mean(-1)


def halved_port(same: bool = True) -> keras.Model:
    x = keras.Input((None, 2))
    y = ops.relu(layers.Conv1D(4, 3, 2, name="conv0")(layers.ZeroPadding1D(1)(x)))
    y = y if same else layers.ZeroPadding1D(1)(y)
    y = layers.Conv1D(4, 3, 2, padding="same" if same else "valid", name="conv1")(y)
    return keras.Model(x, layers.GlobalAveragePooling1D()(y))


def test_padding_that_is_right_for_odd_sizes_is_found_after_another_layer(tmp_path: Path) -> None:
    table = ("format: 2\ninputs: ['x: b 2 n=33']\n"
             "layers: [{torch: conv<n>, keras: conv<n>, kind: conv1d}]\n")  # fmt: skip
    verdict = verify_own(tmp_path, table, Halved(), f"{__name__}:Halved", f"{__name__}:halved_port")
    assert not verdict
    assert verdict.faults[0].reference == "conv1"


@pytest.mark.parametrize("same", [False, True])
def test_a_table_without_layers_compares_the_outputs(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "chosen", lambda: halved_port(same), raising=False)
    table = """
format: 2
inputs: ['x: b 2 n=33']
tensors:
  - {torch: conv<n>.weight, keras: conv<n>/kernel, rule: "o i k -> k i o"}
  - {torch: conv<n>.bias, keras: conv<n>/bias, rule: identity}
"""
    verdict = verify_own(tmp_path, table, Halved(), f"{__name__}:Halved", f"{__name__}:chosen")
    assert bool(verdict) == (not same)
    assert [fault.reference for fault in verdict.faults] == ["output"] * same
    assert "only the outputs are compared" in render_text(verdict, 100)


class Mean(nn.Module):
    """The mean of embeddings without those of the padding, whose id no layer states."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(3000, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        seen = (ids != 1).unsqueeze(-1).to(self.words.weight.dtype)
        return (self.words(ids) * seen).sum(1) / seen.sum(1).clamp(min=1)


def mean_port() -> keras.Model:
    ids = keras.Input((None,), dtype="int32")
    return keras.Model(ids, layers.GlobalAveragePooling1D()(layers.Embedding(3000, 4, name="words")(ids)))


def test_a_missing_mask_is_found(tmp_path: Path) -> None:
    table = ("format: 2\ninputs: ['ids: b n=12, below 3000']\n"
                     "layers: [{torch: words, keras: words, kind: embedding}]\n")  # fmt: skip
    assert not verify_own(tmp_path, table, Mean(), f"{__name__}:Mean", f"{__name__}:mean_port")


HEADS = """
format: 2
inputs: ["x: b 6"]
layers:
  - {torch: first, keras: first, kind: linear}
  - {torch: second, keras: second, kind: linear}
"""


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rms = (x.float().pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
        return self.first(x * rms), self.second(x * rms)


@keras.saving.register_keras_serializable("tests")
class Rms(layers.Layer):
    """Computes in float32 if ``forced``, otherwise in the wider of float32 and the dtype of its inputs."""

    def __init__(self, forced: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.forced = forced

    def call(self, x: Any) -> Any:
        wide = ops.cast(x, "float32" if self.forced else keras.backend.result_type(x.dtype, "float32"))
        return x * ops.cast(ops.rsqrt(ops.mean(wide * wide, -1, keepdims=True) + 1e-6), x.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "forced": self.forced}


def heads_port(
    change: Callable[[Any, Any], list[Any]] = lambda first, second: [first, second], forced: bool = False
) -> Any:
    x = keras.Input((6,))
    y = Rms(forced, name="rms")(x)
    return keras.Model(x, change(layers.Dense(3, name="first")(y), layers.Dense(3, name="second")(y)))


CAUSES: dict[str, tuple[Callable[[], keras.Model], str]] = {
    "correct": (heads_port, ""),
    "swapped": (
        lambda: heads_port(lambda first, second: [second, first]),
        "probably: its output 0 is the output of second",
    ),
    "softmax": (
        lambda: heads_port(lambda first, second: [first, ops.softmax(second)]),
        "probably: softmax: axis 1 where the reference has none",
    ),
    "ReLU": (
        lambda: heads_port(lambda first, second: [ops.relu(first), second]),
        "probably: activation: ReLU where the reference has none",
    ),
    # A float32 that the code states is the port's own dtype, and float64 in the float64 comparison, as in PyTorch.
    "float32": (lambda: heads_port(forced=True), ""),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_fault_outside_all_layers_has_a_cause(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, cause = CAUSES[name]
    monkeypatch.setattr(sys.modules[__name__], "chosen", build, raising=False)
    verdict = verify_own(tmp_path, HEADS, Heads(), f"{__name__}:Heads", f"{__name__}:chosen")
    assert bool(verdict) == (not cause)
    assert cause in verdict.summary()
