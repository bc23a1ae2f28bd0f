"""Gate bfloat16 (B'): what counts as an error of the port."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import keras
import torch
from torch import nn

import wdport

TABLE = """
format: 2
torch: tests.parity.test_bfloat16:build
keras: tests.parity.test_bfloat16:build_twin
inputs: ["x: b 6 8"]
layers:
  - {torch: first, keras: first, kind: linear}
  - {torch: soft, keras: soft, kind: activation}
  - {torch: last, keras: last, kind: linear}
"""


def build() -> nn.Module:
    return nn.Sequential(OrderedDict(first=nn.Linear(8, 8), soft=nn.Softmax(-1), last=nn.Linear(8, 3)))


def build_twin() -> keras.Model:
    layers = [
        keras.layers.Dense(8, name="first"),
        keras.layers.Softmax(name="soft"),
        keras.layers.Dense(3, name="last"),
    ]
    return keras.Sequential([keras.Input((6, 8)), *layers])


def test_rounded_logits_are_no_error_of_a_softmax(tmp_path: Path) -> None:
    """Keras rounds them where they enter the layer, and autocast leaves them as they are; here they are up to 50."""
    table = tmp_path / "table.yaml"
    table.write_text(TABLE)
    torch.manual_seed(0)
    module = build()
    with torch.no_grad():
        module.get_parameter("first.weight").mul_(28.0)
    torch.save(module.state_dict(), tmp_path / "a.pt")
    made = wdport.convert(tmp_path / "a.pt", tmp_path / "a.keras", mapping=table)
    verdict = wdport.verify(tmp_path / "a.pt", made.output, mapping=table, full=True)
    assert verdict
    (gate,) = [gate for gate in verdict.gates if gate.name == "B'"]
    assert 0.0 < next(each.value for each in gate.measures if each.subject == "soft") < 2.0  # otherwise 3.6


TIMES = """
format: 2
torch: tests.parity.test_bfloat16:Times
keras: tests.parity.test_bfloat16:times
inputs: ["t: b, below 200"]
layers:
  - {torch: last, keras: last, kind: linear}
"""


class Times(nn.Module):
    """Embeds a step by cosines of it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cos(t[:, None].to(self.last.weight.dtype) * 0.7 ** torch.arange(4)))  # type: ignore[no-any-return]


class PortTimes(keras.Model):
    """The same, with the angles in the dtype of the policy."""

    def __init__(self) -> None:
        super().__init__()
        self.last = keras.layers.Dense(3, name="last")

    def call(self, t: Any) -> Any:
        rates = keras.ops.convert_to_tensor([0.7**number for number in range(4)], self.compute_dtype)
        return self.last(keras.ops.cos(keras.ops.cast(t, self.compute_dtype)[:, None] * rates))


def times() -> keras.Model:
    model = PortTimes()
    model(keras.ops.zeros(1, "int32"))
    return model


def test_an_error_before_a_layer_is_one_of_its_inputs(tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text(TIMES)
    torch.manual_seed(0)
    torch.save(Times().state_dict(), tmp_path / "a.pt")
    made = wdport.convert(tmp_path / "a.pt", tmp_path / "a.keras", mapping=table)
    verdict = wdport.verify(tmp_path / "a.pt", made.output, mapping=table, full=True)
    (gate,) = [gate for gate in verdict.gates if not gate.passed]
    assert gate.name == "B'"
    assert str(gate.findings[0]).startswith("last inputs has ")
