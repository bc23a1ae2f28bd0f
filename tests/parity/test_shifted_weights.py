"""Weights that hide a fault as the checkpoint has them, since they are zero, or that have two names in one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers, ops
from torch import nn

from tests.command import Cli
from tests.parity.own_models import verify_own
from wdport.recording.bias_shifts import bias_shifts, named_tensors
from wdport.recording.nested import to_array

HERE = "tests.parity.test_shifted_weights"


class Branches(nn.Module):
    """Four branches, each of which is multiplied by zeros: a number, a vector with further axes, a matrix, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 6)
        self.number = nn.Parameter(torch.zeros(()))
        self.vector = nn.Parameter(torch.zeros(1, 1, 6))
        self.matrix = nn.Parameter(torch.zeros(6, 6))
        self.register_buffer("buffer", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x)
        a, b, c, d = (torch.tanh(factor * x) for factor in (1, 2, 3, 4))
        return x + self.number * a + self.vector * b + c @ self.matrix + self.buffer * d


BRANCHES = """
format: 2
inputs: ["x: b 5 6"]
layers:
  - {torch: fc, keras: fc, kind: linear}
tensors:
  - {torch: number, keras: branches/parts/number, rule: "... -> ..."}
  - {torch: vector, keras: branches/parts/vector, rule: "... -> ..."}
  - {torch: matrix, keras: branches/parts/matrix, rule: "... -> ..."}
  - {torch: buffer, keras: branches/parts/buffer, rule: "... -> ..."}
"""


@keras.saving.register_keras_serializable("tests")
class Sum(layers.Layer):
    """The branches of :class:`Branches`, one of them wrong."""

    def __init__(self, wrong: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.wrong = wrong

    def build(self, shape: Any) -> None:
        shapes = {"number": (), "vector": (1, 1, 6), "matrix": (6, 6), "buffer": ()}
        self.parts = {name: self.add_weight(shape=size, name=name, initializer="zeros", trainable=name != "buffer")
                      for name, size in shapes.items()}  # fmt: skip

    def call(self, x: Any) -> Any:
        total = x
        for factor, (name, weight) in enumerate(self.parts.items(), 1):
            branch = ops.tanh((factor + (name == self.wrong)) * x)
            total += branch @ weight if name == "matrix" else weight * branch
        return total

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "wrong": self.wrong}


def port(wrong: str = "") -> keras.Model:
    x = keras.Input((5, 6))
    return keras.Model(x, Sum(wrong, name="branches")(layers.Dense(6, name="fc")(x)))


def wrong_number() -> keras.Model:
    return port("number")


def wrong_vector() -> keras.Model:
    return port("vector")


def wrong_matrix() -> keras.Model:
    return port("matrix")


def wrong_buffer() -> keras.Model:
    return port("buffer")


@pytest.mark.parametrize("name", ["port", "wrong_number", "wrong_vector", "wrong_matrix", "wrong_buffer"])
def test_a_branch_that_is_multiplied_by_zeros_is_compared(name: str, tmp_path: Path) -> None:
    verdict = verify_own(tmp_path, BRANCHES, Branches(), f"{HERE}:Branches", f"{HERE}:{name}")
    assert bool(verdict) is (name == "port")


def test_which_tensors_are_shifted() -> None:
    """Numbers, vectors of any rank and constants; neither tables of the code nor matrices that were trained."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trained, self.zero = nn.Linear(3, 4), nn.Conv2d(3, 2, 3)
            nn.init.zeros_(self.zero.weight)
            self.number, self.tiny = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.full((1, 3, 1, 1), 1e-6))
            self.channels = nn.Parameter(torch.rand(5, 1, 1))
            self.register_buffer("scale", torch.zeros(2, 2))
            self.register_buffer("table", torch.zeros(2, 2))
            self.register_buffer("steps", torch.tensor(0))

    net = Net()
    shifts = bias_shifts(net, {"scale": "scale", "steps": "steps"})
    assert set(shifts) == {"trained.bias", "zero.weight", "zero.bias", "number", "tiny", "channels", "scale"}
    tensors = named_tensors(net)
    for name, shift in shifts.items():
        value = to_array(tensors[name])
        assert (shift.shape, shift.dtype) == (value.shape, np.float32)
        assert np.all(shift != 0)
        assert np.all((value == 0) | ((value + shift) * value > 0)), name  # the sign stays
    # By the fan-in, so that what a matrix adds is no larger than what a scale does.
    assert 0.02 < np.std(shifts["zero.weight"]) < 0.06


class Step(nn.Module):
    def __init__(self, shift: torch.Tensor) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.register_buffer("shift", shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.fc(x) + self.shift)


class Shared(nn.Module):
    """Both steps have one norm's weight, and one buffer that float32 rounds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        shift = torch.arange(6) / 7
        self.first, self.last = Step(shift), Step(shift)
        self.last.norm.weight = self.first.norm.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))


class Apart(Shared):
    """The same values without sharing."""

    def __init__(self) -> None:
        super().__init__()
        self.last.norm.weight = nn.Parameter(self.first.norm.weight.detach().clone())
        self.last.shift = self.first.shift.clone()


