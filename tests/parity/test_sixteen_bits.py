"""References that round to 16 bits where their code says so: a port must round as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest
import torch
from keras import layers, ops
from torch import nn

from tests.parity.own_models import verify_own

HERE = "tests.parity.test_sixteen_bits"
TABLE = """
format: 2
inputs: ["x: b 9 8"]
layers:
  - {torch: fc, keras: fc, kind: linear}
  - {torch: rounded, keras: rounded}
"""


class Rounded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16)


class Net(nn.Module):
    """Rounds values that depend on the input, in a module of its own, and rates that do not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.rounded = nn.Linear(8, 8), Rounded()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rates = (1 / 100 ** (torch.arange(8) / 8)).half().to(x.dtype)
        return self.fc(x) * torch.cos(rates) + self.rounded(x).float()


@keras.saving.register_keras_serializable("tests")
class Round(layers.Layer):
    def __init__(self, to: str | None = "bfloat16", **options: Any) -> None:
        super().__init__(**options)
        self.to = to

    def call(self, x: Any) -> Any:
        return ops.cast(x, self.to) if self.to else x

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "to": self.to}


@keras.saving.register_keras_serializable("tests")
class Turn(layers.Layer):
    def __init__(self, to: str | None = "float16", **options: Any) -> None:
        super().__init__(**options)
        self.to = to

    def call(self, x: Any) -> Any:
        rates = 1 / 100 ** (ops.arange(8, dtype=x.dtype) / 8)
        return x * ops.cos(ops.cast(ops.cast(rates, self.to), x.dtype) if self.to else rates)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "to": self.to}


def port(values: str | None = "bfloat16", rates: str | None = "float16") -> keras.Model:
    x = keras.Input((9, 8))
    rounded = ops.cast(Round(values, name="rounded")(x), x.dtype)
    return keras.Model(x, Turn(rates)(layers.Dense(8, name="fc")(x)) + rounded)


def exact_values() -> keras.Model:
    return port(values=None)


def exact_rates() -> keras.Model:
    return port(rates=None)


@pytest.mark.parametrize("name", ["port", "exact_values", "exact_rates"])
def test_a_port_rounds_where_its_reference_does(name: str, tmp_path: Path) -> None:
    verdict = verify_own(tmp_path, TABLE, Net(), f"{HERE}:Net", f"{HERE}:{name}")
    assert bool(verdict) is (name == "port"), verdict.summary()
