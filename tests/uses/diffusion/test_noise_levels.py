"""Processes over noise levels against the schedulers of diffusers, and every sampler of them against plain loops."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.uses.diffusion.scanned import states
from tests.uses.diffusion.test_scheduler import clipping
from wdport.base.errors import UsageError
from wdport.models.interface import Array, Clipping, LossPart
from wdport.uses.diffusion.loss import DiffusionLoss, RandomBatch
from wdport.uses.diffusion.noise import lay_out
from wdport.uses.diffusion.noise_levels import EDM, EDM_SOLVER, LEVEL_CLASSES, NoiseLevels
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.process import Run
from wdport.uses.diffusion.reference_scheduler import CONSISTENCY, SCORE_SDE
from wdport.uses.diffusion.run_plan import plan_rows, run_plan
from wdport.uses.diffusion.scheduler_config import read_scheduler, stored_scheduler

library = pytest.importorskip("diffusers", exc_type=ImportError)
torch = pytest.importorskip("torch")

SHAPE = (3, 2, 4, 4)
"""Samples of the library's images, channels first, which no sampler minds."""

CASES: dict[str, dict[str, Any]] = {
    SCORE_SDE: {"_class_name": SCORE_SDE, "sigma_max": 50.0},
    "two corrections": {"_class_name": SCORE_SDE, "sigma_max": 90.0, "correct_steps": 2, "snr": 0.2},
    EDM: {"_class_name": EDM},
    "exponential, velocity": {"_class_name": EDM, "sigma_schedule": "exponential", "prediction_type": "v_prediction",
                              "sigma_data": 0.7, "sigma_min": 0.02, "rho": 5.0},
    EDM_SOLVER: {"_class_name": EDM_SOLVER, "rho": 6.0, "sigma_data": 0.6},
    CONSISTENCY: {"_class_name": CONSISTENCY},
    "not clipped": {"_class_name": CONSISTENCY, "clip_denoised": False, "sigma_data": 1.3, "num_train_timesteps": 18},
}  # fmt: skip


def read(case: str) -> NoiseLevels:
    found = read_scheduler(CASES[case])
    assert isinstance(found, NoiseLevels)
    return found


@cache
def toy(target: str, xp: Any) -> Any:
    """A network of states and times; a score is that of bounded data, so that samples stay small."""

    def network(x: Any, time: Any) -> Any:
        column = time.reshape(-1, 1, 1, 1)
        size = xp.sqrt(1.0 + column**2) if target == "score" else 1.0
        value = 0.5 * xp.sin(0.6 * x / size + 0.1 * xp.abs(column) ** 0.1) + 0.2 * xp.roll(x / size, 1, axis=-1)
        return (value - x) / column**2 if target == "score" else value

    return network


def tape_states(plan: SamplingPlan, target: str, init: Array, tape: Array, clip: Clipping | None) -> Array:
    return states(plan, toy(target, jnp), init, tape, clipping(clip))


