"""Our Keras optimizers against torch's, given the same gradients: values and moments of every step, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np
import pytest
import torch

from wdport.base.errors import UsageError
from wdport.optimizers.schedules import one_cycle
from wdport.optimizers.torch_like import SGD, Adam, TorchOptimizer, last_rate

SHAPES = ((3, 4), (4,), (2, 2, 2), ())
MEMBERS = [0, 1, 0, 1]
STEPS = 60
BOUND = 1e-11
"""Of float64 over the steps: values that cross zero have lost digits; 1.5e-12 was measured."""


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def _run(
    ours: TorchOptimizer, groups: list[dict[str, Any]], make: Any, clip: float | None, dtype: str = "float64",
    rates: Any = None, steps: int = STEPS,
) -> float:  # fmt: skip
    """The largest relative difference of any value or moment over the steps; variables alternate between the groups."""
    random = np.random.default_rng(0)
    begin = [np.asarray(random.normal(size=shape)) for shape in SHAPES]
    variables = [keras.Variable(array, dtype=dtype) for array in begin]
    theirs = [torch.nn.Parameter(torch.tensor(array, dtype=getattr(torch, dtype))) for array in begin]
    optimizer = make([{"params": theirs[at :: len(groups)], **group} for at, group in enumerate(groups)])
    ours.build(variables)
    step = jax.jit(lambda own, slopes, values: ours.stateless_apply(own, slopes, values))
    state, values = [v.value for v in ours.variables], [v.value for v in variables]
    worst = 0.0
    for at in range(steps):
        batches = [[random.normal(size=shape) * 10.0 ** random.integers(-6, 2) for shape in SHAPES]
                   for _ in range(ours.gradient_accumulation_steps or 1)]  # fmt: skip
        for parameter, *slopes in zip(theirs, *batches, strict=True):
            parameter.grad = torch.tensor(np.mean(slopes, 0), dtype=parameter.dtype)
        if clip:
            torch.nn.utils.clip_grad_norm_(theirs, clip)
        if rates is not None:
            for group, rate in zip(optimizer.param_groups, rates[at], strict=True):
                group["lr"] = float(rate)
        optimizer.step()
        for slopes in batches:
            values, state = step(state, [np.asarray(slope, dtype) for slope in slopes], values)
        for variable, value in zip(ours.variables, state, strict=True):
            variable.assign(value)
        for value, parameter in zip(values, theirs, strict=True):
            worst = max(worst, _distance(value, parameter))
        for name, held in (("exp_avg", "first"), ("exp_avg_sq", "second"), ("max_exp_avg_sq", "largest"),
                           ("momentum_buffer", "buffer")):  # fmt: skip
            for variable, parameter in zip(getattr(ours, held, ()), theirs, strict=False):
                if optimizer.state[parameter].get(name) is not None:
                    worst = max(worst, _distance(variable.value, optimizer.state[parameter][name]))
    return worst


def _distance(ours: Any, theirs: torch.Tensor) -> float:
    wanted = theirs.detach().numpy()
    assert str(ours.dtype) == str(wanted.dtype)
    return float(np.linalg.norm(np.asarray(ours) - wanted) / (np.linalg.norm(wanted) + 1e-30))


ADAMS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 1e-2, "weight_decay": 0.1},
    "adam with decay": {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": False},
    "amsgrad": {"lr": 1e-2, "amsgrad": True, "weight_decay": 0.0},
    "other constants": {"lr": 3e-3, "betas": (0.5, 0.95), "eps": 1e-4, "maximize": True},
    "no first moment": {"lr": 3e-3, "betas": (0.0, 0.99), "weight_decay": 0.0},
}


@pytest.mark.parametrize(("name", "clip"), [("adamw", None), *((name, 0.5) for name in ADAMS)])
def test_adam_takes_torchs_steps(name: str, clip: float | None) -> None:
    options = ADAMS[name]
    decoupled = options.get("decoupled_weight_decay", True)
    theirs = {key: value for key, value in options.items() if key != "decoupled_weight_decay"}
    make = torch.optim.AdamW if decoupled else torch.optim.Adam
    assert _run(Adam([options], clip_norm=clip), [theirs], make, clip) < BOUND


SGDS: dict[str, dict[str, Any]] = {
    "plain": {"lr": 1e-2},
    "momentum and decay": {"lr": 1e-2, "momentum": 0.9, "weight_decay": 5e-4},
    "nesterov": {"lr": 1e-2, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True},
    "dampening": {"lr": 1e-2, "momentum": 0.9, "dampening": 0.4},
}


@pytest.mark.parametrize(("name", "clip"), [("momentum and decay", None), *((name, 0.5) for name in SGDS)])
def test_sgd_takes_torchs_steps(name: str, clip: float | None) -> None:
    assert _run(SGD([SGDS[name]], clip_norm=clip), [SGDS[name]], torch.optim.SGD, clip) < BOUND


def test_groups_have_their_own_rates_and_decay() -> None:
    groups = [{"lr": 1e-2, "weight_decay": 0.2}, {"lr": 1e-3, "weight_decay": 0.0}]
    ours = Adam(groups, members=MEMBERS)
    assert _run(ours, groups, torch.optim.AdamW, None) < BOUND
    rates = np.linspace(1e-2, 1e-4, STEPS)[:, None] * [1.0, 0.1]
    ours = Adam(groups, members=MEMBERS, rates=rates, clip_norm=1.0)
    assert _run(ours, groups, torch.optim.AdamW, 1.0, rates=rates) < BOUND
    groups = [{"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.2}, {"lr": 1e-3, "momentum": 0.5}]
    ours = SGD(groups, members=MEMBERS, clip_norm=1.0)
    assert _run(ours, groups, torch.optim.SGD, 1.0) < BOUND


@pytest.mark.parametrize("make", [Adam, SGD])
def test_accumulated_gradients_are_clipped_and_scheduled_as_one_step(make: type[TorchOptimizer]) -> None:
    options = ADAMS["amsgrad"] if make is Adam else SGDS["dampening"]
    rates = np.linspace(1e-2, 1e-4, STEPS)[:, None]
    ours = make([options], rates=rates, clip_norm=0.5, gradient_accumulation_steps=3)
    torchs = torch.optim.AdamW if make is Adam else torch.optim.SGD
    assert _run(ours, [options], torchs, 0.5, rates=rates) < BOUND
    assert last_rate(ours) == pytest.approx(1e-4)


def test_averages_are_those_of_diffusers() -> None:
    """With ``use_ema``, ``fit`` ends with the averages, as with Keras's optimizers."""
    ema = pytest.importorskip("diffusers.training_utils", exc_type=ImportError).EMAModel
    x = np.random.default_rng(0).normal(size=(64, 3))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    theirs, seen = ema([torch.nn.Parameter(torch.zeros(3, 1))], decay=0.7), []

    class Seen(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(np.asarray(self.model._jax_state["trainable_variables"][0]))

    averaging = SGD([{"lr": 1e-2}], use_ema=True, ema_momentum=0.7, gradient_accumulation_steps=2)
    model.compile(optimizer=averaging, loss="mse")
    model.fit(x, x.sum(1), epochs=5, batch_size=16, verbose=0, callbacks=[Seen()])
    for each in seen[1::2]:
        theirs.step([torch.nn.Parameter(torch.tensor(each))])
    np.testing.assert_allclose(model.trainable_variables[0].value, theirs.shadow_params[0], rtol=1e-6)


def test_float32_keeps_its_digits_at_the_first_steps() -> None:
    """1 - 0.999 in float32 has an error of 1.3e-5, which would be one of the first steps, too."""
    assert _run(Adam([{}], clip_norm=0.5), [{}], torch.optim.AdamW, 0.5, dtype="float32", steps=3) < 1e-6


def test_it_is_an_optimizer_of_keras() -> None:
    x = np.random.default_rng(0).normal(size=(64, 3))
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    optimizer = Adam([{"lr": 3e-2}], rates=np.full(50, 3e-2), clip_norm=1.0)
    model.compile(optimizer=optimizer, loss="mse")
    history = model.fit(x, x.sum(1), epochs=5, batch_size=16, verbose=0).history["loss"]
    assert history[-1] < history[0] / 2
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again, Adam)
    assert again.get_config() == optimizer.get_config()
    assert float(optimizer.learning_rate) == np.float32(3e-2)


