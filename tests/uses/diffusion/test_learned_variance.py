"""Diffusions whose network predicts the variance of every step, against diffusers' DDPM and plain loops."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.uses.diffusion.scanned import states
from tests.uses.diffusion.test_scheduler import clipping
from wdport.base.errors import UsageError
from wdport.models.interface import Array
from wdport.uses.diffusion.diffusion import TRIAL
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.process import Run
from wdport.uses.diffusion.scheduler_config import LEARNED_RANGE, Scheduler

library = pytest.importorskip("diffusers", exc_type=ImportError)
torch = pytest.importorskip("torch")

SHAPE = (3, 4, 5, 2)
SCHEDULER = Scheduler(100, variance_type=LEARNED_RANGE, clip=1.5)


@cache
def toy(xp: Any) -> Any:
    """The prediction, then the share of the variance, which leaves the range from -1 to 1 as a network's may."""

    def network(x: Any, time: Any) -> Any:
        angle = time.reshape(-1, 1, 1, 1) / 40.0
        prediction = 0.8 * xp.sin(0.6 * x + angle) + 0.2 * xp.roll(x, 1, axis=-1)
        return xp.concatenate([prediction, 1.2 * xp.cos(2.0 * x + angle)], axis=-1)

    return network


def tape_states(plan: SamplingPlan, init: Array, tape: Array, clips: bool = True) -> Array:
    return states(plan, toy(jnp), init, tape, clipping(SCHEDULER.clipping if clips else None))


@pytest.mark.parametrize("clips", [True, False])
@pytest.mark.parametrize("count", [3, 10, 100])
def test_ddpm_is_the_librarys(count: int, clips: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(count)
    theirs = library.DDPMScheduler(num_train_timesteps=100, variance_type=LEARNED_RANGE, clip_sample=clips,
                                   clip_sample_range=1.5)  # fmt: skip
    theirs.set_timesteps(count)
    plan = SCHEDULER.process().plan("ddpm", count, changed=clips)
    init, tape = rng.standard_normal(SHAPE), rng.standard_normal((plan.slots, *SHAPE))
    x, noise = torch.from_numpy(np.moveaxis(init, -1, 1)), iter(np.moveaxis(tape, -1, 2))
    monkeypatch.setattr("diffusers.schedulers.scheduling_ddpm.randn_tensor",
                        lambda *_, **__: torch.from_numpy(next(noise)))  # fmt: skip
    for t in theirs.timesteps:
        output = toy(np)(np.moveaxis(x.numpy(), 1, -1), np.full(len(init), float(t)))
        x = theirs.step(torch.from_numpy(np.moveaxis(output, -1, 1)), t, x).prev_sample
    truth = np.moveaxis(x.numpy(), 1, -1)
    bound = 1e-4 * np.abs(truth).max()  # of its float32 tables
    np.testing.assert_allclose(tape_states(plan, init, tape, clips)[-1], truth, rtol=0, atol=bound)


def test_every_run_is_the_librarys_loop() -> None:
    process, rng = SCHEDULER.process(), np.random.default_rng(0)
    for run in process.runs:
        plan = process.trial(run, changed=True)
        init, tape = rng.standard_normal(SHAPE), rng.standard_normal((max(plan.slots, 1), *SHAPE))
        truth = process.loop(run, toy(np), init, tape)
        np.testing.assert_allclose(tape_states(plan, init, tape), truth, rtol=0, atol=1e-10 * np.abs(truth).max())


@pytest.mark.parametrize("spacing", [None, "karras"])
def test_every_sampler_is_its_loop(spacing: str | None) -> None:
    """Also with steps taken twice, where the noise of both is one draw."""
    process, rng, clip = SCHEDULER.process(), np.random.default_rng(1), SCHEDULER.clipping
    assert clip is not None
    of = process if spacing is None else process.respaced(spacing, TRIAL)
    once = ("heun", "dpm++2m", "dpm++2m-sde", "unipc", "probability-flow")
    for sampler in of.samplers if spacing is None else ("ddim-textbook", "euler", "heun", "unipc"):
        for repeats in (1, 3) if sampler not in once else (1,):
            plan = of.plan(sampler, TRIAL, times=repeats, changed=True)
            draws = {int(number): rng.standard_normal(SHAPE) for number in plan.draws}
            tape = np.array([draws[int(number)] for number in plan.draws[plan.noisy]]).reshape(-1, *SHAPE)
            init = rng.standard_normal(SHAPE)
            truth = of.plain(Run(sampler, 0.0, of.target), toy(np), init, draws.__getitem__,
                             lambda clean: clip.apply(clean, np), repeats)  # fmt: skip
            found = tape_states(plan, init, tape)[-1]
            np.testing.assert_allclose(found, truth, rtol=0, atol=1e-9 * np.abs(truth).max(), err_msg=sampler)


def test_training_is_refused() -> None:
    with pytest.raises(UsageError, match="training of a learned variance is not implemented"):
        SCHEDULER.process().noising()
