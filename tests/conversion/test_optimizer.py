"""The state of an optimizer, converted: training goes on as it does in PyTorch, and the way back restores every bit."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
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
from tests.command import Cli
from tests.families.test_custom import HEAD, TABLES
from tests.families.toys import nets, residual_net
from tests.families.toys.nets import randomised
from tests.make import SETTINGS, save_run, stated
from wdport.base.errors import InputError, MisfitError, UsageError
from wdport.cli.main import main
from wdport.conversion.convert import ConvertedOptimizer
from wdport.conversion.optimizer_file import read_optimizer
from wdport.models.keras_runtime import exact_float64

TABLE = """
format: 2
torch: tests.families.toys.residual_net:build
keras: tests.families.toys.residual_twin:build
inputs: ["x: b c=3 h=12 w=12 -> b h w c"]
layers:
  - {torch: conv1, keras: conv1, kind: conv2d}
  - {torch: bn1, keras: bn1, kind: batch_norm}
  - {torch: layer<l>.<i>.conv<n>, keras: layer<l>/<i>/conv<n>, kind: conv2d}
  - {torch: layer<l>.<i>.bn<n>, keras: layer<l>/<i>/bn<n>, kind: batch_norm}
  - {torch: layer<l>.<i>.downsample.0, keras: layer<l>/<i>/downsample/0, kind: conv2d}
  - {torch: layer<l>.<i>.downsample.1, keras: layer<l>/<i>/downsample/1, kind: batch_norm}
  - {torch: fc, keras: fc, kind: linear}
"""


IMAGE = HEAD.format(torch="image", keras="image") + TABLES["image"]


@pytest.fixture
def exact() -> Iterator[None]:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64():
        yield


def decay_groups(module: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Weight decay for matrices and kernels only, as training recipes have it."""
    parameters = list(module.parameters())
    return [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": decay},
        {"params": [each for each in parameters if each.ndim < 2], "weight_decay": 0.0},
    ]


