"""Learning-rate schedules against torch's: every rate and momentum equal in every bit, from any position."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as lrs

from wdport.base.errors import UsageError
from wdport.optimizers.schedules import Schedule, kind_of

Make = Callable[[torch.optim.Optimizer], Any]

SCHEDULES: dict[str, Make] = {
    "onecycle": lambda o: lrs.OneCycleLR(o, max_lr=[1e-3, 3e-3], total_steps=40),
    "onecycle, linear, three phases": lambda o: lrs.OneCycleLR(
        o, max_lr=2e-3, total_steps=40, anneal_strategy="linear", three_phase=True, pct_start=0.2, div_factor=7.0
    ),
    "onecycle without momentum": lambda o: lrs.OneCycleLR(o, max_lr=1e-3, total_steps=40, cycle_momentum=False),
    "cosine": lambda o: lrs.CosineAnnealingLR(o, T_max=13, eta_min=1e-5),
    "cosine with warm-up": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.01, total_iters=5), lrs.CosineAnnealingLR(o, T_max=20)], milestones=[5]
    ),
    "three in a row": lambda o: lrs.SequentialLR(
        o,
        [lrs.ConstantLR(o, 0.1, total_iters=20), lrs.ExponentialLR(o, 0.9), lrs.PolynomialLR(o, 12, power=2.0)],
        milestones=[6, 17],
    ),
    "linear": lambda o: lrs.LinearLR(o, start_factor=0.25, end_factor=0.75, total_iters=9),
    "constant": lambda o: lrs.ConstantLR(o, factor=0.5, total_iters=7),
    "polynomial": lambda o: lrs.PolynomialLR(o, total_iters=11, power=1.5),
    "stairs": lambda o: lrs.StepLR(o, step_size=4, gamma=0.3),
    "milestones": lambda o: lrs.MultiStepLR(o, milestones=[3, 9, 9, 21], gamma=0.5),
    "exponential": lambda o: lrs.ExponentialLR(o, gamma=0.97),
}


def _optimizer(kind: str = "adamw") -> torch.optim.Optimizer:
    parameters = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]
    groups = [{"params": [parameters[0]], "lr": 2e-3}, {"params": [parameters[1]], "lr": 5e-4}]
    return torch.optim.SGD(groups, momentum=0.9) if kind == "sgd" else torch.optim.AdamW(groups)


def _options(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def _momenta(optimizer: torch.optim.Optimizer) -> list[float]:
    return [group["betas"][0] if "betas" in group else group["momentum"] for group in optimizer.param_groups]


@pytest.mark.parametrize("start", [0, 1, 6, 17])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_go_on_as_torchs(name: str, kind: str, start: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of steps without the optimizer's
        optimizer = _optimizer(kind)
        schedule = SCHEDULES[name](optimizer)
        for _ in range(start):
            schedule.step()
        ours = Schedule(copy.deepcopy(schedule.state_dict()), _options(optimizer))
        rates, momenta = ours.ahead(22)
        for at in range(22):
            assert [group["lr"] for group in optimizer.param_groups] == ours.rates == rates[at].tolist()
            assert _momenta(optimizer) == ours.momenta == momenta[at].tolist()
            schedule.step()
            ours.step()
        stored = schedule.state_dict()
        for inner in (ours.state, stored) if not hasattr(lrs.LRScheduler, "_update_lr") else ():
            for each in inner.get("_schedulers", ()):  # older releases count a milestone as a step
                each.pop("_step_count")
        assert {key: ours.state[key] for key in stored} == stored


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("relative", ["rel", "abs"])
def test_a_plateau_is_found_where_torch_finds_it(mode: Any, relative: Any) -> None:
    optimizer = _optimizer()
    schedule = lrs.ReduceLROnPlateau(optimizer, mode, 0.5, 2, 0.05, relative, cooldown=2, min_lr=[4e-4, 1e-4])
    metrics = torch.randn(80, generator=torch.Generator().manual_seed(3)).abs().add(0.5).tolist()
    for metric in metrics[:2]:
        schedule.step(metric)
    ours = Schedule(copy.deepcopy(schedule.state_dict()), _options(optimizer))
    assert ours.needs_metric
    seen = set()
    for metric in metrics[2:]:
        schedule.step(metric)
        ours.step(metric)
        assert ours.rates == [group["lr"] for group in optimizer.param_groups]
        assert ours.state == schedule.state_dict()
        seen.add(tuple(ours.rates))
    assert len(seen) > 2
    with pytest.raises(UsageError, match="is needed by ReduceLROnPlateau"):
        ours.step()


OTHERS: dict[str, Make] = {
    "restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 3, 2),
    "cycle": lambda o: lrs.CyclicLR(o, 1e-3, 2e-3, 4, mode="triangular"),
    "cycle, halved": lambda o: lrs.CyclicLR(o, 1e-3, 2e-3, 4, mode="triangular2"),
    "cycle, exponential": lambda o: lrs.CyclicLR(o, 1e-3, 2e-3, 4, mode="exp_range", gamma=0.99),
    "cycle without momentum": lambda o: lrs.CyclicLR(o, 1e-3, 2e-3, 4, cycle_momentum=False),
    "chained": lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.1, 3), lrs.ExponentialLR(o, 0.9)]),
    "function": lambda o: lrs.LambdaLR(o, lambda step: 1.0 / (step + 1)),
    "product": lambda o: lrs.MultiplicativeLR(o, lambda step: 0.9),
    "sequence of another": lambda o: lrs.SequentialLR(
        o, [lrs.ConstantLR(o, 0.1, 3), lrs.CosineAnnealingWarmRestarts(o, 3, 2)], milestones=[2]
    ),
    "swa": lambda o: torch.optim.swa_utils.SWALR(o, 1e-4),
}
"""What is refused."""


class Inverse(lrs.LRScheduler):
    """A user's own class whose only setting is called as that of another class."""

    def __init__(self, optimizer: torch.optim.Optimizer, gamma: float, extra: bool = False) -> None:
        self.gamma = gamma
        if extra:
            self.warm = 0
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [base / (1.0 + self.gamma * self.last_epoch) for base in self.base_lrs]


