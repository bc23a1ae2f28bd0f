"""Learning rates that rise in the first steps or epochs, against the schedules of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from tests.edits import edit
from wdport.models.interface import COSINE_WARMUP, Recipe
from wdport.optimizers import recipe as recipes
from wdport.optimizers import schedules
from wdport.optimizers.recipe import optimizer_of

RATE, STEPS, EPOCHS, WARMUP = 2e-3, 40, 8, 3


def rates_of(schedule: Callable[[torch.optim.Optimizer], Any], count: int) -> list[float]:
    """The rates of torch's steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    moving, rates = schedule(optimizer), []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        moving.step()
    return rates


def by_steps(optimizer: torch.optim.Optimizer) -> Any:
    """Linear up to the rate, which the step after the warm-up has, then a half cosine over the other steps."""
    rising = lr_scheduler.LinearLR(optimizer, 1.0 / (WARMUP + 1), total_iters=WARMUP)
    falling = lr_scheduler.CosineAnnealingLR(optimizer, STEPS - WARMUP)
    return lr_scheduler.SequentialLR(optimizer, [rising, falling], [WARMUP])


def by_epochs(optimizer: torch.optim.Optimizer) -> Any:
    """Linear up to the rate, which the last epoch of the warm-up has, then a half cosine down to 1e-6."""
    rising = lr_scheduler.LinearLR(optimizer, 1.0 / WARMUP, total_iters=WARMUP - 1)
    falling = lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS - WARMUP, eta_min=1e-6)
    return lr_scheduler.SequentialLR(optimizer, [rising, falling], [WARMUP])


def check_steps() -> None:
    ours = optimizer_of(Recipe(learning_rate=RATE, schedule="cosine"), warmup=WARMUP)(STEPS)
    np.testing.assert_allclose(np.ravel(ours.rates), rates_of(by_steps, STEPS), rtol=1e-9)


def check_epochs() -> None:
    recipe = Recipe(learning_rate=RATE, schedule=COSINE_WARMUP, warmup_epochs=WARMUP, epochs=EPOCHS)
    right = np.repeat(rates_of(by_epochs, EPOCHS), STEPS // EPOCHS)
    np.testing.assert_allclose(np.ravel(optimizer_of(recipe)(STEPS).rates), right, rtol=1e-9)


def test_a_warm_up_in_steps() -> None:
    check_steps()


def test_a_warm_up_in_epochs() -> None:
    check_epochs()


EDITS: list[tuple[Callable[[], None], Callable[..., Any], str, str]] = [
    (check_steps, schedules.cosine_rate, "(index + 1.0) / (warm_up + 1.0)", "index / warm_up"),
    (check_steps, schedules.cosine_rate, "(index + 1.0) / (warm_up + 1.0)", "(index + 1.0) / warm_up"),
    (check_steps, schedules.cosine_rate, "(index - warm_up) / (", "(index - warm_up + 1) / ("),
    (check_steps, recipes._rates, "cosine_rate(total, rate, warmup)", "cosine_rate(total, rate, warmup + 1)"),
    (check_epochs, schedules.warmup_cosine, "(index + 1.0) / max(warm_up, 1)", "index / max(warm_up, 1)"),
    (check_epochs, schedules.warmup_cosine, "(index + 1.0) / max(warm_up, 1)", "(index + 1.0) / (warm_up + 1)"),
    (check_epochs, schedules.warmup_cosine, "index < warm_up", "index <= warm_up"),
    (check_epochs, recipes._rates, "recipe.warmup_epochs or 0", "(recipe.warmup_epochs or 0) + 1"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "place", "old", "new"), EDITS)
def test_an_edit_by_one_is_found(
    check: Callable[[], None], place: Callable[..., Any], old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(monkeypatch, place, old, new)
    with pytest.raises(AssertionError):
        check()