def batches(count: int, seed: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    return [(random.normal(size=(8, 3, 12, 12)), random.integers(0, 5, 8)) for _ in range(count)]


def train(module: nn.Module, optimizer: Any, schedule: Any, data: Any) -> list[float]:
    """Train in the module's dtype; the losses before every step."""
    losses = []
    dtype = next(module.parameters()).dtype
    for x, y in data:
        loss = nn.functional.cross_entropy(module(torch.tensor(x, dtype=dtype)), torch.tensor(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda module: torch.optim.SGD(decay_groups(module, 5e-3), lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda module: torch.optim.AdamW(decay_groups(module, 0.1), lr=3e-3),
    "adam": lambda module: torch.optim.Adam(module.parameters(), lr=3e-3, amsgrad=True, weight_decay=0.01),
}


def trained(
    folder: Path, name: str, build: Callable[[], nn.Module] = residual_net.build, rows: str = TABLE
) -> tuple[Path, Path, nn.Module, Any, Any]:
    """A network trained for a while in float32, saved with its optimizer."""
    module = randomised(build()).train()
    optimizer = OPTIMIZERS[name](module)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [4, 9, 16], gamma=0.5)
    train(module, optimizer, schedule, batches(6))
    whole = {
        "model": module.state_dict(),
        "optimizer": stated(optimizer),
        "scheduler": schedule.state_dict(),
        "epoch": 6,
    }
    if name != "sgd":  # which does not count its steps: the schedule does
        whole["global_step"] = 6
    torch.save(copy.deepcopy(whole), folder / "run.pt")
    (folder / "table.yaml").write_text(rows)
    return folder / "run.pt", folder / "table.yaml", module, optimizer, schedule


def converted(checkpoint: Path, table: Path, **options: Any) -> tuple[Path, ConvertedOptimizer]:
    """The model, beside its checkpoint, and its optimizer."""
    made = wdport.convert(checkpoint, checkpoint.with_suffix(".keras"), mapping=table, with_optimizer=True, **options)
    assert made.optimizer is not None
    return made.output, made.optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_users_model_trains_on_as_in_torch(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    checkpoint, table, module, optimizer, schedule = trained(tmp_path, name, nets.image, IMAGE)
    _, made = converted(checkpoint, table)
    assert made.schedule == "MultiStepLR"
    with jax.enable_x64(True):
        model = wdport.load_model(tmp_path / "run.keras", "float64", mapping=table)
    request.getfixturevalue("exact")
    ours = wdport.load_optimizer(made.path, model, steps=20)
    module.double()
    for state in optimizer.state.values():
        state.update({key: value.double() for key, value in state.items() if torch.is_tensor(value) and value.ndim})
    data = batches(16, seed=2)
    losses = train(module, optimizer, schedule, data)
    fixed = [variable.value for variable in model.non_trainable_variables]

    def loss_of(values: Any, fixed: Any, x: Any, y: Any) -> Any:
        logits, fixed = model.stateless_call(values, fixed, x, training=True)
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(y)), y]), fixed

    @jax.jit
    def step(values: Any, fixed: Any, state: Any, x: Any, y: Any) -> Any:
        (loss, fixed), slopes = jax.value_and_grad(loss_of, has_aux=True)(values, fixed, x, y)
        values, state = ours.stateless_apply(state, slopes, values)
        return loss, values, fixed, state

    values = [variable.value for variable in model.trainable_variables]
    state = [variable.value for variable in ours.variables]
    for (x, y), wanted in zip(data, losses, strict=True):
        loss, values, fixed, state = step(values, fixed, state, x.transpose(0, 2, 3, 1), y)
        assert float(loss) == pytest.approx(wanted, rel=1e-9)
    for held, now in ((model.trainable_variables, values), (model.non_trainable_variables, fixed),
                      (ours.variables, state)):  # fmt: skip
        for variable, value in zip(held, now, strict=True):
            variable.assign(value)
    _compare_by_table(tmp_path, table, model, ours, made.path, module, optimizer, schedule)


def _compare_by_table(
    folder: Path, table: Path, model: Any, ours: Any, like: Path, module: nn.Module, optimizer: Any, schedule: Any
) -> None:  # fmt: skip
    """Take the Keras side back to torch's names, and compare everything with torch's own state."""
    wdport.save_optimizer(ours, model, folder / "later.optimizer.safetensors", like=like)
    plain = wdport.load_model(folder / "run.keras", mapping=table)
    for variable, exact in zip(plain.variables, model.variables, strict=True):
        variable.assign(np.asarray(exact.value, np.float32))
    plain.save(folder / "later.keras")
    words = ["--mapping", str(table), "--like", str(folder / "run.pt"), "--to", "torch"]
    assert main(["export", str(folder / "later.keras"), *words, "-o", str(folder / "later.pt"),
                 "--optimizer-file", str(folder / "later.optimizer.safetensors")]) == 0  # fmt: skip
    back = torch.load(folder / "later.pt", weights_only=True)
    for name, parameter in module.named_parameters():
        _close(back["model"][name], parameter.detach())
    theirs = optimizer.state_dict()
    for index, state in theirs["state"].items():
        for name, value in state.items():
            if name != "step":
                _close(back["optimizer"]["state"][index][name], value)
            else:
                assert float(back["optimizer"]["state"][index]["step"]) == float(value)
    assert [group["lr"] for group in back["optimizer"]["param_groups"]] == [
        group["lr"] for group in theirs["param_groups"]
    ]
    assert back["scheduler"] == schedule.state_dict()


