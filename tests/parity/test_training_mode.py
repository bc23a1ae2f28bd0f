"""Gate training mode (M): a correct port passes, and what differs only in training is found and named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import pytest
import torch
from keras import layers
from torch import nn

import wdport
from wdport.nets.norms import UnbiasedBatchNormalization
from wdport.optimizers.torch_like import SGD, Adam, TorchOptimizer
from wdport.parity.training_mode_gate import with_keras_statistics
from wdport.parity.verdict_api import Verdict

TABLE = """
format: 2
inputs: ["x: b 3 6 6"]
layers:
  - {torch: "0", keras: conv, kind: conv2d}
  - {torch: "1", keras: norm, kind: batch_norm}
  - {torch: "4", keras: last, kind: conv2d}
  - {torch: "8", keras: out, kind: linear}
"""


def net() -> nn.Module:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(5, momentum=0.2)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    return nn.Sequential(nn.Conv2d(3, 5, 3), norm, nn.GELU(), nn.Dropout2d(0.3), nn.Conv2d(5, 4, 3),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(4, 2))  # fmt: skip


@keras.saving.register_keras_serializable("tests")
class Fixed(layers.Layer):
    """Drops the same features in every step."""

    def call(self, x: Any, training: bool = False) -> Any:
        return keras.random.dropout(x, 0.3, noise_shape=(None, 1, 1, 5), seed=7) if training else x


def fixed(_: float) -> Fixed:
    return Fixed()


def port(
    norm: Callable[..., Any] = UnbiasedBatchNormalization,
    momentum: float = 0.8,
    features: Callable[..., Any] = layers.SpatialDropout2D,
    rate: float = 0.4,
    early: bool = False,
    frozen: str = "",
    seed: int | None = None,
    **last: Any,
) -> keras.Model:
    x = keras.Input((6, 6, 3))
    y = norm(momentum=momentum, epsilon=1e-5, name="norm")(layers.Conv2D(5, 3, name="conv")(x))
    y = features(0.3)(layers.Activation("gelu")(y))
    y = layers.Conv2D(4, 3, name="last", **last)(y)
    y = layers.GlobalAveragePooling2D()(layers.Dropout(rate)(y) if early else y)
    y = y if early else layers.Dropout(rate, seed=seed)(y)
    model = keras.Model(x, layers.Dense(2, name="out")(y))
    if frozen:
        model.get_layer(frozen).trainable = False
    return model


PORTS: dict[str, tuple[Callable[[], keras.Model], str]] = {
    "equal": (port, ""),
    "biased variance": (lambda: port(layers.BatchNormalization), "the biased variance of 64 values"),
    "momentum": (lambda: port(momentum=0.9), "norm/moving_mean is off"),
    "dropout rate": (lambda: port(rate=0.3), "gradient of"),
    "dropout elsewhere": (lambda: port(early=True), "gradient of"),
    "dropout of values": (lambda: port(features=layers.Dropout), "gradient of"),
    "a regularizer": (lambda: port(kernel_regularizer="l2"), "loss is off"),
    "a penalty of outputs": (lambda: port(activity_regularizer="l2"), "loss is off"),
    "a constraint that is met": (lambda: port(kernel_constraint=keras.constraints.MaxNorm(1e3)),
                                 "last/kernel has a constraint"),
    "one mask for all samples": (lambda: port(features=lambda rate: layers.Dropout(rate, noise_shape=(1, 1, 1, 5))),
                                 "gradient of"),
    "one mask for all steps": (lambda: port(features=fixed), "gradient of"),
    "one seed of two layers": (lambda: port(features=partial(layers.SpatialDropout2D, seed=3), seed=3),
                               "dropout has the seed of spatial_dropout2d, and drops the same values"),
    "a constraint": (lambda: port(kernel_constraint="unit_norm"), "value of last/kernel, SGD is off"),
    "a frozen layer": (lambda: port(frozen="last"), "last/kernel is trained by PyTorch, and not by the port"),
}  # fmt: skip


def verified(folder: Path, target: str, train: bool = True, rows: str = TABLE, module: Any = net) -> Verdict:
    """Of the network and a port of it, converted anew."""
    table, checkpoint = folder / "own.yaml", folder / "net.pt"
    table.write_text(rows)
    torch.save(module().state_dict(), checkpoint)
    converted = wdport.convert(checkpoint, mapping=table, model=target, force=True).output
    reference = f"{__name__}:{module.__name__}"
    return wdport.verify(checkpoint, converted, mapping=table, model=target, reference=reference, train=train)


@pytest.mark.parametrize("name", PORTS)
def test_what_differs_only_in_training_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, message = PORTS[name]
    monkeypatch.setattr(sys.modules[__name__], "chosen", build, raising=False)
    verdict = verified(tmp_path, f"{__name__}:chosen")
    (gate,) = [gate for gate in verdict.gates if gate.name == "M"]
    text = "\n".join(map(str, gate.findings))
    assert gate.passed == (not message), text
    assert message in text
    assert name == "biased variance" or "biased" not in text
    assert [other.name for other in verdict.gates if not other.passed] in ([], ["M"])


@pytest.mark.parametrize("momentum", [0.8, 0.9])
def test_the_biased_variance_alone_may_count_as_equal(
    momentum: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = partial(port, layers.BatchNormalization, momentum)
    monkeypatch.setattr(sys.modules[__name__], "chosen", build, raising=False)
    (gate,) = [gate for gate in verified(tmp_path, f"{__name__}:chosen").gates if gate.name == "M"]
    assert with_keras_statistics(gate).passed == (momentum == 0.8)


class Twice(nn.Module):
    """Updates its statistics twice in a step, of batches of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.norm(self.first(x).mT).mT[:, 1:].mT)  # type: ignore[no-any-return]


