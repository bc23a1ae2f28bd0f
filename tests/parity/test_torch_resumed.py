"""PyTorch's side of resumed training revives every schedule by PyTorch's own class, as PyTorch itself goes on."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as lrs

from tests.optimizers.test_schedules import OTHERS, SCHEDULES, Inverse, _optimizer
from wdport.base.errors import UsageError
from wdport.conversion.optimizer_file import Optimised
from wdport.optimizers.schedules import kind_of
from wdport.parity.torch_training import _revived, schedule_class

REVIVED = {**SCHEDULES, **{name: make for name, make in OTHERS.items() if name not in ("function", "product", "swa")}}


def state(*schedules: dict[str, Any]) -> Optimised:
    return Optimised("adam", (), {}, {}, {}, {f"lr_schedulers.{at}": each for at, each in enumerate(schedules)}, ())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REVIVED)
def test_rates_go_on(name: str) -> None:
    optimizer, other = _optimizer(), _optimizer()
    schedule = REVIVED[name](optimizer)
    for _ in range(5):
        schedule.step()
    stored = schedule.state_dict()
    cls = schedule_class(state(stored), None)
    assert cls is type(schedule)
    assert schedule_class(state({**stored, "verbose": False}), None) is cls
    other.load_state_dict(optimizer.state_dict())
    revived = _revived(cls, stored, other)
    for _ in range(12):
        schedule.step()
        revived.step()
        assert [dict(group, params=0) for group in other.param_groups] == [
            dict(group, params=0) for group in optimizer.param_groups
        ]
    assert kind_of(stored) == cls.__name__


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_one_class_is_asked_for() -> None:
    stored = {name: OTHERS[name](_optimizer()).state_dict() for name in ("function", "swa")}
    own = Inverse(_optimizer(), 0.5, extra=True).state_dict()
    for each, text in ((stored["function"], "the fields of LambdaLR and of MultiplicativeLR"),
                       (stored["swa"], "the fields of no class"), (own, "the fields of no class")):  # fmt: skip
        with pytest.raises(UsageError, match=f"{text}.*; name it: --schedule-class MODULE:CLASS"):
            schedule_class(state(each), None)
    assert schedule_class(state(stored["function"]), "torch.optim.lr_scheduler:LambdaLR") is lrs.LambdaLR
    assert schedule_class(state(own), f"{__name__}:Inverse") is Inverse
    assert schedule_class(state(), None) is None
    assert schedule_class(state(lrs.ReduceLROnPlateau(_optimizer()).state_dict()), None) is lrs.ReduceLROnPlateau
    with pytest.raises(UsageError, match="does not have the fields of CyclicLR"):
        schedule_class(state(own), "torch.optim.lr_scheduler:CyclicLR")
    with pytest.raises(UsageError, match="is not a learning-rate schedule of PyTorch"):
        schedule_class(state(own), "torch.optim:Adam")
    with pytest.raises(UsageError, match="the file has 2 schedules"):
        schedule_class(state(own, own), "torch.optim.lr_scheduler:StepLR")
    with warnings.catch_warnings():
        assert isinstance(_revived(Inverse, own, torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])), Inverse)
