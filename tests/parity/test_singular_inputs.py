"""Inputs at which a computation is not unique: equal values to choose from, and values at which a slope is undefined;
and inputs that the user's own function draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers, ops
from torch import nn

from tests.parity.own_models import verify_own
from wdport.parity.verdict_api import Verdict

TABLE = """
format: 2
inputs: ["x: b 6"]
layers:
  - {torch: router, keras: router, kind: linear}
  - {torch: "experts.<n>", keras: "expert<n>", kind: linear}
"""


class Mixture(nn.Module):
    """Two of four experts for every sample, whose router gives zeros for zeros; the result has length one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(6, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(6, 5) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).topk(2)
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        return (outputs.gather(1, chosen[..., None].expand(-1, -1, 5)) * weights.softmax(-1)[..., None]).sum(1)


class Choose(layers.Layer):
    """Of the outputs of experts (B, E, F), the mean of those whose logits (B, E) are largest, or smallest."""

    def __init__(self, sign: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.sign = sign

    def call(self, logits: Any, outputs: Any) -> Any:
        weights, chosen = ops.top_k(self.sign * logits, 2)
        taken = ops.take_along_axis(outputs, chosen[..., None], axis=1)
        return ops.sum(taken * ops.softmax(self.sign * weights)[..., None], 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sign": self.sign}


def mixture_port(sign: float = 1.0) -> keras.Model:
    x = keras.Input((6,))
    outputs = ops.stack([layers.Dense(5, name=f"expert{index}")(x) for index in range(4)], 1)
    return keras.Model(x, Choose(sign)(layers.Dense(4, use_bias=False, name="router")(x), outputs))


def least_port() -> keras.Model:
    return mixture_port(-1.0)


class Unit(nn.Module):
    """Vectors of length one; PyTorch's norm has the slope 0 at 0."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(6, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.router(x)
        return y / (y.norm(dim=-1, keepdim=True) + 1e-3)


@keras.saving.register_keras_serializable("tests")
class Normalize(layers.Layer):
    """Divides by the norm; ``safe``: whose slope is 0 at 0."""

    def __init__(self, safe: bool, **options: Any) -> None:
        super().__init__(**options)
        self.safe = safe

    def call(self, y: Any) -> Any:
        square = ops.sum(y * y, -1, keepdims=True)
        if not self.safe:
            return y / (ops.sqrt(square) + 1e-3)
        some = square > 0
        return y / (ops.where(some, ops.sqrt(ops.where(some, square, 1.0)), 0.0) + 1e-3)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "safe": self.safe}


def unit_port(safe: bool = True) -> keras.Model:
    x = keras.Input((6,))
    return keras.Model(x, Normalize(safe)(layers.Dense(4, use_bias=False, name="router")(x)))


def unsafe_port() -> keras.Model:
    return unit_port(False)


def make_inputs(seed: int, batch: int, scale: float) -> list[np.ndarray]:
    return [scale * np.random.default_rng(seed).standard_normal((batch, 6))]


def unit_with_inputs() -> Any:
    return Unit(), make_inputs


def verdict_of(folder: Path, reference: str, port: str, table: str = TABLE, **options: Any) -> Verdict:
    made: Any = globals()[reference]()
    module = made[0] if isinstance(made, tuple) else made
    return verify_own(folder, table, module, f"{__name__}:{reference}", f"{__name__}:{port}", **options)


@pytest.mark.parametrize(("port", "passes"), [("mixture_port", True), ("least_port", False)])
def test_a_choice_among_equal_values_is_no_fault(port: str, passes: bool, tmp_path: Path) -> None:
    assert bool(verdict_of(tmp_path, "Mixture", port)) == passes


UNIT_TABLE = TABLE.rpartition("  - ")[0]


def test_a_slope_that_is_undefined_in_the_port_alone_is_named(tmp_path: Path) -> None:
    assert verdict_of(tmp_path, "Unit", "unit_port", UNIT_TABLE, train=True)
    (tmp_path / "other").mkdir()
    verdict = verdict_of(tmp_path / "other", "Unit", "unsafe_port", UNIT_TABLE, train=True)
    assert not verdict
    text = "the gradient by router/kernel is not finite for inputs that are zeros, and PyTorch's is"
    assert [gate.name for gate in verdict.gates if not gate.passed] == ["M"]
    assert text in verdict.summary()


def test_the_full_battery_draws_inputs_by_the_users_function(tmp_path: Path) -> None:
    without = UNIT_TABLE.replace('inputs: ["x: b 6"]\n', "")
    assert verdict_of(tmp_path, "unit_with_inputs", "unit_port", without, full=True)
