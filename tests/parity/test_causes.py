"""A cause is stated only where a trial shows it; layers without weights may be others than PyTorch's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
import torch
from keras import Input, Model, activations, layers, ops, saving
from torch import nn

from tests.families.quick import few_cases
from tests.parity.own_models import verify_own
from wdport.parity.diagnose import FLOAT32


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() * math.pi


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.s, self.b = nn.Linear(6, 8), Scaled(), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.s(self.a(x)))  # type: ignore[no-any-return]


class ScaledPort(layers.Layer):
    def __init__(self, how: str, **options: Any) -> None:
        super().__init__(**options)
        self.how = how

    def call(self, x: Any) -> Any:
        if self.how == "constant":  # exp(sin) for no other reason than that no relation of values fits
            return ops.sin(x) * math.pi + 1e-8 * ops.exp(x)
        if self.how == "inside":
            return ops.cast(ops.sin(jnp.asarray(x, "float32")), x.dtype) * math.pi
        if self.how == "stated":  # in float32, it computes nothing else
            return ops.cast(ops.sin(ops.cast(x, "float32")), x.dtype) * math.pi
        return ops.cast(jnp.asarray(ops.sin(x) * math.pi, "float32"), x.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "how": self.how}


def port(how: str) -> Any:
    x = Input((6,))
    return Model(x, layers.Dense(3, name="b")(ScaledPort(how, name="s")(layers.Dense(8, name="a")(x))))


def constant() -> Any:
    return port("constant")


def inside() -> Any:
    return port("inside")


def stated() -> Any:
    return port("stated")


def rounded() -> Any:
    return port("rounded")


TABLE = """format: 2
inputs: ["x: b 6"]
layers:
  - {torch: a, keras: a, kind: linear}
  - {torch: s, keras: s}
  - {torch: b, keras: b, kind: linear}
"""


@pytest.mark.parametrize(("how", "causes", "leak"), [
    ("constant", (), False), ("inside", (FLOAT32,), False), ("rounded", ("its output is rounded to float32",), True),
    ("stated", (), False),
])  # fmt: skip
def test_a_small_error_is_one_of_float32_only_if_values_are_rounded(
    tmp_path: Path, how: str, causes: tuple[str, ...], leak: bool
) -> None:
    with few_cases():
        verdict = verify_own(tmp_path, TABLE, Net(), f"{__name__}:Net", f"{__name__}:{how}")
    assert verdict.causes == ({"s": causes} if how != "stated" else {})
    assert bool(verdict) == (how == "stated")
    assert ("precision leak: s is off by" in verdict.summary()) == leak


class Pools(nn.Module):
    """One pooling, called three times, and a stride."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.pool, self.b = nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(3, 1, 1), nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.pool(self.pool(self.pool(self.a(x)))))  # type: ignore[no-any-return]


def pools_port(size: int = 3, stride: int = 2) -> Any:
    x = Input((20, 20, 3))
    y = layers.Conv2D(4, 3, stride, name="a")(layers.ZeroPadding2D(1)(x))
    for index in range(3):
        y = layers.MaxPooling2D(size if index else 3, 1, "same", name=f"pool{index}")(y)
    return Model(x, layers.Conv2D(2, 3, padding="same", name="b")(y))


def wrong_pools_port() -> Any:
    return pools_port(5)


def wrong_stride_port() -> Any:
    return pools_port(stride=1)


POOLS = """format: 2
inputs: ["x: b 3 20 20"]
layers:
  - {torch: a, keras: a, kind: conv2d}
  - {torch: pool, keras: pool1, kind: max_pool2d}
  - {torch: b, keras: b, kind: conv2d}
"""


@pytest.mark.parametrize("made", ["pools_port", "wrong_pools_port"])
def test_several_layers_without_weights_may_do_what_one_module_does(tmp_path: Path, made: str) -> None:
    with few_cases():
        verdict = verify_own(tmp_path, POOLS, Pools(), f"{__name__}:Pools", f"{__name__}:{made}")
    assert bool(verdict) == (made == "pools_port")
    assert "compared where its outputs are used: pool (pool is called 3 times" in verdict.summary()


def test_layers_after_one_of_a_wrong_size_are_no_faults(tmp_path: Path) -> None:
    table = POOLS.replace("  - {torch: pool, keras: pool1, kind: max_pool2d}\n", "")
    with few_cases():
        verdict = verify_own(tmp_path, table, Pools(), f"{__name__}:Pools", f"{__name__}:wrong_stride_port")
    assert [fault.candidate for fault in verdict.faults] == ["a"]
    assert verdict.causes["a"] == ("strides (stride) (1, 1) where the reference has (2, 2)",)


