"""Known bugs of samplers: a correct plan in, the plan of a faulty port out.

They measure what a comparison of trajectories can find. All but one are other numbers in the plan; clipping is no
affine update, so it goes round the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from wdport.diffusion.plans import TARGETS, Plan, make_plan
from wdport.diffusion.scan import Network
from wdport.diffusion.schedules import NoiseSchedule
from wdport.diffusion.through import through_denoised
from wdport.diffusion.updates import NOISE, STATE
from wdport.mapping.arrays import Array


@dataclass(frozen=True)
class SamplerFault:
    """One known bug of these ``samplers``.

    ``apply(plan, schedule)`` is the faulty port's plan; ``wrap(network, plan, schedule)``, if there is one, the
    network that it runs on.
    """

    name: str
    samplers: tuple[str, ...]
    apply: Callable[[Plan, NoiseSchedule], Plan]
    wrap: Callable[[Network, Plan, NoiseSchedule], Network] | None = None


def _again(
    plan: Plan, schedule: NoiseSchedule, sampler: str = "", steps: Array | None = None, target: str = ""
) -> Plan:
    """The plan made anew with other arguments."""
    kept = plan.steps if steps is None else steps
    return make_plan(sampler or plan.sampler, schedule, kept, eta=plan.eta, target=target or plan.target)


def _with_noise(plan: Plan, deviation: Array) -> Plan:
    coefficients = plan.coefficients.copy()
    coefficients[:, STATE, NOISE] = deviation
    return replace(plan, coefficients=coefficients)


def _posterior(plan: Plan, schedule: NoiseSchedule) -> Plan:
    """The deviation of q(x_prev | x, x0) for sqrt(beta)."""
    bars = np.asarray(schedule.alpha_bar, np.float64)
    bar, before = bars[plan.steps], np.append(bars[plan.steps[1:]], 1.0)
    return _with_noise(plan, plan.coefficients[:, STATE, NOISE] * np.sqrt((1.0 - before) / (1.0 - bar)))


def _strided_beta(plan: Plan, schedule: NoiseSchedule) -> Plan:
    """1 - alpha_bar / alpha_bar_prev for the single step's beta, in the noise alone."""
    bars = np.asarray(schedule.alpha_bar, np.float64)
    strided = 1.0 - bars[plan.steps] / np.append(bars[plan.steps[1:]], 1.0)
    beta = np.asarray(schedule.beta, np.float64)[plan.steps]
    return _with_noise(plan, plan.coefficients[:, STATE, NOISE] * np.sqrt(strided / beta))


def _noise_at_the_end(plan: Plan, schedule: NoiseSchedule) -> Plan:
    return _with_noise(plan, np.sqrt(np.asarray(schedule.beta, np.float64))[plan.steps])


def _linspace(plan: Plan, schedule: NoiseSchedule) -> Plan:
    steps = np.rint(np.linspace(plan.steps[0], plan.steps[-1], len(plan.steps))).astype(np.int64)
    return _again(plan, schedule, steps=steps)


def _shifted(plan: Plan, schedule: NoiseSchedule) -> Plan:
    """Tables without their dummy at index 0, read as if they had it; past their end the last entry."""
    return _again(plan, NoiseSchedule(*(np.append(table[1:], table[-1:]) for table in schedule)))


def _one_early(plan: Plan, schedule: NoiseSchedule) -> Plan:
    """The network told the step that the state is going to, not the one that it is at."""
    return replace(plan, steps=np.append(plan.steps[1:], 0))


def _other_target(plan: Plan, schedule: NoiseSchedule) -> Plan:
    return _again(plan, schedule, target=next(each for each in TARGETS if each != plan.target))


def _unchanged(plan: Plan, schedule: NoiseSchedule) -> Plan:
    return plan


def _clipped(network: Network, plan: Plan, schedule: NoiseSchedule) -> Network:
    return through_denoised(network, schedule, plan.target, lambda x: jnp.clip(x, -1.0, 1.0))


BOTH = ("ddpm", "ddim")

SAMPLER_FAULTS = (
    SamplerFault("posterior variance", ("ddpm",), _posterior),
    SamplerFault("noise on the last step", ("ddpm",), _noise_at_the_end),
    SamplerFault("beta of the stride", BOTH, _strided_beta),
    SamplerFault("corrected DDIM", ("ddim",), lambda plan, given: _again(plan, given, sampler="ddim-textbook")),
    SamplerFault("linspace steps", BOTH, _linspace),
    SamplerFault("schedule shifted by one", BOTH, _shifted),
    SamplerFault("time of the next step", BOTH, _one_early),
    SamplerFault("x0 clipped", BOTH, _unchanged, _clipped),
    SamplerFault("target mixed up", BOTH, _other_target),
)
