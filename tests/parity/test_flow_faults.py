"""Known bugs of flows in a correct port: gate E kills every one, on a small network of the user's own kind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import keras
import numpy as np
import pytest

from parity_tests.faults.samplers import FLOW_FAULTS, faults_of
from wdport.models.interface import Array, ArrayNames, Diffused, NotDecoded
from wdport.uses.diffusion.flow import TARGETS, Flow
from wdport.uses.gates.trajectories import TrajectoryReference, kill_sampler_faults, trajectories_gate

SIZE, SCALE = 4, 1000.0
RNG = np.random.default_rng(0)
KERNEL, WAVE = RNG.standard_normal((SIZE, SIZE)) / 2.0, RNG.standard_normal(SIZE)


@keras.saving.register_keras_serializable("wdport-tests")
class Slopes(keras.Model):
    """(x (B, 4), t (B,)) to x K (1 + sin(t / 1000)) + sin(t / 1000) w: affine, for states are large near time 0."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.kernel = self.add_weight(name="kernel", shape=KERNEL.shape)
        self.wave = self.add_weight(name="wave", shape=WAVE.shape)
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        x, times = inputs
        wave = keras.ops.sin(times / SCALE)[:, None]
        return keras.ops.matmul(x, self.kernel) * (1.0 + wave) + wave * self.wave


def reference(x: Array, times: Array) -> Array:
    """The same in numpy."""
    wave = np.sin(times / SCALE)[:, None]
    found: Array = x @ KERNEL * (1.0 + wave) + wave * WAVE
    return found


@dataclass
class Family:
    """What sampling asks of a family."""

    flow: Flow
    name: str = "slopes"

    def unsampled(self, _: object) -> str:
        return ""

    def process(self, _: object, table: object) -> Flow:
        return self.flow

    def diffused(self, _: object) -> Diffused:
        why = NotDecoded("samples are what the network makes", "not decoded", "leave it out")
        return Diffused(
            (SIZE,), ArrayNames("points", "number", "number"), ArrayNames("decoded", "number", "number"), why, 64
        )

    def build(self, _: object, dtype: str | None = None) -> Slopes:
        return Slopes(dtype=dtype)

    def to_series(self, *_: object) -> None:
        return None


@pytest.fixture(scope="module")
def model() -> Slopes:
    with jax.enable_x64(True):
        made = Slopes(dtype="float64")
        made.kernel.assign(KERNEL)
        made.wave.assign(WAVE)
    return made


def told(scale: float, time: float) -> float:
    return scale * time


@pytest.mark.parametrize(
    ("target", "path"),
    [(target, path) for target in TARGETS for path in ("linear", "cosine") if (target, path) != ("velocity", "cosine")],
)
def test_every_fault_of_a_flow_is_killed(target: str, path: str, model: Slopes) -> None:
    flow = Flow(path, target, partial(told, SCALE))
    side, known = TrajectoryReference(reference, flow, (SIZE,)), (Family(flow), None)
    gate, _ = trajectories_gate(side, {"float64": model}, known)
    assert gate.passed
    kills = list(kill_sampler_faults(side, model, faults_of(flow), known))
    assert [name for name, _, _ in kills] == [fault.name for fault in faults_of(flow)]
    assert [(name, margin) for name, margin, killed in kills if not (killed and margin > 6.0)] == []


def test_between_them_every_fault_is_tried() -> None:
    tried = {fault.name for target in TARGETS for fault in faults_of(Flow("linear", target, partial(told, SCALE)))}
    assert tried == {fault.name for fault in FLOW_FAULTS}
    assert "time not scaled" not in {fault.name for fault in faults_of(Flow())}