NORMS = """
format: 2
inputs: ["x: b 6"]
layers:
  - {torch: first.fc, keras: first, kind: linear}
  - {torch: last.fc, keras: last, kind: linear}
"""
SEPARATE = """
  - {torch: first.norm, keras: first_norm, kind: layer_norm}
  - {torch: last.norm, keras: last_norm, kind: layer_norm}
tensors:
  - {torch: first.shift, keras: first_shift/shift, rule: identity}
  - {torch: last.shift, keras: last_shift/shift, rule: identity}
"""
ONE = """
tensors:
  - {torch: first.norm.weight, keras: first_norm/gamma, rule: identity}
  - {torch: first.norm.bias, keras: first_norm/beta, rule: identity}
  - {torch: last.norm.bias, keras: last_norm/beta, rule: identity}
  - {torch: first.shift, keras: first_shift/shift, rule: identity}
tied:
  - {torch: last.shift, same_as: first.shift}
  - {torch: last.norm.weight, same_as: first.norm.weight}
"""


class Shift(layers.Layer):
    def build(self, shape: Any) -> None:
        self.shift = self.add_weight(shape=(6,), name="shift", trainable=False)

    def call(self, x: Any) -> Any:
        return x + self.shift


class Norm(layers.Layer):
    """A layer norm with the scale of another one, if given."""

    def __init__(self, other: Norm | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.other = other

    def build(self, shape: Any) -> None:
        self.beta = self.add_weight(shape=(6,), name="beta")
        self.gamma = self.add_weight(shape=(6,), name="gamma") if self.other is None else self.other.gamma

    def call(self, x: Any) -> Any:
        mean, variance = ops.moments(x, [-1], keepdims=True)
        return (x - mean) / ops.sqrt(variance + 1e-5) * self.gamma + self.beta


def separate_port() -> keras.Model:
    x = y = keras.Input((6,))
    for name in ("first", "last"):
        y = Shift(name=f"{name}_shift")(layers.Dense(6, name=name)(y))
        y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm")(y)
    return keras.Model(x, y)


def one_port() -> keras.Model:
    x = keras.Input((6,))
    shift, first = Shift(name="first_shift"), Norm(name="first_norm")
    y = first(shift(layers.Dense(6, name="first")(x)))
    return keras.Model(x, Norm(first, name="last_norm")(shift(layers.Dense(6, name="last")(y))))


@pytest.mark.parametrize(("net", "name", "rows"), [(Shared, "separate_port", SEPARATE), (Shared, "one_port", ONE),
                                                   (Apart, "one_port", ONE)])  # fmt: skip
def test_a_tensor_with_two_names_has_one_value(net: type[nn.Module], name: str, rows: str, tmp_path: Path) -> None:
    table, reference = NORMS + rows, f"{HERE}:{net.__name__}"
    verdict = verify_own(tmp_path, table, net(), reference, f"{HERE}:{name}", "weights.h5")
    assert verdict, verdict.summary()


def test_a_recording_has_the_shifts_of_every_name(cli: Cli, tmp_path: Path) -> None:
    """The tensors are apart in the recorded model; the table says that they are one."""
    checkpoint, table, record = tmp_path / "net.pt", tmp_path / "own.yaml", tmp_path / "run.npz"
    torch.save(Apart().state_dict(), checkpoint)
    table.write_text(f"torch: {HERE}:Apart\nkeras: {HERE}:one_port\n" + NORMS.lstrip() + ONE)
    cli("record", checkpoint, "--mapping", table, "-o", record)
    port = tmp_path / "port.weights.h5"
    cli("convert", checkpoint, "--mapping", table, "-o", port)
    cli("verify", port, "--mapping", table, "--against", record)


class Repeated(nn.Module):
    """One step under three names, which runs six times."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.steps = nn.ModuleList([Step(torch.arange(6) / 7)] * 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in (*self.steps, *self.steps):
            x = step(x)
        return x


STEPS = """
format: 2
inputs: ["x: b 6"]
layers:
  - {torch: steps.<n>.fc, keras: fc<n>, kind: linear}
  - {torch: steps.<n>.norm, keras: norm<n>, kind: layer_norm}
tensors:
  - {torch: steps.<n>.shift, keras: shift<n>/shift, rule: identity}
"""


def copies_port(last_epsilon: float = 1e-5) -> keras.Model:
    """A copy of the step for each of its names."""
    x = y = keras.Input((6,))
    epsilons = (1e-5, 1e-5, last_epsilon)
    copies = [
        (
            layers.Dense(6, name=f"fc{n}"),
            Shift(name=f"shift{n}"),
            layers.LayerNormalization(epsilon=epsilon, name=f"norm{n}"),
        )
        for n, epsilon in enumerate(epsilons)
    ]
    for layer in (layer for copy in copies * 2 for layer in copy):
        y = layer(y)
    return keras.Model(x, y)


def wrong_copies_port() -> keras.Model:
    return copies_port(1e-3)


@pytest.mark.parametrize(("name", "faults"), [("copies_port", []), ("wrong_copies_port", ["norm2", "norm2#2"])])
def test_a_module_with_several_names_is_compared_with_the_copies_of_a_port(
    name: str, faults: list[str], tmp_path: Path
) -> None:
    verdict = verify_own(tmp_path, STEPS, Repeated(), f"{HERE}:Repeated", f"{HERE}:{name}", "weights.h5")
    assert bool(verdict) is (not faults), verdict.summary()
    assert [fault.candidate for fault in verdict.faults] == faults
