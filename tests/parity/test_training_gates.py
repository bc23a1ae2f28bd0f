"""Gates C and D on a small model: a correct port passes, each known bug of training code fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import jax
import pytest

from tests.bad.ground import ground
from wdport.compare.taps import Tap
from wdport.conversion.load import open_converted
from wdport.conversion.prepare import Prepared, Settings, prepare
from wdport.models.keras_runtime import layers_by_path
from wdport.parity.gradient_gate import gradient_gate
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.model_pair import Sides, build_sides, change_weights, converted_weights, with_random_biases

TAPS = {
    "level_transformers.0": "level_0",
    "level_transformers.1.blocks.0.norm2": "level_1/block_0/norm2",
    "cross_level_attention": "cross_level",
    "time_embedding": "time_embedding",
}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Prepared, Sides]]:
    path = ground() / "good.ckpt"
    converted = open_converted(path.with_suffix(".keras"))
    known = {name: value for name, value in asdict(converted.config).items() if value is not None}
    with prepare(path, Settings(known=known)) as prepared:
        weights = converted_weights(prepared, converted)
        sides = build_sides(prepared, weights)
        change_weights(prepared, sides, with_random_biases(prepared, weights, sides.reference.shifts), weights)
        yield prepared, sides


@pytest.fixture(scope="module")
def probe(pair: tuple[Prepared, Sides]) -> GradientProbe:
    return GradientProbe(pair[1].candidates["float64"], list(TAPS.values()))


def _run(pair: tuple[Prepared, Sides], probe: GradientProbe) -> Any:
    prepared, sides = pair
    taps = [Tap(reference, candidate, None) for reference, candidate in TAPS.items()]
    return gradient_gate(prepared, sides.reference, probe, taps, seed=0, batch=4)


def test_gradients_agree(pair: tuple[Prepared, Sides], probe: GradientProbe) -> None:
    found = _run(pair, probe)
    assert found.gate.passed, found.gate.findings
    assert set(found.taps) == set(TAPS)
    assert len(found.variables) == len(pair[1].candidates["float64"].trainable_variables)
    assert found.gate.worst < 1e-11


def test_a_stopped_gradient_is_found(pair: tuple[Prepared, Sides], monkeypatch: pytest.MonkeyPatch) -> None:
    """The output stays what it is, so gate A has nothing to see."""
    model = pair[1].candidates["float64"]
    norm = layers_by_path(model)["level_1/block_0/norm2"]
    call = norm.call
    monkeypatch.setattr(norm, "call", lambda tokens, time: call(jax.lax.stop_gradient(tokens), time))
    found = _run(pair, GradientProbe(model, list(TAPS.values())))
    assert not found.gate.passed
    assert found.gate.compared == found.gate.expected
    off = {name for name, error in found.variables.items() if error > 1e-10}
    assert "level_1/input_proj/kernel" in off
    assert "level_1/block_0/mlp/hidden/kernel" not in off
    assert not any(name.startswith("level_0/") for name in off)
    assert found.taps["level_transformers.1.blocks.0.norm2"] < 1e-11
    assert found.parts[0] < 1e-11 < found.parts[1]