def _close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """The way back rounds to the float32 of the checkpoint."""
    assert torch.linalg.norm(ours.double() - theirs) <= 1e-7 * torch.linalg.norm(theirs)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_way_back_restores_every_bit(tmp_path: Path, name: str, cli: Cli) -> None:
    checkpoint, table, *_ = trained(tmp_path, name)
    words = [str(checkpoint), "--mapping", str(table), "-o", str(tmp_path / "run.keras")]
    told = json.loads(cli("convert", *words, "--with-optimizer", "--json").out)["optimizer"]
    assert told["kind"] == {"sgd": "SGD", "adamw": "AdamW", "adam": "Adam"}[name]
    assert told["parameters"] == 20
    words = ["--mapping", str(table), "--like", str(checkpoint), "--to", "torch", "-o", str(tmp_path / "back.pt")]
    optimizer = tmp_path / "run.optimizer.safetensors"
    cli("export", tmp_path / "run.keras", *words, "--optimizer-file", optimizer)
    _same(torch.load(tmp_path / "back.pt", weights_only=True), torch.load(checkpoint, weights_only=True))


def _same(ours: Any, theirs: Any) -> None:
    """Equal in structure, types and every bit."""
    if torch.is_tensor(theirs):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    elif isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key, value in theirs.items():
            _same(ours[key], value)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            _same(one, other)
    else:
        assert ours == theirs


def test_lightnings_file_goes_there_and_back(tmp_path: Path) -> None:
    checkpoint = save_run(tmp_path / "run.ckpt")
    made = wdport.convert(checkpoint, tmp_path / "run.safetensors", values=SETTINGS, with_optimizer=True)
    assert made.optimizer is not None
    assert (made.optimizer.kind, made.optimizer.steps, made.optimizer.schedule) == ("AdamW", 3, "OneCycleLR")
    state, model = read_optimizer(made.optimizer.path)
    assert model.family == "waveletdiff"
    assert state.members.keys() == set(state.moments["exp_avg"])
    assert main(["export", str(made.output), "--to", "torch", "--like", str(checkpoint), "-o", str(tmp_path / "b.pt"),
                 "--optimizer-file", str(made.optimizer.path)]) == 0  # fmt: skip
    wanted = torch.load(checkpoint, weights_only=True)
    _same(
        torch.load(tmp_path / "b.pt", weights_only=True),
        {k: wanted[k] for k in wanted if k not in ("loops", "callbacks")},
    )
    keras_model = wdport.load_model(made.output)
    optimizer = wdport.load_optimizer(made.optimizer.path, keras_model, clip_norm=1.0)
    assert int(optimizer.iterations.value) == 3
    group = wanted["optimizer_states"][0]["param_groups"][0]
    assert optimizer.rates is not None
    assert optimizer.momenta is not None
    assert optimizer.rates[0, 0] == group["lr"]
    assert optimizer.momenta[0, 0] == group["betas"][0]
    assert len(optimizer.rates) == 18
    assert float(optimizer.learning_rate) == np.float32(group["lr"])