def twice_port(momentum: float = 0.8) -> keras.Model:
    x, norm = keras.Input((5, 6)), layers.BatchNormalization(momentum=momentum, epsilon=1e-5, name="norm")
    return keras.Model(x, norm(norm(layers.Dense(6, name="first")(x))[:, 1:]))


TWICE = """
format: 2
inputs: ["x: b 5 6"]
outputs: ["b d h -> b h d"]
layers:
  - {torch: first, keras: first, kind: linear}
  - {torch: norm, keras: norm, kind: batch_norm}
"""


@pytest.mark.parametrize("momentum", [0.8, 0.9])
def test_the_biased_variance_of_two_calls(momentum: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "chosen", partial(twice_port, momentum), raising=False)
    verdict = verified(tmp_path, f"{__name__}:chosen", rows=TWICE, module=Twice)
    (gate,) = [gate for gate in verdict.gates if gate.name == "M"]
    assert ("the biased variance of 20 and 16 values" in "\n".join(map(str, gate.findings))) == (momentum == 0.8)
    assert with_keras_statistics(gate).passed == (momentum == 0.8)
    assert [other.name for other in verdict.gates if not other.passed] == ["M"]


ALPHA = """
format: 2
inputs: ["x: b 3 6"]
layers:
  - {torch: "0", keras: first, kind: linear}
  - {torch: "2", keras: second, kind: linear}
"""
FEATURES = (None, 3, 1)
DROPOUTS: dict[str, tuple[Callable[[], nn.Module], Callable[[], layers.Layer], bool]] = {
    "alpha": (lambda: nn.AlphaDropout(0.2), lambda: layers.AlphaDropout(0.2), True),
    "alpha for features": (lambda: nn.FeatureAlphaDropout(0.2), lambda: layers.AlphaDropout(0.2, FEATURES), True),
    "plain instead of alpha": (lambda: nn.AlphaDropout(0.2), lambda: layers.Dropout(0.2), False),
    "alpha instead of plain": (lambda: nn.Dropout(0.2), lambda: layers.AlphaDropout(0.2), False),
    "alpha for values": (lambda: nn.FeatureAlphaDropout(0.2), lambda: layers.AlphaDropout(0.2), False),
    "another rate of alpha": (lambda: nn.AlphaDropout(0.2), lambda: layers.AlphaDropout(0.3), False),
}
"""Dropout of SELU networks on both sides, and whether it is the same."""


@pytest.mark.parametrize("name", DROPOUTS)
def test_alpha_dropout_is_another_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, dropping, same = DROPOUTS[name]

    def module() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), dropped(), nn.Linear(5, 2))

    def build() -> keras.Model:
        first, last = layers.Dense(5, name="first"), layers.Dense(2, name="second")
        return keras.Sequential([keras.Input((3, 6)), first, dropping(), last])

    monkeypatch.setattr(sys.modules[__name__], "module", module, raising=False)
    monkeypatch.setattr(sys.modules[__name__], "chosen", build, raising=False)
    verdict = verified(tmp_path, f"{__name__}:chosen", rows=ALPHA, module=module)
    assert [gate.name for gate in verdict.gates if not gate.passed] == ([] if same else ["M"])


TOKENS = """
format: 2
inputs: ["ids: b 6, below 12"]
layers:
  - {torch: "0", keras: words, kind: embedding}
  - {torch: "1", keras: out, kind: linear}
"""


def words() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(12, 4), nn.Linear(4, 2))


def masked() -> keras.Model:
    words = layers.Embedding(12, 4, mask_zero=True, name="words")
    return keras.Sequential([keras.Input((6,), dtype="int32"), words, layers.Dense(2, name="out")])


