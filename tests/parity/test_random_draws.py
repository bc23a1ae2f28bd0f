"""Stochastic depth in training mode: masks of whole samples are compared, however either side draws them."""

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

TABLE = """
format: 2
inputs: ["x: b 3 6"]
layers:
  - {torch: a, keras: a, kind: linear}
  - {torch: b, keras: b, kind: linear}
"""
Mask = Callable[[torch.Tensor, float], torch.Tensor]


def bernoulli(x: torch.Tensor, rate: float, scaled: bool = True) -> torch.Tensor:
    """As timm and torchvision draw it."""
    mask = x.new_empty((len(x), 1, 1)).bernoulli_(1 - rate)
    return x * (mask.div_(1 - rate) if scaled else mask)


def floored(x: torch.Tensor, rate: float) -> torch.Tensor:
    """As transformers does."""
    return x.div(1 - rate) * (1 - rate + torch.rand((len(x), 1, 1), dtype=x.dtype)).floor_()


def below(x: torch.Tensor, rate: float) -> torch.Tensor:
    return torch.where(torch.rand(len(x), 1, 1) < 1 - rate, x / (1 - rate), 0.0)


def of_batch(x: torch.Tensor, rate: float) -> torch.Tensor:
    return x * torch.bernoulli(torch.full((1, 1, 1), 1 - rate)) / (1 - rate)


class Net(nn.Module):
    """Two residual layers, whose rates of dropping differ."""

    def __init__(self, mask: Mask = bernoulli) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.mask = nn.Linear(6, 6), nn.Linear(6, 6), mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, rate in ((self.a, 0.1), (self.b, 0.2)):
            x = x + (self.mask(layer(x), rate) if self.training else layer(x))
        return x


@keras.saving.register_keras_serializable("tests")
class DropPath(layers.Layer):
    """Drops samples by ``draw``, from a generator."""

    def __init__(self, rate: float, draw: str, seed: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.rate, self.draw, self.generator = rate, draw, keras.random.SeedGenerator(seed)

    def call(self, x: Any, training: bool = False) -> Any:
        if not training:
            return x
        keep, shape = 1.0 - self.rate, (ops.shape(x)[0], 1, 1)
        if self.draw == "binomial":
            return x * keras.random.binomial(shape, 1, keep, seed=self.generator) / keep
        if self.draw == "ones":
            return x * keras.random.dropout(ops.ones(shape), self.rate, seed=self.generator)
        uniform = keras.random.uniform(shape, seed=7 if self.draw == "fixed" else self.generator)
        if self.draw == "floor":
            return x / keep * ops.floor(keep + ops.cast(uniform, x.dtype))
        return ops.where(uniform < keep, x if self.draw == "unscaled" else x / keep, 0.0)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "draw": self.draw}


def noise(*sizes: int | None) -> Callable[[float], layers.Layer]:
    return lambda rate: layers.Dropout(rate, noise_shape=sizes)


def drawing(draw: str, seed: int | None = None) -> Callable[[float], layers.Layer]:
    return lambda rate: DropPath(rate, draw, seed)


rows = noise(None, 1, 1)


def port(path: Callable[[float], layers.Layer] = rows, rates: tuple[float, float] = (0.1, 0.2)) -> keras.Model:
    x = inputs = keras.Input((3, 6))
    for name, rate in zip("ab", rates, strict=True):
        branch = layers.Dense(6, name=name)(x)
        x = x + (path(rate)(branch) if rate else branch)
    return keras.Model(inputs, x)


class Shared(keras.Model):
    """Draws once for two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.generator = layers.Dense(6), layers.Dense(6), keras.random.SeedGenerator()
        self(keras.ops.zeros((1, 3, 6)))

    def call(self, x: Any, training: bool = False) -> Any:
        uniform = keras.random.uniform((len(x), 1, 1), seed=self.generator) if training else 1.0
        for layer, rate in ((self.a, 0.1), (self.b, 0.2)):
            x = x + ops.where(uniform >= rate, layer(x) / ((1.0 - rate) if training else 1.0), 0.0)
        return x


NETS: dict[str, Callable[[], nn.Module]] = {
    "net": Net,
    "unscaled": lambda: Net(lambda x, rate: bernoulli(x, rate, scaled=False)),
    "floored": lambda: Net(floored),
    "below": lambda: Net(below),
    "of_batch": lambda: Net(of_batch),
}
EQUAL: dict[str, tuple[str, Callable[[], keras.Model]]] = {
    "a dropout with a noise shape": ("net", port),
    "a dropout of ones": ("net", lambda: port(drawing("ones"))),
    "a binomial distribution": ("net", lambda: port(drawing("binomial"))),
    "a floor of uniform numbers": ("net", lambda: port(drawing("floor"))),
    "uniform numbers below a bound": ("net", lambda: port(drawing("below"))),
    "floors on both sides": ("floored", lambda: port(drawing("floor"))),
    "numbers below a bound in PyTorch": ("below", port),
    "without a scale": ("unscaled", lambda: port(drawing("unscaled"))),
    "the whole batch": ("of_batch", lambda: port(noise(1, 1, 1))),
}
OTHERS: dict[str, tuple[str, Callable[[], keras.Model]]] = {
    "none": ("net", lambda: port(rates=(0.0, 0.0))),
    "another rate": ("net", lambda: port(rates=(0.1, 0.15))),
    "rates the other way round": ("net", lambda: port(rates=(0.2, 0.1))),
    "another rate without a scale": ("unscaled", lambda: port(drawing("unscaled"), rates=(0.1, 0.1999))),
    "no scale": ("net", lambda: port(drawing("unscaled"))),
    "the batch for samples": ("net", lambda: port(noise(1, 1, 1))),
    "samples for the batch": ("of_batch", port),
    "values for samples": ("net", lambda: port(noise(None, None, None))),
    "positions for samples": ("net", lambda: port(noise(None, None, 1))),
    "one mask for all steps": ("net", lambda: port(drawing("fixed"))),
    "one mask of two layers": ("net", Shared),
    "one seed of two layers": ("net", lambda: port(drawing("floor", seed=3))),
}


@pytest.mark.parametrize(("name", "same"), [*((name, True) for name in EQUAL), *((name, False) for name in OTHERS)])
def test_masks_of_whole_samples(name: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, build = (EQUAL if same else OTHERS)[name]
    monkeypatch.setattr(sys.modules[__name__], "chosen", build, raising=False)
    monkeypatch.setattr(sys.modules[__name__], "chosen_net", NETS[net], raising=False)
    verdict = verify_own(tmp_path, TABLE, Net(), f"{__name__}:chosen_net", f"{__name__}:chosen", train=True)
    others = [finding for gate in verdict.gates if gate.name != "M" for finding in gate.findings]
    assert [str(finding) for finding in others if not finding.notice] == []
    (gate,) = [gate for gate in verdict.gates if gate.name == "M"]
    assert gate.passed == same, list(map(str, gate.findings))
    assert gate.compared