@pytest.mark.full
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", ["etth1-seq24-db2", "exchange-seq24-qknorm"])
def test_recorded_losses_of_a_resumed_run(golden: Path, tmp_path: Path, name: str) -> None:
    """Five steps recorded from the public code. Its optimizer had beta1 0.9 then, not the cycle's last one."""
    from wdport.models.keras_runtime import variables_by_path
    from wdport.uses.diffusion.loss import RandomBatch
    from wdport.uses.waveletdiff.loss import diffusion_loss

    recording = np.load(golden / f"{name}.golden.npz")
    made = wdport.convert(golden / f"{name}.ckpt", tmp_path / "a.keras", config=golden / f"{name}.config.yaml",
                          with_optimizer=True)  # fmt: skip
    assert made.optimizer is not None
    model = wdport.load_model(made.output, "float64")
    optimizer = wdport.load_optimizer(
        made.optimizer.path, model, learning_rate=float(recording["resume_lr"]),
        settings={"betas": (0.9, 0.999), "weight_decay": float(recording["resume_weight_decay"])},
        clip_norm=float(recording["resume_clip_norm"]),
    )  # fmt: skip
    named = variables_by_path(model)
    objective = diffusion_loss(made.config, np.asarray(named["noise_schedule/alpha_bar"].value))

    def loss_of(values: Any, clean: Any, drawn: RandomBatch) -> Any:
        fixed = [variable.value for variable in model.non_trainable_variables]
        prediction, _ = model.stateless_call(values, fixed, list(objective.noisy(clean, drawn)))
        return objective.total(objective.errors(prediction, clean, drawn))

    @jax.jit
    def step(values: Any, state: Any, clean: Any, drawn: RandomBatch) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(values, clean, drawn)
        return loss, *optimizer.stateless_apply(state, slopes, values)

    values = [variable.value for variable in model.trainable_variables]
    state = [variable.value for variable in optimizer.variables]
    for at, recorded in enumerate(recording["resume_losses"]):
        clean, noise = (np.asarray(recording[f"resume_{each}"][at], np.float64) for each in ("x0", "noise"))
        drawn = RandomBatch(noise, (recording["resume_t"][at] + 0.5) / 1000)
        loss, values, state = step(values, state, clean, drawn)
        assert float(loss) == pytest.approx(float(recorded), rel=1e-6)
    final = dict(zip((id(each) for each in model.trainable_variables), values, strict=True))
    targets = {each["source"]: each["targets"] for each in made.manifest["tensors"]}
    compared = 0
    for key in recording.files:
        if key.startswith("resume_final/") and len(targets[key.removeprefix("resume_final/")]) == 1:
            ours = np.asarray(final[id(named[targets[key.removeprefix("resume_final/")][0]["path"]])])
            theirs = recording[key]
            ours = ours.T if ours.shape != theirs.shape or ours.ndim == 2 else ours
            theirs = theirs if ours.shape == theirs.shape else theirs.T
            distance = min(np.linalg.norm(each - theirs) for each in ((ours, ours.T) if ours.shape[0] == ours.shape[-1]
                                                                      else (ours,)))  # fmt: skip
            assert distance < 1e-6 * np.linalg.norm(theirs)
            compared += 1
    assert compared >= 4


def test_changed_settings_go_back_too(tmp_path: Path) -> None:
    checkpoint, table, *_ = trained(tmp_path, "adamw")
    output, made = converted(checkpoint, table)
    model = wdport.load_model(output, mapping=table)
    later = tmp_path / "later.optimizer.safetensors"
    for given, lr in (({"learning_rate": 0.25}, 0.25), ({"steps_per_epoch": 2}, 1.5e-3)):
        optimizer = wdport.load_optimizer(made.path, model, settings={"weight_decay": 0.5}, **given)
        per_epoch = given.get("steps_per_epoch")
        wdport.save_optimizer(optimizer, model, later, like=made.path, steps_per_epoch=per_epoch, force=True)
        groups = read_optimizer(later)[0].groups
        assert [(group["lr"], group["weight_decay"]) for group in groups] == [(lr, 0.5)] * 2
        optimizer.iterations.assign(6 + 7)  # the next milestone is after 9 steps of the schedule, which has taken 6
        wdport.save_optimizer(optimizer, model, later, like=made.path, steps_per_epoch=per_epoch, force=True)
        assert read_optimizer(later)[0].groups[0]["lr"] == (lr if per_epoch is None else lr / 2)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)


TWO = """
format: 2
torch: tests.conversion.test_optimizer:Two
keras: tests.conversion.test_optimizer:two
layers:
  - {torch: first, keras: first, kind: linear}
  - {torch: second, keras: second, kind: linear}
"""


def two() -> Any:
    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(4, name="first"), keras.layers.Dense(4, name="second")]
    )


def saved(folder: Path, optimizer: torch.optim.Optimizer, module: nn.Module, steps: int = 2) -> tuple[Path, Path]:
    for at in range(steps):
        for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            parameter.grad = torch.full_like(parameter, float(number + at))
        optimizer.step()
    torch.save({"model": module.state_dict(), "optimizer": stated(optimizer)}, folder / "two.pt")
    (folder / "two.yaml").write_text(TWO)
    return folder / "two.pt", folder / "two.yaml"