@pytest.mark.parametrize("count", [1, 2, 5, 18])
@pytest.mark.parametrize("case", CASES)
def test_the_loop_of_the_librarys_pipeline(case: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the library's own units and float32 tables, one sample at a time: its corrector averages over a batch."""
    found, rng = read(case), np.random.default_rng(count)
    if count == 1 and (found.kind == SCORE_SDE or found.sigma_schedule == "exponential"):
        return  # the library's only step is then that of the smallest level
    plan = found.process().plan(None, count, changed=found.clipping is not None)
    init, tape = rng.standard_normal(SHAPE), rng.standard_normal((plan.slots, *SHAPE))
    ours = tape_states(plan, found.target, init, tape, found.clipping)[-1]
    document = {name: value for name, value in CASES[case].items() if name != "_class_name"}
    for at in range(len(init)):
        scheduler = getattr(library, found.kind)(**document)
        scheduler.set_timesteps(count)
        noise = [torch.from_numpy(slot[[at]]) for slot in tape] + [torch.zeros(1, *SHAPE[1:])] * count
        patched = f"{type(scheduler).__module__}.randn_tensor"
        monkeypatch.setattr(patched, lambda *_, noise=noise, **__: noise.pop(0))
        truth = _pipeline(scheduler, found, torch.from_numpy(init[[at]]), count)
        np.testing.assert_allclose(ours[at] * found.unit, truth[0], rtol=0, atol=2e-5 * np.abs(truth).max())


def _pipeline(scheduler: Any, found: NoiseLevels, init: Any, count: int) -> Array:
    network = toy(found.target, np)
    if found.kind == SCORE_SDE:
        scheduler.set_sigmas(count)
        # The library finds a step by rounding down in float32, one too far for some.
        numbers = iter(range(count - 1, -1, -1))
        x, mean = init * (1.0 + found.sigma_max**2) ** 0.5, init
        for index in range(count):
            level = np.array([float(scheduler.sigmas[index])])
            for _ in range(found.correct_steps):
                output = torch.from_numpy(network(x.numpy(), level))
                x = scheduler.step_correct(output, x).prev_sample
            output = torch.from_numpy(network(x.numpy(), level))
            step = scheduler.step_pred(output, (next(numbers) + 0.5) / (count - 1), x)
            x, mean = step.prev_sample, step.prev_sample_mean
        return np.asarray(mean)
    x = init * (float(scheduler.sigmas[0]) ** 2 + found.unit**2) ** 0.5
    for time in scheduler.timesteps:
        shown = scheduler.scale_model_input(x, time)
        output = network(shown.double().numpy(), np.array([float(time)]))
        x = scheduler.step(torch.from_numpy(output), time, x).prev_sample
    return np.asarray(x, np.float64)


@pytest.mark.parametrize("case", CASES)
def test_its_states_in_float64(case: str) -> None:
    process, rng = read(case).process(), np.random.default_rng(0)
    for run in process.runs:
        plan = process.trial(run, process.clip is not None)
        assert plan.steps.tolist() == process.visited(run)
        init, tape = rng.standard_normal(SHAPE), rng.standard_normal((plan.slots, *SHAPE))
        truth = process.loop(run, toy(process.target, np), init, tape)
        ours = tape_states(plan, process.target, init, tape, process.clip)
        np.testing.assert_allclose(ours, truth, rtol=0, atol=1e-10 * np.abs(truth).max())
        seen = set[str]()

        def network(x: Any, time: Any, seen: set[str] = seen) -> Any:
            seen.update((str(x.dtype), str(time.dtype)))
            return toy(process.target, np)(x, time)

        single = process.loop(run, network, init.astype(np.float32), tape)
        assert seen == {"float32"}
        np.testing.assert_allclose(single, truth, rtol=0, atol=1e-4 * np.abs(truth).max())


@pytest.mark.parametrize("spacing", [None, "karras", "exponential", "beta"])
@pytest.mark.parametrize("case", CASES)
def test_every_sampler_is_its_loop(case: str, spacing: str | None) -> None:
    found = read(case)
    process, rng, clip = found.process(), np.random.default_rng(1), found.clipping
    if spacing is not None:
        if found.kind == CONSISTENCY:
            with pytest.raises(UsageError, match="takes the levels of its training"):
                process.respaced(spacing, 5)
            return
        process = process.respaced(spacing, 5)
    fixed = ("heun", "dpm++2m", "dpm++2m-sde", "unipc", "predictor-corrector")
    for sampler in process.samplers:
        if spacing and sampler == "predictor-corrector":
            continue
        for repeats in (1, 2) if sampler not in fixed else (1,):
            for eta in (0.0, 0.5) if sampler == "ddim-textbook" else (0.0,):
                plan = process.plan(sampler, 5, eta, repeats, changed=clip is not None)
                assert plan.spacing == spacing
                draws = {int(number): rng.standard_normal(SHAPE) for number in plan.draws}
                tape = np.array([draws[int(number)] for number in plan.draws[plan.noisy]]).reshape(-1, *SHAPE)
                init, change = rng.standard_normal(SHAPE), None if clip is None else lambda clean: clip.apply(clean, np)
                truth = process.plain(Run(sampler, eta, process.target), toy(process.target, np), init,
                                      draws.__getitem__, change, repeats)  # fmt: skip
                ours = tape_states(plan, process.target, init, tape, clip)[-1]
                np.testing.assert_allclose(ours, truth, rtol=0, atol=1e-9 * np.abs(truth).max(), err_msg=sampler)


def test_a_network_that_knows_the_data_ends_there() -> None:
    """Whatever the sampler: the prediction is computed from the library's words for it, in its units."""
    rng = np.random.default_rng(2)
    data = rng.uniform(-0.6, 0.6, SHAPE)
    for case in CASES:
        found = read(case)
        process, unit = found.process(), found.unit

        def network(shown: Any, time: Any, found: NoiseLevels = found, unit: float = unit) -> Any:
            column = time.reshape(-1, 1, 1, 1)
            if found.kind == SCORE_SDE:
                return (data - shown) / column**2
            level = jnp.exp(column / 250.0 if found.kind == CONSISTENCY else 4.0 * column)
            x = shown * jnp.sqrt(level**2 + unit**2)
            gap = level - (found.sigma_min if found.kind == CONSISTENCY else 0.0)
            sign = -1.0 if found.prediction_type == "v_prediction" else 1.0
            skip = unit**2 / (gap**2 + unit**2)
            gain = jnp.maximum(gap, 1e-9) * unit / jnp.sqrt(level**2 + unit**2)
            return sign * (data - skip * x) / gain

        for sampler in process.samplers:
            plan = process.plan(sampler, 18, changed=found.clipping is not None)
            init, tape = rng.standard_normal(SHAPE), rng.standard_normal((plan.slots, *SHAPE))
            clip = found.clipping
            with jax.enable_x64(True):
                last = run_plan(network, plan_rows(plan, "float64"), init, lay_out(tape, plan.noisy), False,
                                None if clip is None else lambda clean, clip=clip: clip.apply(clean, jnp))  # fmt: skip
            # The library's network gets levels up to 1e-4 above those of the steps of this sampler.
            bound = 1e-4 if sampler == "predictor-corrector" else 1e-6
            np.testing.assert_allclose(np.asarray(last) * unit, data, atol=bound, err_msg=f"{case}, {sampler}")


@pytest.mark.parametrize("case", [SCORE_SDE, EDM, "exponential, velocity"])
def test_the_loss_is_that_of_the_papers(case: str) -> None:
    """Of the denoised data D(x), with the papers' weights; for the score, of level * score + noise."""
    found, rng = read(case), np.random.default_rng(3)
    unit, data = found.unit, rng.uniform(-1.0, 1.0, (64, 2, 4, 4))
    loss = DiffusionLoss(found.process().noising(), (LossPart("state", 2, 1.0),))
    with jax.enable_x64(True):
        drawn = RandomBatch(jnp.asarray(rng.standard_normal(data.shape)), jnp.asarray((np.arange(64) + 0.5) / 64))
        shown, time = loss.noisy(jnp.asarray(data / unit), drawn)
        output = toy(found.target, jnp)(shown, time)
        ours = np.asarray(loss.total(loss.errors(output, jnp.asarray(data / unit), drawn)))
    shown, time, output, noise = (np.asarray(values) for values in (shown, time, output, drawn.noise))
    level = (time if case == SCORE_SDE else np.exp(4.0 * time)).reshape(-1, 1, 1, 1)
    x = data + level * noise
    if case == SCORE_SDE:
        np.testing.assert_allclose(shown, x)
        truth = np.mean((level * output + noise) ** 2)
        np.testing.assert_allclose(np.median(level), np.sqrt(found.sigma_min * found.sigma_max), rtol=0.2)
    else:
        np.testing.assert_allclose(shown, x / np.sqrt(level**2 + unit**2))
        theirs = getattr(library, found.kind)(**{k: v for k, v in CASES[case].items() if k != "_class_name"})
        denoised = theirs.precondition_outputs(*(torch.from_numpy(np.array(each)) for each in (x, output, level)))
        weight = (level**2 + unit**2) / (level * unit) ** 2
        truth = np.mean(weight * (denoised.numpy() - data) ** 2)
        np.testing.assert_allclose(np.mean(np.log(level)), -1.2, atol=0.02)
    np.testing.assert_allclose(ours, truth, rtol=1e-9)


def test_it_is_stored_and_read_back() -> None:
    for case in CASES:
        assert stored_scheduler(read(case).to_dict()) == read(case)
    assert stored_scheduler({"kind": EDM, "rho": 5.0}) == read_scheduler({"_class_name": EDM, "rho": 5.0})


@pytest.mark.parametrize(
    ("kind", "values", "what"),
    [
        (
            EDM,
            {"final_sigmas_type": "sigma_min"},
            "final_sigmas_type 'sigma_min' of EDMEuler",
        ),
        (EDM_SOLVER, {"thresholding": True}, "thresholding True of EDMDPMSolverMultistepScheduler is not supported"),
        (CONSISTENCY, {"s_noise": 1.01}, "s_noise 1.01 of CMStochasticIterativeScheduler is not supported"),
        (EDM, {"sigma_min": 0.0}, "sigma_min is not a positive number"),
        (EDM, {"sigma_min": True}, "sigma_min is not a positive number"),
        (EDM, {"sigma_min": 90.0}, "sigma_min is not below sigma_max"),
        (EDM, {"sigma_schedule": "linear"}, "sigma_schedule 'linear' is not supported: one of karras, exponential"),
        (EDM, {"prediction_type": "sample"}, "prediction_type 'sample' is not supported: one of epsilon, v_pred"),
        (SCORE_SDE, {"sampling_eps": 1.0}, "sampling_eps is not below 1"),
        (SCORE_SDE, {"correct_steps": -1}, "correct_steps is not a whole number from 0 to 100"),
        (SCORE_SDE, {"num_train_timesteps": 1}, "num_train_timesteps is not a whole number from 2 to 100000"),
        (CONSISTENCY, {"clip_denoised": 1}, "clip_denoised is not true or false"),
    ],
)
def test_what_is_refused(kind: str, values: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        read_scheduler({"_class_name": kind, **values})


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"kind": "DDPMScheduler", **LEVEL_CLASSES[SCORE_SDE]}, "'DDPMScheduler' is not supported"),
        ({"kind": EDM, "sigma": 0.1}, "unknown field 'sigma' of a scheduler"),
    ],
)
def test_what_is_refused_of_a_stored_one(values: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        stored_scheduler(values)


def test_requests_that_make_no_sense() -> None:
    score, few = read(SCORE_SDE).process(), read(CONSISTENCY).process()
    for call, what in (
        (lambda: score.plan("ddpm"), "unknown sampler 'ddpm'"),
        (lambda: score.plan(None, 5, changed=True), "predictor-corrector takes no known values"),
        (lambda: score.plan(None, 5, times=2), "predictor-corrector cannot repeat single steps"),
        (lambda: score.respaced("trailing", 5), "trailing spacing is for a diffusion in steps"),
        (lambda: score.respaced("karas", 5), "unknown spacing 'karas'"),
        (lambda: few.noising(), "training of a consistency model is not implemented"),
        (lambda: score.noising("min-snr"), "min-snr is for diffusions in steps"),
        (lambda: few.plan(None, 41), "steps: invalid value 41"),
    ):
        with pytest.raises(UsageError, match=what):
            call()
