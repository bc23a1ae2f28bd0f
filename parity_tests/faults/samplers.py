"""Known bugs of the samplers of a checkpoint's own diffusion, of a flow, and of a scheduler of diffusers.

All but the clipping change numbers in the plan.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from wdport.models.interface import Array
from wdport.uses.diffusion.diffusion import Diffusion
from wdport.uses.diffusion.faults import SAMPLERS, TARGET_MIXED_UP, SamplerFault, again
from wdport.uses.diffusion.flow import FEW, SINGULAR, Flow
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.process import Process
from wdport.uses.diffusion.run_plan import Tensor
from wdport.uses.diffusion.sampler_updates import NOISE, OUTPUT, STATE
from wdport.uses.diffusion.scheduler_config import Scheduled
from wdport.uses.diffusion.schedules import NoiseSchedule


def _with_noise(plan: SamplingPlan, deviation: Array | float) -> SamplingPlan:
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


def _noise_at_the_end(plan: SamplingPlan, process: Diffusion | Scheduled) -> SamplingPlan:
    deviation = plan.coefficients[:, STATE, NOISE].copy()
    deviation[-1] = np.sqrt(np.float64(process.schedule.beta[plan.steps[-1]]))
    return _with_noise(plan, deviation)


def _linspace(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    steps = np.rint(np.linspace(plan.steps[0], plan.steps[-1], len(plan.steps))).astype(np.int64)
    return again(plan, process, steps=steps)


def _shifted(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    """Tables without their dummy at index 0, indexed as if they had it; the last entry beyond the end."""
    shifted = NoiseSchedule(*(np.append(table[1:], table[-1:]) for table in process.schedule))
    return again(plan, replace(process, schedule=shifted))


def _one_early(plan: SamplingPlan, process: Diffusion | Scheduled) -> SamplingPlan:
    """The network gets the time of the next state instead of the current one."""
    return replace(plan, times=np.append(plan.times[1:], process.times[0]))


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
    SamplerFault("x0 clipped", SAMPLERS, lambda plan, process: again(plan, process, changed=True), _clipped),
    TARGET_MIXED_UP,
)


_OTHER = {"velocity": "sample", "sample": "velocity", "noise": "velocity"}


def _again(plan: SamplingPlan, flow: Flow, sampler: str = "", target: str = "", count: int = FEW) -> SamplingPlan:
    """The plan of another flow, sampler or target, or over another number of steps."""
    return flow.at(sampler or plan.sampler, flow.grid(count), target=target or plan.target, changed=plan.changed)


def _sign(plan: SamplingPlan, _: Flow) -> SamplingPlan:
    """The state follows the velocity backwards."""
    coefficients = plan.coefficients.copy()
    coefficients[:, :, OUTPUT] *= -1.0
    return replace(plan, coefficients=coefficients)


def _reversed(plan: SamplingPlan, flow: Flow) -> SamplingPlan:
    """The network gets 1 - t."""
    return _again(plan, replace(flow, network_time=lambda time: flow.network_time(1.0 - time)))


def _unscaled(plan: SamplingPlan, flow: Flow) -> SamplingPlan:
    return _again(plan, replace(flow, network_time=float))


def _path(plan: SamplingPlan, flow: Flow) -> SamplingPlan:
    return _again(plan, replace(flow, path="linear" if flow.path == "cosine" else "cosine"))


def _backwards(plan: SamplingPlan, flow: Flow) -> SamplingPlan:
    """From the time of the data to that of the noise."""
    return flow.at(plan.sampler, flow.grid(FEW)[::-1], target=plan.target)


def _next(plan: SamplingPlan, flow: Flow) -> SamplingPlan:
    """The network gets the time of the next state."""
    return replace(plan, times=np.append(plan.times[1:], flow.network_time(1.0)))


def _middle(plan: SamplingPlan, _: Flow) -> SamplingPlan:
    """At a midpoint the network gets the start time of the step; a step has four rows, the last may have two."""
    rows = np.arange(len(plan.times))
    return replace(plan, times=np.where(np.isin(rows % 4, (1, 2)), plan.times[rows - rows % 4], plan.times))


def _second(plan: SamplingPlan, _: Flow) -> SamplingPlan:
    """At the end of a step the network gets its start time; a step has two rows, the last may have one."""
    rows = np.arange(len(plan.times))
    return replace(plan, times=plan.times[rows - rows % 2])


def _short(plan: SamplingPlan, flow: Flow) -> SamplingPlan:
    """As many times as steps, so one step too few."""
    return _again(plan, flow, count=FEW - 1)


def _scales(flow: Flow) -> bool:
    return abs(flow.network_time(1.0) - 1.0) > SINGULAR


def _sees(flow: Flow) -> bool:
    """Whether the velocity depends on the path."""
    return flow.target != "velocity"


def _whole(flow: Flow) -> bool:
    return flow.target == "velocity"


EVERY = ("heun", "euler", "rk4")

FLOW_FAULTS: tuple[SamplerFault, ...] = (
    SamplerFault("velocity's sign", EVERY, _sign, applies=_whole),
    SamplerFault("time reversed", EVERY, _reversed),
    SamplerFault("from data to noise", EVERY, _backwards, applies=_whole),
    SamplerFault("time not scaled", EVERY, _unscaled, applies=_scales),
    SamplerFault("another path", EVERY, _path, applies=_sees),
    SamplerFault("target mixed up", EVERY, lambda plan, flow: _again(plan, flow, target=_OTHER[plan.target])),
    SamplerFault("Euler for Heun", ("heun",), lambda plan, flow: _again(plan, flow, "euler")),
    SamplerFault("Heun for Runge and Kutta", ("rk4",), lambda plan, flow: _again(plan, flow, "heun")),
    SamplerFault("time of the step's beginning at its middle", ("rk4",), _middle),
    SamplerFault("time of the step's beginning at its end", ("heun",), _second),
    SamplerFault("time of the next call", EVERY, _next),
    SamplerFault("a step too few", EVERY, _short),
)


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


def _eta_ignored(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    return process.at(plan.sampler, plan.steps, 0.0, plan.target, plan.changed)


def _noise_of_the_clipped(plan: SamplingPlan, process: Scheduled) -> SamplingPlan:
    """The predicted noise recomputed from the clipped state."""
    return process.at("ddim-textbook", plan.steps, plan.eta, plan.target, plan.changed)


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
    SamplerFault("clipping forgotten", BOTH, lambda plan, _: plan, lambda clean: clean, _clips),
    SamplerFault("noise of the clipped state", ("ddim",), _noise_of_the_clipped, applies=_clips),
    SamplerFault("linspace for leading", BOTH, _spacing),
    SamplerFault("trailing for leading", BOTH, _trailing, applies=_spaced),
    SamplerFault("steps_offset forgotten", BOTH, _offset, applies=_offsets),
    SamplerFault("last alpha not one", ("ddim",), _end),
    SamplerFault("large variance for small", ("ddpm",), _variance),
    SamplerFault("scaled betas for linear", BOTH, _betas, applies=_computed),
    SamplerFault("timesteps off by one", BOTH, _later),
    SamplerFault("time of the next step", BOTH, _one_early),
    SamplerFault("noise on the last step", ("ddpm",), _noise_at_the_end),
    SamplerFault("noise left out", ("ddpm",), lambda plan, _: _with_noise(plan, 0.0)),
    SamplerFault("eta ignored", ("ddim",), _eta_ignored),
)


def faults_of(process: Process) -> tuple[SamplerFault, ...]:
    """The known bugs of a scheduler, of a flow, or of a checkpoint's own diffusion."""
    if isinstance(process, Scheduled):
        known = SCHEDULER_FAULTS
    elif isinstance(process, Flow):
        known = FLOW_FAULTS
    else:
        known = SAMPLER_FAULTS
    return tuple(fault for fault in known if fault.applies(process))