def test_a_compiled_model_is_saved_with_it(tmp_path: Any) -> None:
    x = np.random.default_rng(0).normal(size=(8, 3))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=SGD([{"lr": 1e-2, "momentum": 0.9}]), loss="mse")
    model.fit(x, x.sum(1), epochs=2, verbose=0)
    model.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras")
    for one, two in ((model, again), (model.optimizer, again.optimizer)):
        for ours, theirs in zip(one.variables, two.variables, strict=True):
            assert np.array_equal(np.asarray(ours.value), np.asarray(theirs.value))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="is empty"):
        Adam([])
    with pytest.raises(UsageError, match="is not a setting of Adam"):
        Adam([{"momentum": 0.9}])
    with pytest.raises(UsageError, match="has shape"):
        Adam([{}, {}], rates=np.ones((3, 3)))
    with pytest.raises(UsageError, match="is not an argument"):
        SGD([{}], clipvalue=1.0)


def test_the_rate_can_be_set() -> None:
    variable = keras.Variable(np.zeros(2), dtype="float64")
    optimizer = SGD([{"lr": 1.0}])
    optimizer.build([variable])
    optimizer.learning_rate = 0.25
    optimizer.apply([np.ones(2)])
    assert np.asarray(variable.value).tolist() == [-0.25, -0.25]


@pytest.mark.parametrize(("steps", "warm_up"), [(10, 0.3), (100, 0.3), (37, 0.5), (1000, 0.01)])
def test_one_cycle(steps: int, warm_up: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=steps, pct_start=warm_up)
    rates, betas = [], []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        betas.append(optimizer.param_groups[0]["betas"][0])
        optimizer.step()
        if step + 1 < steps:
            schedule.step()
    ours = one_cycle(steps, warm_up=warm_up)
    np.testing.assert_allclose(ours.rate, rates, rtol=1e-12)
    np.testing.assert_allclose(ours.beta1, betas, rtol=1e-12)


def test_one_cycle_without_a_warm_up_is_refused() -> None:
    with pytest.raises(UsageError, match="more steps"):
        one_cycle(3)
