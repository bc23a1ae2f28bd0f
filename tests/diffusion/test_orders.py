"""Convergence of the samplers without noise: on Gaussian data the network and the exact flow are known."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from wdport.diffusion.plans import make_plan
from wdport.diffusion.scan import plan_rows, run_plan
from wdport.diffusion.schedules import noise_schedule

SCHEDULE = noise_schedule("linear")
MEAN = np.array([0.3, -1.0, 2.0])
SPREAD = np.array([0.5, 1.0, 0.1])
"""Three independent Gaussians, of which the network knows all."""


def expected_noise(alpha_bar: Any, x: Any, time: Any) -> Any:
    """What a perfect network predicts."""
    bar = alpha_bar[jax.numpy.rint(time * 1000).astype(int)][:, None]
    return (x - bar**0.5 * MEAN) * (1.0 - bar) ** 0.5 / (bar * SPREAD**2 + 1.0 - bar)


@partial(jax.jit, static_argnums=0)
def sample(rows_count: int, rows: Any, init: Any, alpha_bar: Any) -> Any:
    network = partial(expected_noise, alpha_bar)
    return run_plan(network, rows, init, np.zeros((rows_count, *init.shape)), record=True)


def flowed(x: np.ndarray, start: int, end: int) -> np.ndarray:
    """The probability flow of Gaussian data, exactly: standardise at one step, undo it at the other."""
    bars = SCHEDULE.alpha_bar[start], SCHEDULE.alpha_bar[end]
    spreads = [np.sqrt(bar * SPREAD**2 + 1.0 - bar) for bar in bars]
    return (x - np.sqrt(bars[0]) * MEAN) / spreads[0] * spreads[1] + np.sqrt(bars[1]) * MEAN


@pytest.mark.parametrize(
    ("sampler", "order"),
    [("ddim", 1), ("ddim-textbook", 1), ("probability-flow", 1), ("heun", 2), ("dpm++2m", 2), ("unipc", 3)],
)
def test_order_of_convergence(sampler: str, order: int) -> None:
    """From step 900 to step 100, where the flow is smooth, in 40, 80 and 160 steps. UniPC has a corrector."""
    init = np.random.default_rng(0).standard_normal((4, 3))
    truth, errors = flowed(init, 900, 100), []
    for stride in (20, 10, 5):
        plan = make_plan(sampler, SCHEDULE, np.arange(900, 99, -stride))
        with jax.enable_x64(True):
            states = sample(len(plan.steps), plan_rows(plan, "float64"), init, SCHEDULE.alpha_bar)
        errors.append(np.linalg.norm(np.asarray(states)[-2] - truth))
    measured = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert abs(measured[-1] - order) < 0.2
    assert errors[-1] < 0.1
