"""Known bugs of samplers, each of which turns a correct plan into that of a faulty port.

They measure what a comparison of trajectories can find. All but one change numbers in the plan; clipping is not an
affine update, so it is a ``change``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from wdport.diffusion.diffusion import Diffusion
from wdport.diffusion.plans import Plan
from wdport.diffusion.scan import Change, Tensor
from wdport.diffusion.schedules import NoiseSchedule
from wdport.diffusion.updates import NOISE, STATE, TARGETS
from wdport.mapping.arrays import Array


@dataclass(frozen=True)
class SamplerFault:
    """One known bug of these ``samplers``.

    ``apply(plan, process)`` is the faulty port's plan; ``change``, if given, changes the clean state at every step.
    ``applies(process)`` says whether a process can have the bug.
    """

    name: str
    samplers: tuple[str, ...]
    apply: Callable[[Plan, Any], Plan]
    change: Change | None = None
    applies: Callable[[Any], bool] = lambda _: True


def _again(
    plan: Plan,
    process: Diffusion,
    sampler: str = "",
    steps: Array | None = None,
    target: str = "",
    changed: bool = False,
) -> Plan:
    """The plan with other arguments."""
    kept = plan.steps if steps is None else steps
    return process.at(sampler or plan.sampler, kept, plan.eta, target or plan.target, changed)


def _with_noise(plan: Plan, deviation: Array) -> Plan:
    coefficients = plan.coefficients.copy()
    coefficients[:, STATE, NOISE] = deviation
    return replace(plan, coefficients=coefficients)


def _posterior(plan: Plan, process: Diffusion) -> Plan:
    """The standard deviation of q(x_prev | x, x0) instead of sqrt(beta)."""
    bars = np.asarray(process.schedule.alpha_bar, np.float64)
    bar, before = bars[plan.steps], np.append(bars[plan.steps[1:]], 1.0)
    return _with_noise(plan, plan.coefficients[:, STATE, NOISE] * np.sqrt((1.0 - before) / (1.0 - bar)))


def _strided_beta(plan: Plan, process: Diffusion) -> Plan:
    """1 - alpha_bar / alpha_bar_prev instead of the single step's beta, only in the noise."""
    bars = np.asarray(process.schedule.alpha_bar, np.float64)
    strided = 1.0 - bars[plan.steps] / np.append(bars[plan.steps[1:]], 1.0)
    beta = np.asarray(process.schedule.beta, np.float64)[plan.steps]
    return _with_noise(plan, plan.coefficients[:, STATE, NOISE] * np.sqrt(strided / beta))


def _noise_at_the_end(plan: Plan, process: Diffusion) -> Plan:
    return _with_noise(plan, np.sqrt(np.asarray(process.schedule.beta, np.float64))[plan.steps])


def _linspace(plan: Plan, process: Diffusion) -> Plan:
    steps = np.rint(np.linspace(plan.steps[0], plan.steps[-1], len(plan.steps))).astype(np.int64)
    return _again(plan, process, steps=steps)


def _shifted(plan: Plan, process: Diffusion) -> Plan:
    """Tables without their dummy at index 0, indexed as if they had it; the last entry beyond the end."""
    shifted = NoiseSchedule(*(np.append(table[1:], table[-1:]) for table in process.schedule))
    return _again(plan, replace(process, schedule=shifted))


def _one_early(plan: Plan, process: Diffusion) -> Plan:
    """The network gets the time of the next state instead of the current one."""
    return replace(plan, times=np.append(plan.times[1:], process.times[0]))


def _other_target(plan: Plan, process: Diffusion) -> Plan:
    return _again(plan, process, target=next(each for each in TARGETS if each != plan.target))


def _changed(plan: Plan, process: Diffusion) -> Plan:
    return _again(plan, process, changed=True)


def _clipped(clean: Tensor) -> Tensor:
    return jnp.clip(clean, -1.0, 1.0)


BOTH = ("ddpm", "ddim")

SAMPLER_FAULTS: tuple[SamplerFault, ...] = (
    SamplerFault("posterior variance", ("ddpm",), _posterior),
    SamplerFault("noise on the last step", ("ddpm",), _noise_at_the_end),
    SamplerFault("beta of the stride", BOTH, _strided_beta),
    SamplerFault("corrected DDIM", ("ddim",), lambda plan, given: _again(plan, given, sampler="ddim-textbook")),
    SamplerFault("linspace steps", BOTH, _linspace),
    SamplerFault("schedule shifted by one", BOTH, _shifted),
    SamplerFault("time of the next step", BOTH, _one_early),
    SamplerFault("x0 clipped", BOTH, _changed, _clipped),
    SamplerFault("target mixed up", BOTH, _other_target),
)
