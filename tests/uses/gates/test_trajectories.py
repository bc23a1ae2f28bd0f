"""Gate E on a small model: a correct port passes, every known sampler bug and a broken model fail."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import jax
import numpy as np
import pytest
import torch

from parity_tests.faults.samplers import SAMPLER_FAULTS
from tests.make import TWO_LEVELS, make_state
from wdport.compare.gate_bounds import TRAJECTORY
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.rearrange import apply_rule
from wdport.mapping.table import choose_table
from wdport.models.interface import Port, Signature
from wdport.recording.input_text import parse_input
from wdport.recording.runs import run
from wdport.uses.diffusion.diffusion import Diffusion
from wdport.uses.diffusion.scheduler_config import Scheduler
from wdport.uses.diffusion.schedules import noise_schedule
from wdport.uses.gates.trajectories import (
    TrajectoryReference,
    kill_sampler_faults,
    reference_network,
    trajectories_gate,
)
from wdport.uses.waveletdiff.family import FAMILY


class Pair:
    """The reference's side, and the port in two dtypes."""

    def __init__(self) -> None:
        tensors = {name: tensor.numpy() for name, tensor in make_state(TWO_LEVELS).items()}
        constants = {name: constant.shape for name, constant in FAMILY.constants(TWO_LEVELS).items()}
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        table = choose_table(tensors, "test")
        plan = make_plan(table, shapes, FAMILY.variables(TWO_LEVELS), constants, FAMILY.features(TWO_LEVELS))
        assert isinstance(plan, Plan)
        variables: dict[str, Any] = {}
        for move in plan.moves:
            made = apply_rule(move.rule, [tensors[move.source]], move.sizes)
            variables |= zip(move.targets, made, strict=True)
        self.models = {}
        for dtype in ("float64", "float32"):
            with jax.enable_x64(dtype == "float64"):
                self.models[dtype] = FAMILY.build(TWO_LEVELS, dtype)
                for variable in self.models[dtype].weights:
                    variable.assign(np.array(variables[variable.path], dtype))
        module = FAMILY.build_reference(TWO_LEVELS, tensors, "float64")
        process = FAMILY.process(TWO_LEVELS, lambda name: tensors[f"{name.removeprefix('noise_schedule.')}_all"])
        self.reference = TrajectoryReference(lambda x, time: run(module, (x, time))[0], process, (10, 3))


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


def test_a_correct_port_passes(pair: Pair) -> None:
    gate, trajectories = trajectories_gate(pair.reference, pair.models)
    assert gate.passed
    assert gate.findings == ()
    assert gate.compared == gate.expected == 6 * 6 + 1001
    assert [each.sampler for each in trajectories] == [
        f"{sampler}, {target} target"
        for target in ("noise", "sample")
        for sampler in ("DDPM", "DDIM, eta 0", "DDIM, eta 0.5")
    ]
    for each in trajectories:
        assert each.steps == (1000, 800, 600, 400, 200, 1)
        assert 0.0 < max(each.logic) < 1e-12
        assert 1e-8 < max(each.single) < 1e-3
    assert gate.worst == max(error for each in trajectories for error in each.logic)


def test_without_diffusers_its_trajectories_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "diffusers", None)
    gate, trajectories = trajectories_gate(TrajectoryReference(lambda x, _: x, Scheduler().process(), (10, 3)), {})
    assert (gate.outcome, gate.passed, trajectories) == ("INCOMPLETE", False, ())
    install = "diffusers: is not installed, and its DDPMScheduler is the reference; pip install 'wdport[diffusers]'"
    assert [str(each) for each in gate.findings] == [f"not compared: {install}"]


def test_every_sampler_fault_is_killed(pair: Pair) -> None:
    kills = kill_sampler_faults(pair.reference, pair.models["float64"], SAMPLER_FAULTS)
    fates = {name: (margin, killed) for name, margin, killed in kills}
    assert set(fates) == {fault.name for fault in SAMPLER_FAULTS}
    assert {name: fate for name, fate in fates.items() if not (fate[1] and fate[0] > 4.0)} == {}


def test_another_schedule_in_the_file_is_seen(pair: Pair) -> None:
    def shifted(name: str) -> Any:
        table = noise_schedule("exponential")._asdict()[name.removeprefix("noise_schedule.")]
        return np.append(table[:1], table[:-1]) * (0.999 if name.endswith("alpha_bar") else 1.0)

    process = FAMILY.process(TWO_LEVELS, shifted)
    gate, _ = trajectories_gate(replace(pair.reference, process=process), {"float64": pair.models["float64"]})
    assert not gate.passed
    assert gate.compared == gate.expected


def test_another_target_is_seen(pair: Pair) -> None:
    process = pair.reference.process
    assert isinstance(process, Diffusion)
    other = replace(pair.reference, process=replace(process, target="sample"))
    gate, _ = trajectories_gate(other, {"float64": pair.models["float64"]})
    assert list(map(str, gate.findings)) == ["the port's target is noise, the checkpoint's sample"]
    assert not gate.passed


def test_a_ruined_schedule_is_not_compared_and_fails(pair: Pair) -> None:
    model = pair.models["float64"]
    held = model.noise_schedule.alpha_bar
    before = np.asarray(held.value)
    with jax.enable_x64(True):
        held.assign(np.ones(1001))
        try:
            gate, trajectories = trajectories_gate(pair.reference, {"float64": model})
        finally:
            held.assign(before)
    assert not gate.passed
    assert gate.compared == 1001
    assert gate.expected == 1037
    assert gate.worst is None
    assert "alpha_bar is 1 at step 1" in str(gate.findings[0])
    assert all(each.logic == () for each in trajectories)


def test_nan_is_infinitely_wrong(pair: Pair) -> None:
    gate, _ = trajectories_gate(
        replace(pair.reference, network=lambda x, time: pair.reference.network(x, time) * np.nan),
        {"float64": pair.models["float64"]},
    )
    assert not gate.passed
    assert gate.worst == inf
    assert gate.bound == TRAJECTORY


def test_times_between_steps_reach_the_reference() -> None:
    """Those of a spacing by noise levels; a table of steps gets whole numbers."""

    class Recorder(torch.nn.Module):
        def forward(self, x: Any, time: Any) -> Any:
            times.append(time)
            return x

    times: list[Any] = []
    signature = Signature((parse_input("x: b 2"), parse_input("t: b, below 10")), (Port("y", "b c -> b c"),))
    network = reference_network(signature, None, Recorder())
    state = np.zeros((2, 2))
    for given in ([2.5, 2.5], [3.0, 3.0]):
        network(state, np.array(given))
    assert [time.dtype for time in times] == [torch.float64, torch.int64]
    assert [time.tolist() for time in times] == [[2.5, 2.5], [3, 3]]
