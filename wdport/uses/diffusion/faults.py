"""Known bugs of samplers, each of which turns a correct plan into that of a faulty port, and the canary's.

They measure what a comparison of trajectories can find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wdport.models.interface import Array
from wdport.uses.diffusion.diffusion import Diffusion
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.run_plan import Change
from wdport.uses.diffusion.sampler_updates import TARGETS

SAMPLERS = ("ddpm", "ddim")
"""Those of a checkpoint's own diffusion."""


@dataclass(frozen=True)
class SamplerFault:
    """One known bug of these ``samplers``.

    ``apply(plan, process)`` is the faulty port's plan; ``change``, if given, changes the clean state at every step.
    ``applies(process)`` returns whether a process can have the bug.
    """

    name: str
    samplers: tuple[str, ...]
    apply: Callable[[SamplingPlan, Any], SamplingPlan]
    change: Change | None = None
    applies: Callable[[Any], bool] = lambda _: True


def again(
    plan: SamplingPlan,
    process: Diffusion,
    sampler: str = "",
    steps: Array | None = None,
    target: str = "",
    changed: bool = False,
) -> SamplingPlan:
    """The plan with other arguments."""
    plan_steps = plan.steps if steps is None else steps
    return process.at(sampler or plan.sampler, plan_steps, plan.eta, target or plan.target, changed)


def _other_target(plan: SamplingPlan, process: Diffusion) -> SamplingPlan:
    return again(plan, process, target=next(target for target in TARGETS if target != plan.target))


TARGET_MIXED_UP = SamplerFault("target mixed up", SAMPLERS, _other_target)
"""The canary's."""
