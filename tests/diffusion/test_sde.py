"""SDE-DPM-Solver++(2M) beside diffusers, on data whose law is known, and the steps that it chooses."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import DPMSolverMultistepScheduler
from hypothesis import given
from hypothesis import strategies as st

from tests.diffusion.test_orders import MEAN, SPREAD, expected_noise
from wdport.diffusion.diffusion import Diffusion
from wdport.diffusion.noise import lay_out
from wdport.diffusion.plans import SamplingPlan, make_plan
from wdport.diffusion.scan import plan_rows, run_plan
from wdport.diffusion.schedules import SIGNAL, even_steps, noise_schedule, per_mille, step_list
from wdport.errors import UsageError

NAME = "dpm++2m-sde"
SCHEDULE = noise_schedule("exponential")
MIX = np.random.default_rng(3).normal(size=(6, 6))


def network(x: Any, time: Any) -> Any:
    return jnp.tanh(x @ MIX) + jnp.sin(3.0 * time)[:, None]


def states(plan: SamplingPlan, init: np.ndarray, tape: np.ndarray, of: Any = network) -> np.ndarray:
    with jax.enable_x64(True):
        laid = lay_out(tape, plan.noisy)
        return np.asarray(run_plan(of, plan_rows(plan, "float64"), init, laid, record=True))


@pytest.mark.parametrize("target", ["noise", "sample", "velocity"])
@pytest.mark.parametrize("count", [20])
def test_it_is_diffusers(target: str, count: int) -> None:
    """With the same noise and steps. diffusers computes a step in float32, so the bound is float32's."""
    steps = even_steps(SCHEDULE.alpha_bar, count, 1000)
    kind = {"noise": "epsilon", "sample": "sample", "velocity": "v_prediction"}[target]
    reference = DPMSolverMultistepScheduler(
        trained_betas=SCHEDULE.beta[1:], algorithm_type="sde-dpmsolver++", solver_order=2, prediction_type=kind,
        final_sigmas_type="zero",
    )  # fmt: skip
    reference.set_timesteps(timesteps=(steps - 1).tolist())
    bars = np.asarray(SCHEDULE.alpha_bar, np.float64)[steps]
    reference.sigmas = torch.from_numpy(np.append(np.sqrt((1.0 - bars) / bars), 0.0))
    random = np.random.default_rng(0)
    init, tape = random.standard_normal((3, 6)), random.standard_normal((count - 1, 3, 6))
    found = states(make_plan(NAME, SCHEDULE, steps, target=target), init, tape)
    x, wanted = torch.from_numpy(init), []
    for row, step in enumerate(steps):
        with jax.enable_x64(True):
            out = np.array(network(x.numpy(), np.full(3, step / 1000)))
        noise = torch.from_numpy(np.concatenate([tape, tape[:1]])[row])
        x = reference.step(torch.from_numpy(out), int(step - 1), x, variance_noise=noise).prev_sample
        wanted.append(x.numpy())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_it_draws_gaussian_data() -> None:
    """The network knows three Gaussians exactly; 20,000 samples of 20 steps have their means and deviations."""
    known = partial(expected_noise, jnp.asarray(np.asarray(SCHEDULE.alpha_bar)))
    plan = make_plan(NAME, SCHEDULE, even_steps(SCHEDULE.alpha_bar, 20, 999))
    random = np.random.default_rng(0)
    init, tape = random.standard_normal((20_000, 3)), random.standard_normal((19, 20_000, 3))
    found = states(plan, init, tape, known)[-1]
    np.testing.assert_allclose(found.mean(0), MEAN, atol=5 * SPREAD.max() / 20_000**0.5)
    np.testing.assert_allclose(found.std(0), SPREAD, rtol=0.04)


@given(st.sampled_from(["exponential", "linear", "cosine"]), st.integers(1, 600), st.integers(700, 1000))
def test_steps_are_as_many_as_asked_for_and_fall(kind: str, count: int, last: int) -> None:
    bars = np.asarray(noise_schedule(kind).alpha_bar, np.float64)
    start = int(np.flatnonzero(bars[1 : last + 1] >= SIGNAL**2)[-1]) + 1
    if count > start:
        with pytest.raises(UsageError, match=f"give a whole number from 1 to {start}"):
            even_steps(bars, count, last)
        return
    steps = even_steps(bars, count, last)
    assert len(steps) == count
    assert (np.diff(steps) < 0).all()
    assert (steps[0], steps[-1]) == (start, 1 if count > 1 else start)


def test_steps_are_even_in_log_snr() -> None:
    bars = np.asarray(SCHEDULE.alpha_bar, np.float64)
    steps = even_steps(bars, 12, 999)
    ratios = np.log(bars[steps] / (1 - bars[steps]))
    gaps = np.diff(ratios)
    assert np.abs(gaps[:-2] / gaps[:-2].mean() - 1).max() < 0.05  # steps are whole: the last ones are coarse
    assert len(even_steps(bars, None, 999)) == 20


def test_a_step_that_was_never_trained_is_not_visited() -> None:
    """Every step has a signal of at least 0.03, but the network was trained on steps up to 2 alone."""
    few = noise_schedule("exponential")._replace(**{
        name: np.asarray(values)[:4] for name, values in noise_schedule("exponential")._asdict().items()})  # fmt: skip
    for first, wanted in ((0, [2, 1]), (1, [3, 1])):
        process = Diffusion(few, "noise", per_mille(3), step_list, first=first)
        assert process.plan(NAME, 2).steps.tolist() == wanted


@pytest.mark.parametrize("count", [0, -1, 1001, 2.5, True])
def test_wrong_numbers_of_steps_are_refused(count: Any) -> None:
    process = Diffusion(SCHEDULE, "noise", per_mille(1000), step_list)
    with pytest.raises(UsageError, match="steps: invalid step count"):
        process.plan(NAME, count)