def test_groups_that_shapes_do_not_tell_apart_need_names(tmp_path: Path) -> None:
    module = Two()
    turned = [{"params": list(module.second.parameters())}, {"params": list(module.first.parameters()), "lr": 0.5}]
    checkpoint, table = saved(tmp_path, torch.optim.AdamW(turned), module)
    with pytest.raises(InputError, match="several assignments of its parameters"):
        converted(checkpoint, table)
    assert not (tmp_path / "two.keras").exists()
    names = tmp_path / "names.json"
    names.write_text(json.dumps(["second.weight", "second.bias", "first.weight", "first.bias"]))
    _, made = converted(checkpoint, table, parameter_names=names)
    state, _ = read_optimizer(made.path)
    assert dict(state.members) == {"second/kernel": 0, "second/bias": 0, "first/kernel": 1, "first/bias": 1}
    assert float(state.moments["exp_avg"]["first/bias"][0]) > float(state.moments["exp_avg"]["second/bias"][0])
    names.write_text(json.dumps(["first.weight"]))
    with pytest.raises(InputError, match="4 parameters, but 1 names"):
        wdport.convert(checkpoint, tmp_path / "x.keras", mapping=table, with_optimizer=True, parameter_names=names)
    names.write_text("[" * 100_000)
    with pytest.raises(InputError, match="is not JSON"):
        wdport.convert(checkpoint, tmp_path / "x.keras", mapping=table, with_optimizer=True, parameter_names=names)


def test_named_parameters_need_no_search(tmp_path: Path) -> None:
    module = Two()
    turned = [{"params": list(module.second.named_parameters(prefix="second"))},
              {"params": list(module.first.named_parameters(prefix="first"))}]  # fmt: skip
    checkpoint, table = saved(tmp_path, torch.optim.AdamW(turned), module)
    _, made = converted(checkpoint, table)
    assert read_optimizer(made.path)[0].members["second/kernel"] == 0


def test_frozen_parameters_must_be_frozen_in_keras_too(tmp_path: Path) -> None:
    module = Two()
    checkpoint, table = saved(tmp_path, torch.optim.SGD([module.second.weight], lr=0.1, momentum=0.9), module)
    with pytest.raises(InputError, match="several assignments of its"):
        converted(checkpoint, table)
    (tmp_path / "names.json").write_text('["second.weight"]')
    output, made = converted(checkpoint, table, parameter_names=tmp_path / "names.json")
    model = wdport.load_model(output, mapping=table)
    with pytest.raises(MisfitError, match="first/kernel: PyTorch did not train it"):
        wdport.load_optimizer(made.path, model)
    model.get_layer("first").trainable = False
    with pytest.raises(MisfitError, match="second/bias: PyTorch did not train it"):
        wdport.load_optimizer(made.path, model)


def test_what_pytorch_never_updated_is_told(tmp_path: Path) -> None:
    """A parameter that the loss does not reach has no moments; in Keras its gradient is zero, and it would decay."""
    module = Two()
    optimizer = torch.optim.AdamW(module.parameters())
    for parameter in module.first.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.save({"model": module.state_dict(), "optimizer": stated(optimizer)}, tmp_path / "two.pt")
    (tmp_path / "two.yaml").write_text(TWO)
    output, made = converted(tmp_path / "two.pt", tmp_path / "two.yaml")
    model = wdport.load_model(output, mapping=tmp_path / "two.yaml")
    with pytest.raises(MisfitError, match="second/kernel: PyTorch never updated it"):
        wdport.load_optimizer(made.path, model)
    model.get_layer("second").trainable = False
    assert int(wdport.load_optimizer(made.path, model).iterations.value) == 1


