"""Gate resumed (D'): it passes for what was converted, and fails for every fault in the state or in the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import wdport
from tests.conversion.test_optimizer import trained
from tests.make import SETTINGS, save_run, stated
from wdport.base.errors import MisfitError
from wdport.compare.findings import Gate
from wdport.conversion.optimizer_file import Optimised, read_optimizer, write_optimizer
from wdport.families.user_functions import find_function
from wdport.files.outputs import writable
from wdport.optimizers.torch_like import SGD, Adam
from wdport.parity.file_pair import both_files
from wdport.parity.model_pair import build_sides, converted_weights, user_reference
from wdport.parity.resumed_gate import open_resumed, resumed_gate
from wdport.parity.training_mode_gate import TrainingStart
from wdport.parity.verify import Verdict
from wdport.parity.verify_options import Pair

pytestmark = pytest.mark.usefixtures("one_case")

Files = tuple[Path, Path, Path, Path | None]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Files]:
    made: dict[str, Files] = {}

    def files(name: str) -> Files:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            checkpoint, table, *_ = trained(folder, name)
            converted = wdport.convert(checkpoint, folder / "run.keras", mapping=table, with_optimizer=True)
            assert converted.optimizer is not None
            made[name] = checkpoint, converted.output, converted.optimizer.path, table
        return made[name]

    return files


def gate(files: Files, optimizer: Path | None = None) -> tuple[Gate, Verdict]:
    checkpoint, converted, beside, table = files
    verdict = wdport.verify(checkpoint, converted, mapping=table, resume=optimizer or beside)
    (found,) = [each for each in verdict.gates if each.name == "D'"]
    return found, verdict


def gate_alone(files: Files, optimizer: Path | None = None) -> Gate:
    """The same gate without the others, whose models are right here."""
    checkpoint, converted, beside, table = files
    pair = Pair(converted, checkpoint, mapping=table)
    with both_files(pair, pair.own) as both:
        weights = converted_weights(both.prepared, both.converted)
        sides = build_sides(both.prepared, weights, user_reference(both.target, both.prepared))
        resumed = open_resumed(both.prepared, optimizer or beside, weights.variables)
        return resumed_gate(TrainingStart(both.prepared, both.converted, sides), resumed)


@pytest.mark.parametrize("name", ["sgd", "adamw", "adam"])
def test_a_users_model_passes(own: Callable[[str], Files], name: str) -> None:
    found = gate_alone(own(name))
    assert found.passed
    assert found.compared == found.expected
    assert found.compared > 60
    assert found.worst is not None
    assert found.worst < 1e-12
    kinds = {str(each.subject).split(" of ")[0] for each in found.measures}
    moments = {"sgd": {"momentum_buffer"}, "adamw": {"exp_avg", "exp_avg_sq"}}
    assert kinds >= {"loss", "learning rate", "momentum", "gradient", "value", *moments.get(name, {"max_exp_avg_sq"})}


@pytest.mark.full
def test_a_run_of_waveletdiff_passes(tmp_path: Path) -> None:
    """Its schedule rises during the steps, and beta1 with it."""
    checkpoint = save_run(tmp_path / "run.ckpt")
    made = wdport.convert(checkpoint, tmp_path / "run.keras", values=SETTINGS, with_optimizer=True)
    assert made.optimizer is not None
    found, verdict = gate((checkpoint, made.output, made.optimizer.path, None))
    assert verdict
    assert found.compared > 500


def _steps(state: Optimised) -> Optimised:
    return replace(state, steps={name: step + 1 for name, step in state.steps.items()})


def _swapped(state: Optimised) -> Optimised:
    arrays = dict(state.moments["exp_avg"])
    first, second = "layer1/0/bn1/gamma", "layer1/0/bn1/beta"
    arrays[first], arrays[second] = arrays[second], arrays[first]
    return replace(state, moments={**state.moments, "exp_avg": arrays})


def _transposed(state: Optimised) -> Optimised:
    arrays = dict(state.moments["exp_avg_sq"])
    name = "layer1/0/conv1/kernel"
    arrays[name] = np.ascontiguousarray(arrays[name].swapaxes(2, 3))
    return replace(state, moments={**state.moments, "exp_avg_sq": arrays})


def _other_group(state: Optimised) -> Optimised:
    return replace(state, members={**state.members, "conv1/kernel": 1})


def _rate(state: Optimised) -> Optimised:
    (key,) = state.schedules
    return replace(state, schedules={key: {**state.schedules[key], "last_epoch": 3}})


def _other_bit(state: Optimised) -> Optimised:
    array = state.moments["exp_avg"]["fc/bias"].copy()
    array.view(np.uint32)[0] ^= 1
    return replace(state, moments={**state.moments, "exp_avg": {**state.moments["exp_avg"], "fc/bias": array}})


@pytest.mark.parametrize("fault", [_steps, _swapped, _transposed, _other_group, _rate, _other_bit])
def test_a_fault_in_the_state_fails(
    own: Callable[[str], Files], tmp_path: Path, fault: Callable[[Optimised], Optimised]
) -> None:
    files = own("adamw")
    state, model = read_optimizer(files[2])
    write_optimizer(writable(tmp_path / "a.optimizer.safetensors"), fault(state), model)
    found = gate_alone(files, tmp_path / "a.optimizer.safetensors")
    assert not found.passed
    if fault not in (_other_bit, _rate):  # without the comparison of bits, too; and a position that changes no rate yet
        assert found.worst is not None
        assert found.worst > 1e-6


@pytest.fixture(params=["epsilon", "coupled decay", "rate in the momentum", "no nesterov", "beta2"])
def faulty(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Bugs of optimizers, in ours."""
    adam, sgd = Adam.update_step, SGD.update_step

    def changed(update: Any, **changes: Any) -> Any:
        def step(self: Any, gradient: Any, variable: Any, rate: Any) -> None:
            before = self.groups
            self.groups = tuple(replace(group, **changes) for group in before)
            update(self, gradient, variable, rate)
            self.groups = before

        return step

    def scaled(self: Any, gradient: Any, variable: Any, rate: Any) -> None:
        sgd(self, gradient, variable, rate)
        at = self._get_variable_index(variable)
        self.buffer[at].assign(self.buffer[at].value * jnp.asarray(self.groups[0].lr, variable.dtype))

    bugs: dict[str, tuple[Any, Any]] = {
        "epsilon": (Adam, changed(adam, eps=1e-7)),
        "coupled decay": (Adam, changed(adam, decoupled_weight_decay=False)),
        "beta2": (Adam, changed(adam, betas=(0.9, 0.99))),
        "no nesterov": (SGD, changed(sgd, nesterov=False)),
        "rate in the momentum": (SGD, scaled),
    }
    cls, step = bugs[request.param]
    monkeypatch.setattr(cls, "update_step", step)
    return "adamw" if cls is Adam else "sgd"