class Refined(nn.Module):
    """Refines a state, and reads it after every step; returns one of the values it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.read = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        read = []
        for _ in range(4):
            x = self.step(x).tanh()
            read.append(self.read(x))
        return read[2]


def refined(steps: int) -> Any:
    x = Input((4,))
    step, read = layers.Dense(4, activation="tanh", name="step"), layers.Dense(2, name="read")
    y = x
    for _ in range(steps):
        y = step(y)
    return Model(x, read(y))


def three_steps() -> Any:
    return refined(3)


def two_steps() -> Any:
    return refined(2)


class Capped(nn.Module):
    """Calls a layer twice; the second call is a cap that seldom acts."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        return torch.minimum(y, self.a(2 * y).exp().clamp(1e8, 1e9))


def uncapped() -> Any:
    x = Input((4,))
    return Model(x, layers.Dense(4, name="a")(x))


def test_a_call_that_an_output_depends_on_is_needed_also_if_no_sample_shows_it(tmp_path: Path) -> None:
    table = 'format: 2\ninputs: ["x: b 4"]\nlayers:\n  - {torch: a, keras: a, kind: linear}\n'
    with few_cases():
        verdict = verify_own(tmp_path, table, Capped(), f"{__name__}:Capped", f"{__name__}:uncapped")
    assert verdict.exit_code == 1
    assert "a is called 2 times, the port's a once\n" in verdict.summary()


REFINED = """format: 2
inputs: ["x: b 4"]
layers:
  - {torch: step, keras: step, kind: linear, then: tanh}
  - {torch: read, keras: read, kind: linear}
"""


@pytest.mark.parametrize("made", ["three_steps", "two_steps"])
def test_a_port_may_leave_out_only_calls_that_no_output_depends_on(tmp_path: Path, made: str) -> None:
    with few_cases():
        verdict = verify_own(tmp_path, REFINED, Refined(), f"{__name__}:Refined", f"{__name__}:{made}")
    assert bool(verdict) == (made == "three_steps")
    assert (
        "read is called 4 times, the port's read once: no output depends on read, read#2, read#4" in verdict.summary()
    )
    step = "step is called 4 times, the port's step 3 times: no output depends on step#4"
    assert (step if verdict else "step is called 4 times, the port's step 2 times\n") in verdict.summary()


def test_other_code_of_the_same_name_beside_the_table_is_noted(tmp_path: Path) -> None:
    beside = tmp_path / "tests" / "parity" / "test_causes.py"
    beside.parent.mkdir(parents=True)
    with few_cases():
        for text, noted in (("other code", 2), (Path(__file__).read_text(), 0)):
            beside.write_text(text)
            (tmp_path / "net.keras").unlink(missing_ok=True)
            verdict = verify_own(tmp_path, REFINED, Refined(), f"{__name__}:Refined", f"{__name__}:three_steps")
            assert verdict.summary().count("which is beside the mapping table") == noted


class Pooled(nn.Module):
    """Functions of torch between modules."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up, self.down = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(36, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.conv(x).relu(), 2)
        return self.down(nn.functional.gelu(self.up(x.flatten(1))))  # type: ignore[no-any-return]


class RootPooling(layers.Layer):
    """A pooling that PyTorch does not have."""

    def call(self, x: Any) -> Any:
        return ops.sqrt(ops.average_pool(x * x, 2, 2) + 1.0)


@saving.register_keras_serializable("tests")
def tanh_gelu(x: Any) -> Any:
    return ops.gelu(x, approximate=True)


def pooled_port(pool: Any = None, activation: Any = activations.gelu) -> Any:
    x = Input((6, 6, 1))
    y = (pool or layers.MaxPooling2D(2))(layers.Conv2D(4, 3, padding="same", activation="relu", name="conv")(x))
    y = layers.Dense(8, activation=activation, name="up")(layers.Reshape((36,))(layers.Permute((3, 1, 2))(y)))
    return Model(x, layers.Dense(3, name="down")(y))


def average_port() -> Any:
    return pooled_port(layers.AveragePooling2D(2))


def tanh_port() -> Any:
    return pooled_port(activation=tanh_gelu)


def odd_port() -> Any:
    return pooled_port(RootPooling())


POOLED = """format: 2
inputs: ["x: b 1 6 6"]
layers:
  - {torch: conv, keras: conv, kind: conv2d, then: relu}
  - {torch: up, keras: up, kind: linear, then: gelu}
  - {torch: down, keras: down, kind: linear}
"""


@pytest.mark.parametrize(("made", "causes"), [
    ("pooled_port", {}),
    ("average_port", {"": ("avg_pool2d where PyTorch has max_pool2d",)}),
    ("tanh_port", {"up": ("activation gelu by tanh where PyTorch has gelu (after up)",)}),
    ("odd_port", {"": ()}),
])  # fmt: skip
def test_another_function_is_named_if_the_reference_computes_the_ports_value_with_it(
    tmp_path: Path, made: str, causes: dict[str, tuple[str, ...]]
) -> None:
    with few_cases():
        verdict = verify_own(tmp_path, POOLED, Pooled(), f"{__name__}:Pooled", f"{__name__}:{made}")
    assert verdict.causes == causes
