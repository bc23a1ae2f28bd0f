"""Samplers by the names of diffusers and k-diffusion, SDE-DPM-Solver++(2M) among them, against the library's."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.uses.diffusion.scanned import states
from tests.uses.diffusion.test_flow import MEAN, SPREAD, expected_noise
from wdport.base.errors import UsageError
from wdport.models.interface import FORMER_SAMPLERS
from wdport.uses.diffusion.diffusion import Diffusion
from wdport.uses.diffusion.plans import make_plan
from wdport.uses.diffusion.reference_samplers import solver_states
from wdport.uses.diffusion.sampler_updates import SAMPLERS, TARGETS
from wdport.uses.diffusion.schedules import SIGNAL, even_steps, noise_schedule, per_mille, step_list
from wdport.uses.evaluation.sweep import parse_settings

library = pytest.importorskip("diffusers", exc_type=ImportError)

NAME = "dpm++2m-sde"
SCHEDULE = noise_schedule("linear")
BARS = np.asarray(SCHEDULE.alpha_bar, np.float64)
STEPS = [980, 801, 640, 500, 333, 200, 77, 12]
MIX = np.random.default_rng(3).normal(size=(6, 6))
KINDS = {"noise": "epsilon", "sample": "sample", "velocity": "v_prediction"}
CLASSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "euler": (library.EulerDiscreteScheduler, {}),
    "euler-ancestral": (library.EulerAncestralDiscreteScheduler, {}),
    "dpm++2m": (library.DPMSolverMultistepScheduler, {"final_sigmas_type": "zero"}),
    "unipc": (library.UniPCMultistepScheduler, {"final_sigmas_type": "zero"}),
    "dpm++2m-sde": (library.DPMSolverMultistepScheduler,
                    {"final_sigmas_type": "zero", "algorithm_type": "sde-dpmsolver++"}),
}  # fmt: skip


def network(x: Any, time: Any) -> Any:
    return jnp.tanh(x @ MIX) + jnp.sin(3.0 * time)[:, None]


def in_numpy(x: np.ndarray, time: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(x @ MIX) + np.sin(3.0 * time)[:, None])


@pytest.fixture(scope="module")
def random() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((3, 6)), rng.standard_normal((len(STEPS) - 1, 3, 6))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sampler", CLASSES)
def test_a_name_is_the_librarys(sampler: str, target: str, random: tuple[np.ndarray, np.ndarray]) -> None:
    """With the same steps and noise; the library rounds its steps to float32."""
    kind, options = CLASSES[sampler]
    if (sampler, target) == ("euler-ancestral", "sample"):
        pytest.skip("not implemented in the library")
    plan = make_plan(sampler, SCHEDULE, STEPS, target=target)
    theirs = kind(trained_betas=SCHEDULE.beta[1:], prediction_type=KINDS[target], **options)
    theirs.set_timesteps(len(STEPS))
    theirs.timesteps = torch.tensor(STEPS, dtype=torch.float32 if sampler.startswith("euler") else torch.int64) - 1
    theirs.sigmas = torch.from_numpy(np.append(np.sqrt((1.0 - BARS[STEPS]) / BARS[STEPS]), 0.0))
    by_sigma = sampler.startswith("euler")
    noise = np.concatenate([random[1], random[1][:1]])
    x, wanted = torch.from_numpy(random[0]), []
    if by_sigma:
        x = x / BARS[STEPS[0]] ** 0.5
    for row, step in enumerate(STEPS):
        signal = BARS[step] ** 0.5 if by_sigma else 1.0
        out = torch.from_numpy(in_numpy(x.numpy() * signal, np.full(3, step / 1000)))
        with pytest.MonkeyPatch.context() as patch:
            if plan.slots:
                drawn = torch.from_numpy(noise[row])
                patch.setattr(f"{kind.__module__}.randn_tensor", lambda *_, drawn=drawn, **__: drawn)
            x = theirs.step(out, theirs.timesteps[row], x).prev_sample
        after = BARS[STEPS[row + 1]] ** 0.5 if by_sigma and row + 1 < len(STEPS) else 1.0
        wanted.append(x.numpy() * after)
    found = states(plan, network, random[0], random[1][: plan.slots])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=(1e-5 if sampler == NAME else 3e-6) * np.abs(wanted).max())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name not in ("ddpm", "ddim")])
def test_a_name_is_its_loop(sampler: str, target: str, random: tuple[np.ndarray, np.ndarray]) -> None:
    loop = partial(solver_states, sampler, in_numpy, BARS, per_mille(1000), target, STEPS, random[0])
    plan = make_plan(sampler, SCHEDULE, STEPS, target=target)
    found = states(plan, network, random[0], random[1][: plan.slots])
    np.testing.assert_allclose(found[-1], loop(random[1])[-1], rtol=0, atol=1e-9)


def test_former_names() -> None:
    process = Diffusion(SCHEDULE, "noise", per_mille(1000), step_list)
    for former, present in FORMER_SAMPLERS.items():
        assert process.plan(former, 10).sampler == present
    assert [str(each) for each in parse_settings("dpm-solver++:9")] == ["dpm++2m:9"]


EXPONENTIAL = noise_schedule("exponential")


def test_it_draws_gaussian_data() -> None:
    """The network knows three Gaussians exactly; 20,000 samples of 20 steps have their means and deviations."""
    known = partial(expected_noise, jnp.asarray(np.asarray(EXPONENTIAL.alpha_bar)))
    plan = make_plan(NAME, EXPONENTIAL, even_steps(EXPONENTIAL.alpha_bar, 20, 999))
    random = np.random.default_rng(0)
    init, tape = random.standard_normal((20_000, 3)), random.standard_normal((19, 20_000, 3))
    found = states(plan, known, init, tape)[-1]
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
    bars = np.asarray(EXPONENTIAL.alpha_bar, np.float64)
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
    process = Diffusion(EXPONENTIAL, "noise", per_mille(1000), step_list)
    with pytest.raises(UsageError, match="steps: invalid value"):
        process.plan(NAME, count)
