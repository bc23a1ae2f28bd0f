"""Spacings against the schedulers of diffusers, and against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.uses.diffusion.scanned import states
from tests.uses.diffusion.test_familiar_names import BARS, KINDS, SCHEDULE, in_numpy, network
from tests.uses.diffusion.test_familiar_names import CLASSES as FAMILIAR
from wdport.base.errors import UsageError
from wdport.uses.diffusion.diffusion import TRIAL, Diffusion
from wdport.uses.diffusion.flow import Flow
from wdport.uses.diffusion.process import Run
from wdport.uses.diffusion.sampler_updates import SAMPLERS, TARGETS
from wdport.uses.diffusion.scheduler_config import Scheduler
from wdport.uses.diffusion.schedules import LEVELS, WHOLE, per_mille, step_list

library = pytest.importorskip("diffusers", exc_type=ImportError)

COUNT = 9
CLASSES: dict[str, tuple[Any, dict[str, Any]]] = {name: FAMILIAR[name] for name in ("euler", "dpm++2m", "unipc")}
CLASSES["heun"] = (library.HeunDiscreteScheduler, {})
ROUNDED = ("dpm++2m", "unipc")
"""The library has whole steps alone for these."""


def process(target: str = "noise", integer_times: bool = False) -> Diffusion:
    return Diffusion(SCHEDULE, target, per_mille(1000), step_list, integer_times=integer_times)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spacing", LEVELS)
@pytest.mark.parametrize("sampler", CLASSES)
def test_noise_levels_are_the_librarys(sampler: str, spacing: str, target: str) -> None:
    """With the library's own list of steps, from float64 tables; it rounds steps and noise levels to float32."""
    kind, options = CLASSES[sampler]
    theirs = kind(trained_betas=SCHEDULE.beta[1:], prediction_type=KINDS[target], timestep_spacing="linspace",
                  **{f"use_{spacing}_sigmas": True}, **options)  # fmt: skip
    theirs.alphas_cumprod = torch.from_numpy(BARS[1:])  # in float32, the smallest noise level is 8e-5 off
    theirs.set_timesteps(COUNT)
    plan = process(target, sampler in ROUNDED).respaced(spacing, COUNT).plan(sampler, COUNT)
    times = plan.times * 1000
    if sampler in ROUNDED and spacing != "karras":  # which the library cuts off instead
        times = np.floor(process(target).respaced(spacing, COUNT).plan(sampler, COUNT).times * 1000)
    np.testing.assert_allclose(times, theirs.timesteps.double().numpy() + 1, rtol=0, atol=2e-3)
    init = np.random.default_rng(0).standard_normal((3, 6))
    by_sigma = sampler in ("euler", "heun")
    x: Any = torch.from_numpy(init) * ((theirs.sigmas[0].double() ** 2 + 1.0) ** 0.5 if by_sigma else 1.0)
    for time, at in zip(theirs.timesteps, plan.times, strict=True):
        given = theirs.scale_model_input(x, time) if by_sigma else x
        x = theirs.step(torch.from_numpy(in_numpy(given.numpy(), np.full(3, at))), time, x).prev_sample
    found = states(plan, network, init)[-1]
    np.testing.assert_allclose(found, x.numpy(), rtol=0, atol=2e-5 * np.abs(x.numpy()).max())


@pytest.mark.parametrize("spacing", WHOLE)
def test_whole_steps_are_the_librarys(spacing: str) -> None:
    theirs = library.DDIMScheduler(timestep_spacing=spacing)
    theirs.set_timesteps(COUNT)
    wanted = theirs.timesteps.numpy() + 1
    for diffusion in (process(), Scheduler().process()):
        plan = diffusion.respaced(spacing, COUNT).plan("dpm++2m-sde", COUNT)
        assert (plan.steps.tolist(), plan.spacing) == (wanted.tolist(), spacing)


@pytest.mark.parametrize("spacing", LEVELS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_spaced_sampler_is_its_loop(sampler: str, spacing: str) -> None:
    """Also with steps taken twice, and of a scheduler, whose ddpm and ddim are the published ones."""
    rng, repeats = np.random.default_rng(1), 2 if sampler in ("euler", "ddim-textbook") else 1
    init = rng.standard_normal((3, 6))
    for spaced in (process(), Scheduler().process()):
        if sampler == "ddpm" and not spaced.checkpoint_samplers:
            continue  # the deviation of the public code, for which there is no loop
        of_levels = spaced.respaced(spacing, TRIAL)
        plan = of_levels.plan(sampler, TRIAL, times=repeats)
        draws = {int(number): rng.standard_normal((3, 6)) for number in plan.draws}
        tape = np.array([draws[int(number)] for number in plan.draws[plan.noisy]]).reshape(-1, 3, 6)
        loop = Run({"ddpm": "euler-ancestral", "ddim": "euler"}.get(sampler, sampler), 0.0, "noise")
        wanted = of_levels.plain(loop, in_numpy, init, draws.__getitem__, None, repeats)
        np.testing.assert_allclose(
            states(plan, network, init, tape)[-1], wanted, rtol=0, atol=1e-9 * np.abs(wanted).max()
        )


def test_refusals() -> None:
    with pytest.raises(UsageError, match=r"spacing: unknown spacing 'karas'.*karras"):
        process().respaced("karas", 5)
    with pytest.raises(UsageError, match="steps: invalid value 1001"):
        process().respaced("karras", 1001)
    with pytest.raises(UsageError, match="spacing: the times of a flow"):
        Flow().respaced("karras", 5)
