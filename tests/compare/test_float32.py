"""float32 (B) on networks of one layer: rounding errors that a correct port may have, and those that it may not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch
from jax import lax

from wdport.compare.calls import Case
from wdport.compare.candidate import Candidate
from wdport.compare.engine import compare
from wdport.compare.findings import Gate
from wdport.compare.gates import float32_gate, float64_gate
from wdport.compare.reference import Live
from wdport.mapping.names import NamePattern
from wdport.mapping.rows import Table, TapRow
from wdport.models.interface import Array, Signature
from wdport.recording.conditioning import float32_errors
from wdport.recording.input_text import parse_input


class Torch(torch.nn.Module):
    """A function of (B, 8), and a layer that gets its result through a dropout, which is no tap."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function, self.drop, self.norm = function, torch.nn.Dropout(), torch.nn.Identity()
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.drop(self.function(x)))


class Keras(keras.Model):
    """The same in Keras."""

    def __init__(self, function: Callable[[Any], Any], dtype: str) -> None:
        super().__init__(dtype=dtype)
        self.function, self.norm = function, keras.layers.Identity(dtype=dtype)

    def call(self, x: Any) -> Any:
        return self.norm(self.function(x))


CASE = Case(0, 4, 1.0)


def gates(
    reference: Callable[[Any], Any], port: Callable[[Any], Any], cases: Sequence[Case] = (CASE,),
    make_inputs: Callable[[int, int, float], Sequence[Array]] | None = None,
) -> tuple[Gate, Gate]:  # fmt: skip
    """Gates float64 and float32."""
    models: dict[str, Any] = {dtype: Keras(port, dtype) for dtype in ("float64", "float32")}
    for dtype, model in models.items():
        with jax.enable_x64(dtype == "float64"):
            model(np.zeros((1, 8), dtype))
    norm = NamePattern("norm")
    candidate = Candidate(models, Table("mean", "", "", "", None, (), (TapRow(0, norm, norm),)),
                          Signature((parse_input("x: b w=8"),)))  # fmt: skip
    modules = {"float64": Torch(reference).double(), "float32": Torch(reference)}
    comparison = compare(Live(modules, make_inputs, drawn=candidate.signature.inputs), candidate, cases)
    return float64_gate(comparison), float32_gate(comparison)


def mean(looped: bool) -> Callable[[Any], Any]:
    """The mean, with 2^12 added before the numbers and subtracted later, in one sum or in a loop."""

    def function(x: Any) -> Any:
        large = jnp.full_like(x[:, :1], 2.0**12)
        if looped:
            return lax.scan(lambda so_far, v: (so_far + v, None), large[:, 0], x.T)[0] / 8 - 2.0**9
        # The halves of the axis are added first, so that pairwise both large numbers give an exact zero.
        return jnp.sum(jnp.concatenate([large, x[:, :4], -large, x[:, 4:]], axis=1), axis=1) / 8

    return function


@pytest.mark.parametrize("looped", [False, True])
def test_only_the_order_of_additions_passes_with_a_notice(looped: bool) -> None:
    float64, float32 = gates(lambda x: x.mean(1), mean(looped))
    assert (float64.passed, float32.passed) == (True, not looped)
    notices = [str(finding) for finding in float32.findings if finding.notice]
    assert all("the cause is the order in which XLA adds numbers" in text for text in notices)
    expected = [] if looped else ["norm inputs", "output, whole network"]
    assert [text.partition(" has ")[0] for text in notices] == expected


def narrow(x: Any) -> Any:
    """3e-6 off in float32."""
    return x + 3e-6 * (x.dtype == np.float32)


def test_a_case_of_large_values_hides_no_error() -> None:
    """The absolute errors of the reference in the second case are above that of the port in the first one."""
    cases = [CASE, Case(2, 4, 1e4)]
    assert gates(lambda x: 1.1 * x, lambda x: 1.1 * x, cases)[1].passed
    assert gates(lambda x: 1.1 * x, lambda x: 1.1 * narrow(x), cases[1:])[1].passed
    float64, float32 = gates(lambda x: 1.1 * x, lambda x: 1.1 * narrow(x), cases)
    assert (float64.passed, float32.passed) == (True, False)


def eighths(seed: int, batch: int, scale: float) -> list[Array]:
    return [np.random.default_rng(seed).integers(-16, 17, (batch, 8)) / 8.0]


def test_a_reference_that_is_exact_by_chance_makes_no_false_alarm() -> None:
    """1500 times an eighth is exact, and 1500 times a number that is moved by one rounding is not; neither are the
    port's products."""

    def port(error: float) -> Callable[[Any], Any]:
        return lambda x: jnp.sin(1500.1 * x - 0.1 * x) + error * (x.dtype == np.float32)

    assert gates(lambda x: torch.sin(1500.0 * x), port(0.0), [CASE], eighths)[1].passed
    assert not gates(lambda x: torch.sin(1500.0 * x), port(1e-3), [CASE], eighths)[1].passed


def test_the_references_errors_are_relative_to_their_own_inputs() -> None:
    """The runs' inputs differ by a rounding, which a steep function amplifies; their errors do not."""
    module = Torch(lambda x: 1e4 * x)
    modules = {"float64": Torch(lambda x: 1e4 * x).double(), "float32": module}
    inputs = (np.random.default_rng(0).standard_normal((4, 8)),)
    errors = float32_errors(modules, CASE, inputs)
    size = float(np.linalg.norm(1e4 * inputs[0]))
    for square, largest in (errors.taps["norm"].fed, errors.taps["norm"].running):
        assert square**0.5 <= 2.0**-24 * size
        assert largest <= 2.0**-24 * np.max(np.abs(1e4 * inputs[0])) * 1.001
