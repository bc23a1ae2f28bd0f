"""Samplers by the names of diffusers and k-diffusion: each against the library's scheduler of that name."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from wdport.diffusion.diffusion import Diffusion
from wdport.diffusion.noise import lay_out
from wdport.diffusion.plans import make_plan
from wdport.diffusion.reference_samplers import solver_states
from wdport.diffusion.sampler_steps import SAMPLERS, TARGETS
from wdport.diffusion.scan import plan_rows, run_plan
from wdport.diffusion.schedules import noise_schedule, per_mille, step_list
from wdport.evaluation.sweep import parse_settings
from wdport.model import FORMER_SAMPLERS

library = pytest.importorskip("diffusers", exc_type=ImportError)

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
}


def network(x: Any, time: Any) -> Any:
    return jnp.tanh(x @ MIX) + jnp.sin(3.0 * time)[:, None]


def in_numpy(x: np.ndarray, time: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(x @ MIX) + np.sin(3.0 * time)[:, None])


@pytest.fixture(scope="module")
def random() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((3, 6)), rng.standard_normal((len(STEPS) - 1, 3, 6))


def ours(sampler: str, target: str, random: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    plan = make_plan(sampler, SCHEDULE, STEPS, target=target)
    with jax.enable_x64(True):
        noise = lay_out(random[1][: plan.slots], plan.noisy)
        return np.asarray(run_plan(network, plan_rows(plan, "float64"), random[0], noise, record=True))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sampler", CLASSES)
def test_a_name_is_the_librarys(sampler: str, target: str, random: tuple[np.ndarray, np.ndarray]) -> None:
    """With the same steps and noise; the library rounds its steps to float32."""
    kind, options = CLASSES[sampler]
    if (sampler, target) == ("euler-ancestral", "sample"):
        pytest.skip("not implemented in the library")
    theirs = kind(trained_betas=SCHEDULE.beta[1:], prediction_type=KINDS[target], **options)
    theirs.set_timesteps(len(STEPS))
    theirs.timesteps = torch.tensor(STEPS, dtype=torch.float32 if sampler.startswith("euler") else torch.int64) - 1
    theirs.sigmas = torch.from_numpy(np.append(np.sqrt((1.0 - BARS[STEPS]) / BARS[STEPS]), 0.0))
    by_sigma = sampler.startswith("euler")
    x, wanted = torch.from_numpy(random[0]), []
    if by_sigma:
        x = x / BARS[STEPS[0]] ** 0.5
    for row, step in enumerate(STEPS):
        signal = BARS[step] ** 0.5 if by_sigma else 1.0
        out = torch.from_numpy(in_numpy(x.numpy() * signal, np.full(3, step / 1000)))
        if sampler == "euler-ancestral":
            tape = torch.from_numpy(np.concatenate([random[1], random[1][:1]])[row])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(f"{kind.__module__}.randn_tensor", lambda *_, tape=tape, **__: tape)
                x = theirs.step(out, theirs.timesteps[row], x).prev_sample
        else:
            x = theirs.step(out, theirs.timesteps[row], x).prev_sample
        after = BARS[STEPS[row + 1]] ** 0.5 if by_sigma and row + 1 < len(STEPS) else 1.0
        wanted.append(x.numpy() * after)
    found = ours(sampler, target, random)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name not in ("ddpm", "ddim")])
def test_a_name_is_its_loop(sampler: str, target: str, random: tuple[np.ndarray, np.ndarray]) -> None:
    loop = partial(solver_states, sampler, in_numpy, BARS, per_mille(1000), target, STEPS, random[0])
    wanted = loop(random[1])
    np.testing.assert_allclose(ours(sampler, target, random)[-1], wanted[-1], rtol=0, atol=1e-9)


def test_former_names() -> None:
    process = Diffusion(SCHEDULE, "noise", per_mille(1000), step_list)
    for former, present in FORMER_SAMPLERS.items():
        assert process.plan(former, 10).sampler == present
    assert [str(each) for each in parse_settings("dpm-solver++:9")] == ["dpm++2m:9"]
