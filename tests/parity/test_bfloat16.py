"""Gate bfloat16 (B'): what counts as an error of the port."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch
from torch import nn

import wdport
from parity_tests.faults import FAMILIES, fault_set
from tests.edits import edit
from wdport.compare.programs import narrow_softmaxes
from wdport.nets import attention
from wdport.parity.bfloat16_gate import POLICY, _gate, narrow_layers
from wdport.recording.calls import cast
from wdport.uses.waveletdiff import layers as waveletdiff
from wdport.uses.waveletdiff import port as waveletdiff_port

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


def narrow(family: str) -> list[str]:
    """The layers of a family's first example that compute a softmax in bfloat16."""
    faults = fault_set(family)
    config = next(iter(faults.examples.values()))
    signature = faults.family.signature(config)
    inputs = signature.in_port(cast(signature.make(0, 2, 1.0), np.float32))
    return narrow_layers(faults.family.build(config, POLICY), inputs)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_families_compute_softmax_in_float32(family: str) -> None:
    assert narrow(family) == []


NARROW: dict[str, tuple[str, Any, str, str, str]] = {
    "pixels": ("unet2d", attention.attend, "wide(", "(", "down_1/attention_0"),
    "frames": ("wan_vae", attention.attend, "jnp.exp(", "(lambda x: jnp.exp(x.astype(v.dtype)))(",
               "encoder/mid/attention_0"),
    "tokens": ("masked_lm", attention.TokenAttention._read, "jnp.exp(", "(lambda x: jnp.exp(x.astype(v.dtype)))(",
               "block_0/attention"),
    "coefficients": ("waveletdiff", waveletdiff.Attention.call, "softmax(wide(logits)", "softmax((logits)",
                     "level_0/block_0/attention"),
}  # fmt: skip
"""A family, an edit of a softmax in its port, and the first layer that has it."""


@pytest.mark.parametrize("name", NARROW)
def test_a_softmax_in_bfloat16_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, function, old, new, path = NARROW[name]
    edit(monkeypatch, function, old, new)
    paths = narrow(family)
    assert path in paths
    gate = _gate({}, 0, paths)
    assert not gate.passed
    assert f"{path} computes a softmax in bfloat16, and PyTorch in float32; cast its input" in map(str, gate.findings)


def test_keras_softmax_in_a_port_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waveletdiff_port, "Softmax", keras.layers.Softmax)
    assert narrow("waveletdiff")[0] == "cross_level/aggregator_0/softmax"


def test_an_exponential_without_a_sum_is_no_softmax() -> None:
    """That of Mish, and one of float32; the logarithm of a softmax is one, in programs within others too."""
    x = jnp.ones((3, 4), jnp.bfloat16)

    def found(function: Any) -> bool:
        return bool(narrow_softmaxes(jax.make_jaxpr(function)(x).jaxpr))

    assert not found(lambda x: x * jnp.tanh(jax.nn.softplus(x)) @ x.T)
    assert not found(lambda x: jax.nn.softmax(x.astype(jnp.float32)).astype(x.dtype))
    assert found(jax.nn.softmax)
    assert found(jax.jit(jax.nn.log_softmax))
    assert found(lambda x: jax.jit(jnp.exp)(x).T @ x)
    assert found(lambda x: jnp.sum(jnp.exp(x).astype(jnp.float32)))
