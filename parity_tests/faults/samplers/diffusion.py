"""Known bugs of the samplers of a checkpoint's own diffusion.

All but one change numbers in the plan; clipping is not an
affine update, so it is a ``change``.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from wdport.diffusion.diffusion import Diffusion
from wdport.diffusion.faults import SAMPLERS, TARGET_MIXED_UP, SamplerFault, again
from wdport.diffusion.plans import SamplingPlan
from wdport.diffusion.sampler_steps import NOISE, STATE
from wdport.diffusion.scan import Tensor
from wdport.diffusion.schedules import NoiseSchedule
from wdport.mapping.arrays import Array


def _with_noise(plan: SamplingPlan, deviation: Array) -> SamplingPlan:
    coefficients = plan.coefficients.copy()
    coefficients[:, STATE, NOISE] = deviation
    return replace(plan, coefficients=coefficients)


def _posterior(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    """The standard deviation of q(x_prev | x, x0) instead of sqrt(beta)."""
    bars = np.asarray(process.schedule.alpha_bar, np.float64)
    bar, before = bars[plan.steps], np.append(bars[plan.steps[1:]], 1.0)
    return _with_noise(plan, plan.coefficients[:, STATE, NOISE] * np.sqrt((1.0 - before) / (1.0 - bar)))


def _strided_beta(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    """1 - alpha_bar / alpha_bar_prev instead of the single step's beta, only in the noise."""
    bars = np.asarray(process.schedule.alpha_bar, np.float64)
    strided = 1.0 - bars[plan.steps] / np.append(bars[plan.steps[1:]], 1.0)
    beta = np.asarray(process.schedule.beta, np.float64)[plan.steps]
    return _with_noise(plan, plan.coefficients[:, STATE, NOISE] * np.sqrt(strided / beta))


def _noise_at_the_end(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    return _with_noise(plan, np.sqrt(np.asarray(process.schedule.beta, np.float64))[plan.steps])


def _linspace(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    steps = np.rint(np.linspace(plan.steps[0], plan.steps[-1], len(plan.steps))).astype(np.int64)
    return again(plan, process, steps=steps)


def _shifted(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    """Tables without their dummy at index 0, indexed as if they had it; the last entry beyond the end."""
    shifted = NoiseSchedule(*(np.append(table[1:], table[-1:]) for table in process.schedule))
    return again(plan, replace(process, schedule=shifted))


def _one_early(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    """The network gets the time of the next state instead of the current one."""
    return replace(plan, times=np.append(plan.times[1:], process.times[0]))


def _changed(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    return again(plan, process, changed=True)


def _clipped(clean: Tensor) -> Tensor:
    return jnp.clip(clean, -1.0, 1.0)


SAMPLER_FAULTS: tuple[SamplerFault, ...] = (
    SamplerFault("posterior variance", ("ddpm",), _posterior),
    SamplerFault("noise on the last step", ("ddpm",), _noise_at_the_end),
    SamplerFault("beta of the stride", SAMPLERS, _strided_beta),
    SamplerFault("corrected DDIM", ("ddim",), lambda plan, given: again(plan, given, sampler="ddim-textbook")),
    SamplerFault("linspace steps", SAMPLERS, _linspace),
    SamplerFault("schedule shifted by one", SAMPLERS, _shifted),
    SamplerFault("time of the next step", SAMPLERS, _one_early),
    SamplerFault("x0 clipped", SAMPLERS, _changed, _clipped),
    TARGET_MIXED_UP,
)
