"""The optimizer that a recipe describes: AdamW with one of the known schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wdport.base.errors import UsageError, printable
from wdport.models.interface import COSINE_WARMUP, SCHEDULES, Recipe
from wdport.optimizers.schedules import Rates, cosine_rate, one_cycle, warmup_cosine
from wdport.optimizers.torch_like import Adam

RATE: Final = 1e-4
"""Learning rate where a recipe has none."""


def optimizer_of(recipe: Recipe, warmup: int | None = None, where: str = "recipe") -> Callable[[int], Adam]:
    """Return a function of the number of all batches that makes the optimizer.

    Args:
        recipe: its learning rate, weight decay, clipping norm and schedule; "constant" where it has none.
        warmup: steps in which the rate of a "cosine" schedule rises.
        where: the recipe's name in an error.

    Raises:
        UsageError: the schedule is unknown, or the warm-up is not for it; from the function, if the warm-up or the
            schedule does not fit the number of steps.
    """
    schedule = recipe.schedule or "constant"
    if schedule not in SCHEDULES and (schedule != COSINE_WARMUP or recipe.warmup_epochs is None):
        what = f"has the schedule {printable(schedule, 40)}, which needs values measured in training"
        raise UsageError(where, what, f"choose one of {', '.join(SCHEDULES)}")
    if warmup is not None and schedule != "cosine":
        raise UsageError("--warmup", f"is for the cosine schedule, not {schedule}", "add `--schedule cosine`")
    rate = recipe.learning_rate or RATE
    group = {"lr": rate} if recipe.weight_decay is None else {"lr": rate, "weight_decay": recipe.weight_decay}

    def make(batches: int) -> Adam:
        require_step(recipe.gradient_accumulation_steps, batches)
        total = batches // (recipe.gradient_accumulation_steps or 1)
        if warmup is not None and warmup >= total:
            raise UsageError("--warmup", f"is {warmup} of {total} steps", "give fewer")
        rates, momenta = (None, None) if schedule == "constant" else _rates(schedule, total, rate, recipe, warmup or 0)
        return Adam([group], rates=rates, momenta=momenta, clip_norm=recipe.clip,
                    gradient_accumulation_steps=recipe.gradient_accumulation_steps)  # fmt: skip

    return make


def require_step(accumulated: int | None, batches: int) -> None:
    """Raise :class:`UsageError` if all batches together do not fill one step."""
    if accumulated is not None and accumulated > batches:
        what = f"is {accumulated}, and the run has {batches} batches, so that no step is taken"
        raise UsageError("--gradient-accumulation-steps", what, "give fewer, or train longer")


def _rates(schedule: str, total: int, rate: float, recipe: Recipe, warmup: int) -> Rates:
    if schedule == "onecycle":
        try:
            return one_cycle(total, rate)
        except UsageError:
            what = f"onecycle is for more than the {total} steps of this run"
            raise UsageError("--schedule", what, "choose another, or train longer") from None
    if schedule == "cosine":
        return cosine_rate(total, rate, warmup)
    epochs = recipe.epochs or 1
    return warmup_cosine(epochs, max(total // epochs, 1), rate, recipe.warmup_epochs or 0)
