"""Known bugs of ports of a scheduler, each of which turns a correct plan into that of a faulty port.

Most are another field of the ``scheduler_config.json``, misread or not read at all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wdport.diffusion.faults import SamplerFault
from wdport.diffusion.plans import SamplingPlan
from wdport.diffusion.sampler_steps import NOISE, STATE
from wdport.diffusion.scan import Tensor
from wdport.diffusion.scheduler import Scheduled

_SWAPPED = {"noise": "velocity", "velocity": "noise", "sample": "velocity"}
_SAMPLE = {"noise": "sample", "velocity": "sample", "sample": "noise"}


def _other(plan: SamplingPlan, process: Scheduled, target: str = "", **fields: object) -> SamplingPlan:
    """The plan of as many steps by a scheduler with other fields, or for another target."""
    made = process.otherwise(**fields)
    steps = made.rule(len(plan.steps))
    return made.at(plan.sampler, steps, plan.eta, target or plan.target, plan.changed)


def _spacing(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    return _other(plan, process, timestep_spacing=_not(process, "timestep_spacing", "linspace", "leading"))


def _trailing(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    return _other(plan, process, timestep_spacing="trailing")


def _offset(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    return _other(plan, process, steps_offset=0 if process.scheduler.steps_offset else 1)


def _end(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    return _other(plan, process, set_alpha_to_one=not process.scheduler.set_alpha_to_one)


def _variance(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    return _other(plan, process, variance_type=_not(process, "variance_type", "fixed_large", "fixed_small"))


def _betas(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    return _other(plan, process, beta_schedule=_not(process, "beta_schedule", "scaled_linear", "linear"))


def _not(process: Scheduled, name: str, first: str, second: str) -> str:
    """The first of two values, or the second if the scheduler has the first."""
    return second if getattr(process.scheduler, name) == first else first


def _later(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    """The network gets steps counted from 1."""
    return replace(plan, times=plan.times + (1.0 / process.last if process.fraction else 1.0))


def _next(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    """The network gets the time of the next state instead of the current one."""
    return replace(plan, times=np.append(plan.times[1:], process.times[0]))


def _noise_at_the_end(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    coefficients = plan.coefficients.copy()
    coefficients[-1, STATE, NOISE] = np.sqrt(process.schedule.beta[plan.steps[-1]])
    return replace(plan, coefficients=coefficients)


def _without_noise(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    coefficients = plan.coefficients.copy()
    coefficients[:, STATE, NOISE] = 0.0
    return replace(plan, coefficients=coefficients)


def _eta_ignored(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    return process.at(plan.sampler, plan.steps, 0.0, plan.target, plan.changed)


def _noise_of_the_clipped(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    """The predicted noise recomputed from the clipped state."""
    return process.at("ddim-textbook", plan.steps, plan.eta, plan.target, plan.changed)


def _same(clean: Tensor) -> Tensor:
    return clean


def _clips(process: Scheduled) -> bool:
    return process.scheduler.clip is not None


def _spaced(process: Scheduled) -> bool:
    return process.scheduler.timestep_spacing != "trailing"


def _offsets(process: Scheduled) -> bool:
    return process.scheduler.timestep_spacing == "leading"


def _computed(process: Scheduled) -> bool:
    return process.scheduler.trained_betas is None


BOTH = ("ddpm", "ddim")

SCHEDULER_FAULTS: tuple[SamplerFault, ...] = (
    SamplerFault("v mixed with epsilon", BOTH, lambda plan, given: _other(plan, given, _SWAPPED[plan.target])),
    SamplerFault("sample mixed with epsilon", BOTH, lambda plan, given: _other(plan, given, _SAMPLE[plan.target])),
    SamplerFault("clipping forgotten", BOTH, lambda plan, _: plan, _same, _clips),
    SamplerFault("noise of the clipped state", ("ddim",), _noise_of_the_clipped, applies=_clips),
    SamplerFault("linspace for leading", BOTH, _spacing),
    SamplerFault("trailing for leading", BOTH, _trailing, applies=_spaced),
    SamplerFault("steps_offset forgotten", BOTH, _offset, applies=_offsets),
    SamplerFault("last alpha not one", ("ddim",), _end),
    SamplerFault("large variance for small", ("ddpm",), _variance),
    SamplerFault("scaled betas for linear", BOTH, _betas, applies=_computed),
    SamplerFault("timesteps off by one", BOTH, _later),
    SamplerFault("time of the next step", BOTH, _next),
    SamplerFault("noise on the last step", ("ddpm",), _noise_at_the_end),
    SamplerFault("noise left out", ("ddpm",), _without_noise),
    SamplerFault("eta ignored", ("ddim",), _eta_ignored),
)
