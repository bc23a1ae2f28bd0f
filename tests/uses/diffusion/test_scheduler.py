"""The samplers of a ``scheduler_config.json``, against diffusers' own schedulers on one tape and plain loops."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.uses.diffusion.scanned import states
from tests.uses.diffusion.scheduler_file import read_steps
from wdport.base.errors import UsageError
from wdport.models.interface import Clipping
from wdport.recording.float64 import lifted
from wdport.uses.diffusion.process import Run
from wdport.uses.diffusion.scheduler_config import LEARNED_RANGE, SCHEDULES, TARGETS, VARIANCES, Scheduler
from wdport.uses.diffusion.schedules import WHOLE

SHAPE = (3, 4, 4, 2)


def toy(x: Any, time: Any, xp: Any = np) -> Any:
    """Bounded, so that nothing grows where the signal is small."""
    return xp.tanh(0.8 * x + xp.cos(0.01 * time)[:, None, None, None]) + 0.2 * xp.mean(x, axis=1, keepdims=True)


TWIN = partial(toy, xp=jnp)


def drawn(rng: np.random.Generator) -> tuple[dict[str, Any], int, float]:
    """The fields of a configuration, a number of steps, and eta."""
    schedule = str(rng.choice(list(SCHEDULES)))
    if schedule == "sigmoid" and rng.integers(2):
        schedule = "linear"
    fields = {
        "num_train_timesteps": int(rng.choice([40, 100, 1000])),
        "beta_schedule": schedule,
        "beta_start": float(rng.choice([1e-4, 8.5e-4])),
        "beta_end": float(rng.choice([0.012, 0.02])),
        "prediction_type": str(rng.choice(list(TARGETS))),
        "clip_sample": bool(rng.integers(2)),
        "clip_sample_range": float(rng.choice([0.7, 1.0, 3.0])),
        "timestep_spacing": str(rng.choice(WHOLE)),
        "steps_offset": int(rng.choice([0, 1])),
    }
    fields["rescale_betas_zero_snr"] = fields["prediction_type"] != "epsilon" and bool(rng.integers(2))
    fields["thresholding"] = bool(rng.integers(2))
    fields["dynamic_thresholding_ratio"] = float(rng.choice([0.5, 0.9, 0.995]))
    fields["sample_max_value"] = float(rng.choice([1.0, 1.5]))
    return fields, int(rng.choice([5, 7, 10, 20])), float(rng.choice([0.0, 0.4, 1.0]))


def library(kind: str, fields: dict[str, Any], count: int, eta: float, init: Any, tape: Any, narrow: bool) -> Any:
    """The library's own loop, its tables in float64 unless ``narrow``."""
    from contextlib import nullcontext

    import diffusers
    import torch

    with nullcontext() if narrow else lifted():
        scheduler = getattr(diffusers, kind)(**fields)
        scheduler.set_timesteps(count)
        x, found = torch.tensor(init), []
        noises = [torch.tensor(each) for each in tape]
        for slot, t in enumerate(scheduler.timesteps):
            made = torch.tensor(toy(x.numpy(), np.full(len(x), int(t), np.float64)))
            if kind == "DDIMScheduler":
                given = {"eta": eta, "variance_noise": noises[slot] if eta else None}
                x = scheduler.step(made, int(t), x, **given).prev_sample
            else:
                from unittest.mock import patch

                module = "diffusers.schedulers.scheduling_ddpm.randn_tensor"
                with patch(module, lambda *_, noise=noises[slot], **__: noise):
                    x = scheduler.step(made, int(t), x).prev_sample
            found.append(x.numpy())
    return np.stack(found)


@pytest.mark.parametrize("kind", ["DDPMScheduler", "DDIMScheduler"])
@pytest.mark.parametrize("seed", range(12))
def test_trajectories_are_the_librarys(kind: str, seed: int) -> None:
    pytest.importorskip("diffusers", exc_type=ImportError)
    rng = np.random.default_rng(seed)
    fields, count, eta = drawn(rng)
    if kind == "DDIMScheduler":
        fields["set_alpha_to_one"] = bool(rng.integers(2))
        if fields["beta_schedule"] == "sigmoid":
            fields["beta_schedule"] = "scaled_linear"
    else:
        fields["variance_type"] = str(rng.choice([name for name in VARIANCES if name != LEARNED_RANGE]))
        eta = 0.0
    if fields["timestep_spacing"] == "linspace":
        eta = 0.0  # the library's DDIM may there ask for more noise than is left
    init, tape = rng.standard_normal(SHAPE), rng.standard_normal((count, *SHAPE))
    truth = library(kind, fields, count, eta, init, tape, narrow=False)
    scheduler = read_steps({"_class_name": kind, **fields})
    process = scheduler.process()
    plan = process.plan("ddpm" if kind == "DDPMScheduler" else "ddim", count, eta, changed=process.clip is not None)
    ours = tape_states(plan, init, tape, process.clip)
    assert ours.shape == truth.shape
    np.testing.assert_allclose(ours, truth, rtol=1e-9, atol=1e-9)
    narrow = library(kind, fields, count, eta, init, tape, narrow=True)
    assert 0.0 < np.abs(narrow - truth).max() < 1e-4 * np.abs(truth).max()  # its float32 tables


