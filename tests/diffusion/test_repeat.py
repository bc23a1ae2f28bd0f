"""Steps taken several times: the noise puts back what the step took away, and is never drawn twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wdport.diffusion.plans import make_plan, repeated
from wdport.diffusion.schedules import noise_schedule, step_list
from wdport.errors import UsageError

SCHEDULE = noise_schedule("exponential")


@pytest.mark.parametrize(("sampler", "eta"), [("ddim", 0.0), ("ddim", 0.7), ("ddpm", 0.0)])
def test_every_step_but_the_last_is_taken_three_times(sampler: str, eta: float) -> None:
    once = make_plan(sampler, SCHEDULE, step_list(10), eta=eta)
    plan = repeated(once, SCHEDULE, 3)
    assert plan.steps.tolist() == [*np.repeat(once.steps[:-1], 3), 1]
    assert np.array_equal(plan.coefficients[2::3], once.coefficients[:-1])
    assert np.array_equal(plan.coefficients[-1], once.coefficients[-1])
    for i, step in enumerate(once.steps[:-1]):
        ratio = SCHEDULE.alpha_bar[step] / SCHEDULE.alpha_bar[once.steps[i + 1]]
        again, plain = plan.coefficients[3 * i, 0], once.coefficients[i, 0]
        np.testing.assert_allclose(again[:4], plain[:4] * np.sqrt(ratio))
        np.testing.assert_allclose(again[4] ** 2, plain[4] ** 2 * ratio + 1.0 - ratio)


def test_no_noise_is_drawn_twice() -> None:
    plan = repeated(make_plan("ddpm", SCHEDULE, step_list()), SCHEDULE, 4)
    assert len(set(plan.draws.tolist())) == len(plan.draws) == 999 * 4 + 1
    assert plan.draws.min() == 1
    late = replace(plan, steps=2 * plan.steps)  # of a schedule of 2000 steps
    assert len(set(late.draws.tolist())) == len(late.draws)
    once = make_plan("ddpm", SCHEDULE, step_list())
    assert np.array_equal(once.draws, once.steps)
    assert repeated(once, SCHEDULE, 1) is once


@pytest.mark.parametrize(("sampler", "times", "expected"), [
    ("ddim", 0, "invalid count 0"), ("ddim", 1.5, "invalid count 1.5"),
    ("heun", 2, "heun cannot repeat single steps; take ddpm or ddim, or resample once"),
    ("dpm++2m", 2, "dpm\\+\\+2m cannot repeat"),
])  # fmt: skip
def test_the_impossible_is_refused(sampler: str, times: int, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        repeated(make_plan(sampler, SCHEDULE, step_list(10)), SCHEDULE, times)
