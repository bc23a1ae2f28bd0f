"""Known bugs of ports of a flow, each of which turns a correct plan into that of a faulty port."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wdport.diffusion.faults import SamplerFault
from wdport.diffusion.flow import FEW, SINGULAR, Flow
from wdport.diffusion.plans import SamplingPlan
from wdport.diffusion.sampler_steps import OUTPUT

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