@cache
def clipping(clip: Clipping | None) -> Any:
    return clip and partial(clip.apply, xp=jnp)


def tape_states(plan: Any, init: Any, tape: Any, clip: Clipping | None) -> np.ndarray:
    """The states of a plan, with the clean state clipped; ``tape`` has noise for every row."""
    return states(plan, TWIN, init, tape[plan.noisy], clipping(clip))


@pytest.mark.parametrize("prediction", TARGETS)
@pytest.mark.parametrize("spacing", WHOLE)
def test_plans_do_what_plain_loops_do(spacing: str, prediction: str) -> None:
    rng = np.random.default_rng(1)
    for schedule in SCHEDULES:
        scheduler = Scheduler(60, schedule, prediction_type=prediction, timestep_spacing=spacing, clip=None,
                              set_alpha_to_one=schedule == "linear")  # fmt: skip
        process = scheduler.process()
        assert process.wrong_count() is None
        init = rng.standard_normal(SHAPE)
        for run in process.runs:
            plan = process.trial(run)
            tape = rng.standard_normal((len(plan.steps), *SHAPE))
            used = tape if run.sampler == "ddpm" else tape[plan.noisy]
            truth = process.loop(run, toy, init, used)
            np.testing.assert_allclose(tape_states(plan, init, tape, None), truth, rtol=1e-11, atol=1e-11)
    assert Run("ddpm", 0.0, scheduler.target) in process.runs


@pytest.mark.parametrize("prediction", ["sample", "v_prediction"])
def test_solvers_begin_where_no_signal_is_left(prediction: str) -> None:
    """They divide by it, so they take what diffusers' solvers take there, and are otherwise plain loops."""
    library = pytest.importorskip("diffusers", exc_type=ImportError)
    fields = {"prediction_type": prediction, "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    scheduler = Scheduler(**fields, clip=None)
    process = scheduler.process()
    assert process.schedule.alpha_bar[-1] == 0.0
    assert float(process.noising().at(jnp.array([0.99999])).signal[0]) == 0.0
    theirs = library.DPMSolverMultistepScheduler(**fields).alphas_cumprod.numpy()
    np.testing.assert_allclose(process.solved.alpha_bar[1:], theirs, rtol=2e-5)
    init = np.random.default_rng(3).standard_normal(SHAPE)
    for sampler in process.samplers:
        run = Run(sampler, 0.0, scheduler.target)
        plan = process.plan(sampler, process.count(sampler))
        noise = {int(draw): np.random.default_rng(int(draw)).standard_normal(SHAPE) for draw in plan.draws}
        tape = np.stack([noise[int(draw)] for draw in plan.draws[plan.noisy]]) if plan.slots else np.zeros((0, *SHAPE))
        truth = process.plain(run, toy, init, noise.__getitem__)
        used = np.zeros((len(plan.steps), *SHAPE))
        used[plan.noisy] = tape
        found = tape_states(plan, init, used, None)[-1]
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, truth, rtol=1e-9, atol=1e-9, err_msg=sampler)


@pytest.mark.parametrize("sampler", ["ddpm", "ddim"])
def test_a_change_of_the_clean_state_leaves_the_noise(sampler: str) -> None:
    """With a change to one constant, the last state is that constant, and the same steps draw noise."""
    process = Scheduler(60, clip=None).process()
    run, init = Run(sampler, 0.5, "noise"), np.random.default_rng(2).standard_normal(SHAPE)
    drawn: dict[bool, list[int]] = {True: [], False: []}

    def plain(changed: bool) -> np.ndarray:
        def noise(number: int) -> np.ndarray:
            drawn[changed].append(number)
            return np.random.default_rng(number).standard_normal(SHAPE)

        return process.plain(run, toy, init, noise, (lambda clean: np.full_like(clean, 0.3)) if changed else None)

    plain(False)
    np.testing.assert_allclose(plain(True), 0.3, atol=1e-12)
    assert drawn[True] == drawn[False] != []