def _went(make: Make, steps: int) -> tuple[Any, torch.optim.Optimizer]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = _optimizer()
        schedule = make(optimizer)
        for _ in range(steps):
            schedule.step()
    return schedule, optimizer


def test_every_class_of_torch_is_resumed_or_refused_by_name() -> None:
    known = {name for name, each in vars(lrs).items() if isinstance(each, type) and issubclass(each, lrs.LRScheduler)}
    covered = {"LRScheduler", "_LRScheduler", "ReduceLROnPlateau"}
    for make in SCHEDULES.values():
        schedule, optimizer = _went(make, 5)
        covered.add(type(schedule).__name__)
        assert kind_of(schedule.state_dict()) == type(schedule).__name__
        assert kind_of({**schedule.state_dict(), "verbose": False}) == type(schedule).__name__
        assert kind_of({**schedule.state_dict(), "warm": 0}) == ""
        Schedule(schedule.state_dict(), _options(optimizer))
    for name, make in OTHERS.items():
        schedule, optimizer = _went(make, 5)
        covered.add(type(schedule).__name__)
        shown = (
            "unknown class" if name == "swa" else type(schedule).__name__.replace("SequentialLR", "CosineAnnealingWarm")
        )
        with pytest.raises(UsageError, match=shown):
            Schedule(schedule.state_dict(), _options(optimizer))
    assert covered >= known


def test_a_class_of_the_users_own_is_not_read_as_torchs() -> None:
    texts = {True: "is of an unknown class", False: "has the fields of ExponentialLR, but at 5 the rate 0.00057"}
    for extra, text in texts.items():
        schedule, optimizer = _went(lambda o, extra=extra: Inverse(o, 0.5, extra), 5)  # type: ignore[misc]
        with pytest.raises(UsageError, match=text):
            Schedule(schedule.state_dict(), _options(optimizer))


def test_a_schedule_per_epoch_holds_its_rates_for_an_epoch() -> None:
    optimizer = _optimizer()
    ours = Schedule(lrs.StepLR(optimizer, 1, 0.5).state_dict(), _options(optimizer))
    rates, _ = ours.ahead(7, every=3)
    assert rates[:, 0].tolist() == [2e-3] * 3 + [1e-3] * 3 + [5e-4]