@pytest.mark.parametrize("kind", ["RMSprop", "NAdam", "Adagrad", "RAdam", "Adamax"])
def test_other_optimizers_are_refused(tmp_path: Path, kind: str) -> None:
    module = Two()
    checkpoint, table = saved(tmp_path, getattr(torch.optim, kind)(module.parameters()), module)
    with pytest.raises(InputError, match="another optimizer than Adam"):
        converted(checkpoint, table)


class Lamb(torch.optim.AdamW):
    """A user's own optimizer with the state of AdamW, and a setting more."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        for group in self.param_groups:
            group["trust"] = 0.5


class Nesterov(torch.optim.SGD):
    """The same of SGD."""

    def __init__(self, parameters: Any) -> None:
        super().__init__([{"params": list(parameters), "trust": 0.5}])


def test_an_optimizer_of_the_users_own_is_not_read_as_torchs(tmp_path: Path) -> None:
    module = Two()
    checkpoint, table = saved(tmp_path, Nesterov(module.parameters()), module)
    with pytest.raises(InputError, match="has the setting trust, which no SGD of torch has"):
        converted(checkpoint, table)
    checkpoint, table = saved(tmp_path, Lamb(module.parameters()), module)
    with pytest.raises(InputError, match="which no ADAM of torch has; give optimizer='adam' or optimizer='adamw' if"):
        converted(checkpoint, table)
    converted(checkpoint, table, optimizer="adamw")
    whole = torch.load(checkpoint)
    for group in whole["optimizer"]["param_groups"]:
        del group["trust"]
    for entry, value in (("exp_avg_sq", None), ("exp_avg_diff", torch.zeros(1))):
        other = copy.deepcopy(whole)
        for state in other["optimizer"]["state"].values():
            state.pop(entry) if value is None else state.update({entry: value})
        torch.save(other, checkpoint)
        with pytest.raises(InputError, match="another optimizer than Adam"):
            converted(checkpoint, table, force=True)


@pytest.mark.parametrize(("kind", "steps"), [("AdamW", 2), ("AdamW", 7), ("AdamW", 8), ("SGD", 6)])
def test_a_schedule_goes_on_within_an_epoch(tmp_path: Path, kind: str, steps: int, cli: Cli) -> None:
    """Three steps an epoch, after each of which the rate is halved; the checkpoint may be from any step."""
    module = Two()
    optimizer = getattr(torch.optim, kind)(module.parameters(), lr=1.0, **({"momentum": 0.9} if kind == "SGD" else {}))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    rates = []
    for step in range(steps + 9):
        if step == steps:
            torch.save({"model": module.state_dict(), "optimizer": stated(optimizer),
                        "state": {"scheduler": schedule.state_dict()}}, tmp_path / "two.pt")  # fmt: skip
        rates.append(optimizer.param_groups[0]["lr"])
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        if step % 3 == 2:
            schedule.step()
    (tmp_path / "two.yaml").write_text(TWO)
    output, made = converted(tmp_path / "two.pt", tmp_path / "two.yaml")
    assert made.schedule == "StepLR"
    model = wdport.load_model(output, mapping=tmp_path / "two.yaml")
    loaded = wdport.load_optimizer(made.path, model, steps_per_epoch=3)
    assert loaded.rates is not None
    following = steps if kind == "AdamW" else steps - steps % 3  # SGD counts no steps
    assert loaded.rates[:9, 0].tolist() == rates[following : following + 9]
    if steps == 8:
        words = [tmp_path / "two.pt", "--mapping", tmp_path / "two.yaml", "--with-optimizer", "--force"]
        shown = cli("convert", *words).out
        assert "the schedule is at 2, so it is taken to advance every 4 steps; pass steps_per_epoch" in shown
    if kind == "AdamW" and steps < 8:
        with pytest.raises(
            UsageError, match=f"steps_per_epoch: the schedule is at {steps // 3} after {steps} optimizer"
        ):
            wdport.load_optimizer(made.path, model)
    if kind == "AdamW":
        for _ in range(4):
            loaded.apply([np.ones(variable.shape, np.float32) for variable in model.trainable_variables])
        later = wdport.save_optimizer(loaded, model, tmp_path / "later.optimizer.safetensors", like=made.path,
                                      steps_per_epoch=3)  # fmt: skip
        again = wdport.load_optimizer(later, model, steps_per_epoch=3).rates
        assert again is not None
        assert again[:5, 0].tolist() == rates[steps + 4 : steps + 9]


@pytest.mark.parametrize(
    ("kind", "options"), [("SGD", [{}, {}]), ("SGD", [{}, {"momentum": 0.9}]), ("AdamW", [{}, {}])]
)
def test_optimizers_without_moments(tmp_path: Path, kind: str, options: list[dict[str, float]]) -> None:
    module = Two()
    groups = [{"params": list(layer.parameters()), **more}
              for layer, more in zip((module.first, module.second), options, strict=True)]  # fmt: skip
    optimizer = getattr(torch.optim, kind)(groups, lr=0.1)
    checkpoint, table = saved(tmp_path, optimizer, module, 0 if kind == "AdamW" else 2)
    (tmp_path / "names.json").write_text(json.dumps(["first.weight", "first.bias", "second.weight", "second.bias"]))
    output, made = converted(checkpoint, table, parameter_names=tmp_path / "names.json")
    model = wdport.load_model(output, mapping=table)
    loaded = wdport.load_optimizer(made.path, model, gradient_accumulation_steps=1)
    for _ in range(3):
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        loaded.apply([np.ones(variable.shape, np.float32) for variable in model.trainable_variables])
    for name, layer in (("first", module.first), ("second", module.second)):
        kernel, bias = model.get_layer(name).get_weights()
        np.testing.assert_allclose(kernel, layer.weight.detach().numpy().T, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(bias, layer.bias.detach().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("given", [
    {"learning_rate": -1.0}, {"learning_rate": float("nan")}, {"clip_norm": 0.0}, {"steps": 0}, {"steps_per_epoch": -1},
    {"gradient_accumulation_steps": 0},
])  # fmt: skip
def test_numbers_out_of_bounds(tmp_path: Path, given: dict[str, float]) -> None:
    module = Two()
    checkpoint, table = saved(tmp_path, torch.optim.AdamW(module.parameters()), module)
    output, made = converted(checkpoint, table)
    model = wdport.load_model(output, mapping=table)
    with pytest.raises(UsageError, match=f"{next(iter(given))}: invalid value"):
        wdport.load_optimizer(made.path, model, **given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="optimizer: is a Adam; give one from load_optimizer"):
        wdport.save_optimizer(keras.optimizers.Adam(), model, tmp_path / "later.optimizer.safetensors", like=made.path)


@pytest.mark.parametrize("key", ["scheduler", "my_own_name"])
def test_every_schedule_in_the_file_is_found(tmp_path: Path, key: str) -> None:
    """A ChainedScheduler has no position of its own; a rate that stays constant unsaid would be a misreading."""
    module = Two()
    optimizer = torch.optim.AdamW(module.parameters())
    checkpoint, table = saved(tmp_path, optimizer, module)
    schedule = torch.optim.lr_scheduler.ChainedScheduler([torch.optim.lr_scheduler.StepLR(optimizer, 3)])
    torch.save({**torch.load(checkpoint), key: schedule.state_dict()}, checkpoint)
    output, made = converted(checkpoint, table)
    assert made.schedule == "ChainedScheduler"
    model = wdport.load_model(output, mapping=table)
    with pytest.raises(UsageError, match="ChainedScheduler: is not implemented; give learning_rate"):
        wdport.load_optimizer(made.path, model)
    assert wdport.load_optimizer(made.path, model, learning_rate=1e-3)


def test_an_older_torch_does_not_say_which_adam(tmp_path: Path) -> None:
    module = Two()
    checkpoint, table = saved(tmp_path, torch.optim.AdamW(module.parameters()), module)
    whole = torch.load(checkpoint)
    for group in whole["optimizer"]["param_groups"]:
        del group["decoupled_weight_decay"]
    torch.save(whole, checkpoint)
    with pytest.raises(InputError, match="does not state whether it is Adam or AdamW"):
        converted(checkpoint, table)
    for kind in ("adam", "adamw"):
        _, made = converted(checkpoint, table, optimizer=kind, force=True)
        assert made.kind.lower() == kind


def test_a_file_without_an_optimizer_says_so(tmp_path: Path) -> None:
    module = Two()
    torch.save(module.state_dict(), tmp_path / "two.pt")
    (tmp_path / "two.yaml").write_text(TWO)
    with pytest.raises(InputError, match="has no optimizer state"):
        wdport.convert(tmp_path / "two.pt", mapping=tmp_path / "two.yaml", with_optimizer=True)
    with pytest.raises(UsageError, match="is for the optimizer's state"):
        wdport.convert(tmp_path / "two.pt", mapping=tmp_path / "two.yaml", optimizer="adam")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    module = Two()
    checkpoint, table = saved(tmp_path, torch.optim.AdamW(module.parameters()), module)
    output, made = converted(checkpoint, table)
    whole = made.path.read_bytes()
    model = wdport.load_model(output, mapping=table)
    random = np.random.default_rng(0)
    for at in [len(whole) - 3, *random.integers(8, len(whole), 60)]:
        made.path.write_bytes(whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :])
        with pytest.raises(wdport.WdportError):
            wdport.load_optimizer(made.path, model)
    with pytest.raises(wdport.WdportError):
        wdport.load_optimizer(output, model)


def test_a_state_beside_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Converted over another checkpoint's model, whose optimizer stays."""
    first, other = Two(), Two()
    checkpoint, table = saved(tmp_path, torch.optim.AdamW(first.parameters()), first)
    output, made = converted(checkpoint, table)
    wdport.load_optimizer(made.path, wdport.load_model(output, mapping=table))
    (tmp_path / "b").mkdir()
    again, _ = saved(tmp_path / "b", torch.optim.AdamW(other.parameters()), other)
    wdport.convert(again, tmp_path / "two.keras", mapping=table, force=True)
    with pytest.raises(MisfitError, match="belongs to other weights than the model's"):
        wdport.load_optimizer(made.path, wdport.load_model(output, mapping=table))
    words = ["export", str(output), "--to", "torch", "--mapping", str(table),
             "--optimizer-file", str(made.path)]  # fmt: skip
    assert main([*words, "-o", str(tmp_path / "back.pt")]) == MisfitError.exit_code
    assert "belongs to other weights than the model's" in capsys.readouterr().err
    assert not (tmp_path / "back.pt").exists()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("out.weights.h5", "float32"), ("out.npz", "float16"), ("out.safetensors", "bfloat16"), ("out/", "float16")],
)
def test_a_state_belongs_to_the_stored_weights(tmp_path: Path, name: str, dtype: str) -> None:
    """In any format; 16 bits change the weights that the state belongs to."""
    module = Two()
    checkpoint, table = saved(tmp_path, torch.optim.AdamW(module.parameters()), module)
    made = wdport.convert(checkpoint, f"{tmp_path}/{name}", mapping=table, dtype=dtype, with_optimizer=True)
    exact, _ = converted(checkpoint, table)
    assert made.optimizer is not None
    wdport.load_optimizer(made.optimizer.path, wdport.load_model(made.output, mapping=table))
    if dtype != "float32":
        with pytest.raises(MisfitError, match="belongs to other weights than the model's"):
            wdport.load_optimizer(made.optimizer.path, wdport.load_model(exact, mapping=table))