@pytest.mark.parametrize("spacing", WHOLE)
def test_the_steps_of_every_count_are_the_librarys(spacing: str) -> None:
    """Halves are rounded as the library's own arithmetic leaves them: 24 of 100 trailing steps have one."""
    pytest.importorskip("diffusers", exc_type=ImportError)
    from diffusers import DDPMScheduler

    for last, counts in ((100, range(1, 101)), (1000, range(1, 300))):
        theirs = DDPMScheduler(num_train_timesteps=last, timestep_spacing=spacing)
        for count in counts:
            theirs.set_timesteps(count)
            ours = Scheduler(last, timestep_spacing=spacing).steps(count) - 1
            assert ours.tolist() == theirs.timesteps[:count].tolist(), count


GOOD: dict[str, Any] = {"_class_name": "DDPMScheduler", "num_train_timesteps": 100}


def test_what_is_not_said() -> None:
    assert read_steps(GOOD) == Scheduler(num_train_timesteps=100)
    assert read_steps({"_class_name": "EulerDiscreteScheduler"}).clip is None
    assert read_steps({**GOOD, "clip_sample": False, "clip_sample_range": 2.0}).clip is None
    betas = [0.01] * 100
    told = read_steps({**GOOD, "trained_betas": betas, "_diffusers_version": "0.1"})
    assert told.schedule().beta.tolist() == [0.0, *betas]
    assert Scheduler(**told.to_dict()) == told  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"num_train_timesteps": 0}, "num_train_timesteps is not a whole number from 1 to 100000"),
        ({"num_train_timesteps": 10**9}, "num_train_timesteps is not a whole number"),
        ({"num_train_timesteps": True}, "num_train_timesteps is not a whole number"),
        ({"steps_offset": -1}, "steps_offset is not a whole number from 0 to 99"),
        ({"beta_schedule": "laplace"}, "beta_schedule 'laplace' is not supported"),
        ({"beta_schedule": ["linear"]}, "is not supported: one of linear"),
        ({"prediction_type": "flow_prediction"}, "prediction_type 'flow_prediction' is not supported"),
        ({"variance_type": "learned"}, "variance_type 'learned' is not supported"),
        ({"timestep_spacing": "log"}, "timestep_spacing 'log' is not supported"),
        ({"thresholding": 1}, "thresholding is not true or false"),
        ({"dynamic_thresholding_ratio": 1.5}, "dynamic_thresholding_ratio is not a number from 0 to 1"),
        ({"sample_max_value": 0.5}, "sample_max_value is not a number from 1"),
        ({"rescale_betas_zero_snr": True}, "rescale_betas_zero_snr is not supported with prediction_type epsilon"),
        ({"clip_sample": 1}, "clip_sample is not true or false"),
        ({"clip_sample_range": float("inf")}, "clip_sample_range is not a positive number"),
        ({"beta_end": 1.0}, "beta_end is not between 0 and 1"),
        ({"beta_start": "0.1"}, "beta_start is not between 0 and 1"),
        ({"trained_betas": [0.1]}, "trained_betas are not 100 numbers"),
        ({"trained_betas": [0.0] * 100}, "trained_betas are not between 0 and 1"),
        ({"set_alpha_to_one": 1}, "set_alpha_to_one is not true or false"),
        ({"predction_type": "sample"}, "'predction_type' of DDPMScheduler; did you mean prediction_type?"),
        ({"predict_epsilon": False}, "predict_epsilon False of DDPMScheduler is not supported"),
        ({"_class_name": None}, "_class_name is missing"),
        ({"_class_name": "FlaxDDPMScheduler"}, "_class_name 'FlaxDDPMScheduler' is not supported"),
        ({"_class_name": ["a", "DDPMScheduler"]}, "_class_name ['a', 'DDPMScheduler'] is not supported"),
    ],
)
def test_what_is_refused(more: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        read_steps({**GOOD, **more})


def test_too_many_steps() -> None:
    scheduler = Scheduler(num_train_timesteps=100, steps_offset=5)
    for count in (0, 101, 1.5):
        with pytest.raises(UsageError, match=r"invalid value .*; give a whole number from 1 to 100"):
            scheduler.steps(count)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="steps from 5 on go beyond the last of 100"):
        scheduler.steps()
    with pytest.raises(UsageError, match="asks for more noise than is left"):
        scheduler.process().plan("ddim", 10, eta=3.0)


def test_steps_that_begin_late_are_the_loops() -> None:
    """All of them, counted from 1, go beyond the last: that number cannot be asked for, on either side."""
    process = Scheduler(num_train_timesteps=100, steps_offset=1).process()
    assert process.wrong_count() is None
    assert replace(process, listed=lambda count: []).wrong_count() == 1