def test_a_fault_in_the_optimizer_fails(own: Callable[[str], Files], faulty: str) -> None:
    assert not gate_alone(own(faulty)).passed


def test_an_optimizer_of_another_run_is_refused(own: Callable[[str], Files]) -> None:
    files = own("adamw")
    with pytest.raises(MisfitError, match="not the optimizer of this checkpoint"):
        gate(files, own("sgd")[2])


@pytest.mark.parametrize("cls", ["torch.optim.lr_scheduler:ExponentialLR", "tests.optimizers.test_schedules:Inverse"])
def test_the_class_of_a_schedule_is_what_the_user_names(tmp_path: Path, cls: str) -> None:
    """Before their first step, both classes store the same: what tells them apart is the name alone."""
    checkpoint, table, _, optimizer, _ = trained(tmp_path, "sgd")
    for group in optimizer.param_groups:
        del group["initial_lr"]
    schedule = find_function(cls)(optimizer, 0.5)
    whole = torch.load(checkpoint, weights_only=False)
    torch.save({**whole, "scheduler": schedule.state_dict(), "optimizer": stated(optimizer)}, checkpoint)  # type: ignore[attr-defined]
    made = wdport.convert(checkpoint, tmp_path / "run.keras", mapping=table, with_optimizer=True)
    assert made.optimizer is not None
    verdict = wdport.verify(checkpoint, made.output, mapping=table, resume=made.optimizer.path, schedule=cls)
    (found,) = [each for each in verdict.gates if each.name == "D'"]
    assert found.passed == bool(verdict) == cls.startswith("torch")
    worst = max(found.measures, key=lambda each: each.value)
    assert found.passed or (str(worst.subject).startswith("learning rate") and worst.value > 0.1)