def test_a_mask_of_the_outputs_is_named(tmp_path: Path) -> None:
    verdict = verified(tmp_path, f"{__name__}:masked", rows=TOKENS, module=words)
    (gate,) = [gate for gate in verdict.gates if gate.name == "M"]
    assert gate.passed
    assert "outputs of the model have a mask" in str(*gate.findings)


class Detached(nn.Module):
    """The loss does not depend on its first layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).detach())  # type: ignore[no-any-return]


def stopped(trainable: bool, stops: bool = True) -> keras.Model:
    x = keras.Input((6,))
    first = layers.Dense(6, name="first", trainable=trainable)
    stop = keras.ops.stop_gradient if stops else keras.ops.copy
    return keras.Model(x, layers.Dense(6, name="second")(stop(first(x))))


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("stops", [False, True])
def test_a_layer_without_gradients_has_none_in_the_port(
    trainable: bool, stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's optimizers leave it as it is, and a weight decay of Keras would not."""
    monkeypatch.setattr(sys.modules[__name__], "chosen", lambda: stopped(trainable, stops), raising=False)
    rows = STEEP.replace('"0"', "first").replace('"1"', "second")
    verdict = verified(tmp_path, f"{__name__}:chosen", rows=rows, module=Detached)
    (gate,) = [gate for gate in verdict.gates if gate.name == "M"]
    assert gate.complete
    assert gate.passed == (stops or not trainable)
    assert ("first/kernel gets no gradient, so PyTorch's optimizers leave" in "\n".join(map(str, gate.findings))
            ) == trainable  # fmt: skip
    assert ("gradient of first/kernel is off" in "\n".join(map(str, gate.findings))) == (trainable and not stops)


STEEP = """
format: 2
inputs: ["x: b 6"]
layers:
  - {torch: "0", keras: first, kind: linear}
  - {torch: "1", keras: second, kind: linear}
"""


def steep() -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    for parameter in module.parameters():
        parameter.data *= 30.0
    return module


def steep_port() -> keras.Model:
    return keras.Sequential([keras.Input((6,)), layers.Dense(6, name="first"), layers.Dense(6, name="second")])


def test_a_loss_that_diverges_fails_no_correct_port(tmp_path: Path) -> None:
    (gate,) = [each for each in verified(tmp_path, f"{__name__}:steep_port", True, STEEP, steep).gates
               if each.name == "M"]  # fmt: skip
    assert gate.passed
    assert "SGD diverged, and started again from the weights" in "\n".join(map(str, gate.findings))


LARGE = STEEP.replace('"0"', "first").replace('"1"', "second")


class Large(nn.Module):
    """Drops values of tens of thousands, several times, on the way to its outputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.drop = nn.Linear(6, 6), nn.Linear(6, 6), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 1e4
        for _ in range(3):
            x = x + self.drop(self.second(x + self.drop(self.first(x))))
        return x


def large_port(rate: float = 0.2) -> keras.Model:
    inputs = keras.Input((6,))
    first, second, drop = layers.Dense(6, name="first"), layers.Dense(6, name="second"), layers.Dropout(rate)
    x = inputs * 1e4
    for _ in range(3):
        x = x + drop(second(x + drop(first(x))))
    return keras.Model(inputs, x)


def other_rate_port() -> keras.Model:
    return large_port(0.21)


@pytest.mark.parametrize(("target", "passes"), [("large_port", True), ("other_rate_port", False)])
def test_dropout_of_large_values_does_not_amplify_rounding(target: str, passes: bool, tmp_path: Path) -> None:
    (gate,) = [each for each in verified(tmp_path, f"{__name__}:{target}", True, LARGE, Large).gates
               if each.name == "M"]  # fmt: skip
    assert gate.passed is passes


LARGEST = """
format: 2
inputs: ["x: b 40 16"]
layers:
  - {torch: first, keras: first, kind: linear}
  - {torch: norm, keras: norm, kind: batch_norm}
"""


class Largest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(16, 32), nn.BatchNorm1d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.first(x).mT).relu().max(2)[0]  # type: ignore[no-any-return]


def largest_port() -> keras.Model:
    x = keras.Input((40, 16))
    norm = UnbiasedBatchNormalization(momentum=0.9, epsilon=1e-5, name="norm")
    return keras.Model(x, keras.ops.max(keras.ops.relu(norm(layers.Dense(32, name="first")(x))), axis=1))


def test_the_gradient_of_a_maximum_of_numbers_that_are_computed_twice(tmp_path: Path) -> None:
    """XLA's programs without optimization round them in two ways, and then find no place of the maximum."""
    verdict = verified(tmp_path, f"{__name__}:largest_port", True, LARGEST, Largest)
    assert verdict, verdict.summary()


def test_the_gate_runs_where_it_is_asked_for(tmp_path: Path) -> None:
    assert "M" not in [gate.name for gate in verified(tmp_path, f"{__name__}:port", train=False).gates]


def _later(self: TorchOptimizer) -> Any:
    return jnp.asarray(self.iterations) + 1


def _summed(self: TorchOptimizer, grads: Any) -> list[Any]:
    return clip(self, [gradient * (self.gradient_accumulation_steps or 1) for gradient in grads])


def _halved(self: TorchOptimizer, grads: Any) -> list[Any]:
    return [gradient / 2.0 for gradient in clip(self, [2.0 * gradient for gradient in grads])]


def _one_by_one(self: TorchOptimizer, grads: Any) -> list[Any]:
    return [clip(self, [gradient])[0] for gradient in grads]


def grouped(update: Callable[..., None], change: Callable[[Any], Any]) -> Callable[..., None]:
    """The update with changed hyper-parameters of every group."""

    def step(self: TorchOptimizer, *arguments: Any) -> None:
        before = self.groups
        self.groups = tuple(map(change, before))
        update(self, *arguments)
        self.groups = before

    return step


def _with_rate(self: SGD, gradient: Any, variable: Any, rate: Any) -> None:
    """The momentum contains the learning rate, and is applied as it is."""
    sgd(self, gradient, variable, rate)
    index = self._get_variable_index(variable)
    self.buffer[index].assign(self.buffer[index].value * self._rate(0, variable.dtype))


clip, adam, sgd = TorchOptimizer._clip_gradients, Adam.update_step, SGD.update_step
EVERY = {"SGD", "Adam", "AdamW"}
OPTIMIZERS: dict[str, tuple[type, str, Any, set[str]]] = {
    "a schedule one step ahead": (TorchOptimizer, "_taken", property(_later), {"Adam", "AdamW"}),
    "gradients of batches added up": (TorchOptimizer, "_clip_gradients", _summed, {"AdamW"}),
    "clipped before the mean": (TorchOptimizer, "_clip_gradients", _halved, {"AdamW"}),
    "one group": (TorchOptimizer, "_member", lambda self, index: 0, {"AdamW"}),
    "clipped one by one": (TorchOptimizer, "_clip_gradients", _one_by_one, {"AdamW"}),
    "not clipped": (TorchOptimizer, "_clip_gradients", lambda self, grads: list(grads), {"AdamW"}),
    "constant rate": (TorchOptimizer, "_rate", lambda self, group, dtype: jnp.asarray(self.groups[0].lr, dtype),
                      {"AdamW"}),
    "no correction of the bias": (TorchOptimizer, "_step", lambda self, index, dtype: jnp.asarray(1e9, dtype),
                                  {"Adam", "AdamW"}),
    "coupled decay": (Adam, "update_step",
                      grouped(adam, lambda group: replace(group, decoupled_weight_decay=False)), {"AdamW"}),
    "decoupled decay": (Adam, "update_step",
                        grouped(adam, lambda group: replace(group, decoupled_weight_decay=True)), {"Adam"}),
    "no decay of Adam": (Adam, "update_step", grouped(adam, lambda group: replace(group, weight_decay=0.0)),
                         {"Adam", "AdamW"}),
    "all parameters decayed": (Adam, "update_step", grouped(adam, lambda group: replace(group, weight_decay=0.1)),
                               {"Adam", "AdamW"}),
    "epsilon": (Adam, "update_step", grouped(adam, lambda group: replace(group, eps=1e-7)), {"Adam", "AdamW"}),
    "second moment": (Adam, "update_step", grouped(adam, lambda group: replace(group, betas=(group.betas[0], 0.999))),
                      {"Adam", "AdamW"}),
    "no decay of SGD": (SGD, "update_step", grouped(sgd, lambda group: replace(group, weight_decay=0.0)), {"SGD"}),
    "no Nesterov": (SGD, "update_step", grouped(sgd, lambda group: replace(group, nesterov=False)), {"SGD"}),
    "dampening": (SGD, "update_step", grouped(sgd, lambda group: replace(group, dampening=0.1)), {"SGD"}),
    "rate in the momentum": (SGD, "update_step", _with_rate, {"SGD"}),
}  # fmt: skip
"""Bugs in our optimizers, and the recipes whose steps are off; with the ports above, 30 faults of training."""


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_faults_of_the_optimizer_are_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, attribute, fault, recipes = OPTIMIZERS[name]
    monkeypatch.setattr(cls, attribute, fault)
    (gate,) = [gate for gate in verified(tmp_path, f"{__name__}:port").gates if not gate.passed]
    assert gate.name == "M"
    wrong = {str(each.subject) for each in gate.measures if each.value > 1e-10}
    assert {subject.rpartition(", ")[2] for subject in wrong} & EVERY == recipes
