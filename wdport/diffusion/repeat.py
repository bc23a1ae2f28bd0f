"""Make a plan that takes every step several times.

After each repeat but the last, noise returns the state to its previous noise level, and the step is taken again, so
that known and filled-in values fit each other (arXiv 2201.09865, alg. 1).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wdport.diffusion.plans import Plan
from wdport.diffusion.schedules import NoiseSchedule
from wdport.diffusion.updates import NOISE, STATE
from wdport.errors import UsageError


def repeated(plan: Plan, schedule: NoiseSchedule, times: int) -> Plan:
    """``plan`` with every step but the last taken ``times`` times; the same plan for 1.

    Raises :class:`UsageError` for samplers whose rows depend on earlier rows, such as Heun's.
    """
    if isinstance(times, bool) or not isinstance(times, (int, np.integer)) or times < 1:
        raise UsageError("resample", f"invalid count {times!r}", "give 1 or more")
    if times == 1:
        return plan
    if np.any(plan.coefficients[:, 1:]):
        what = f"{plan.sampler} cannot repeat single steps"
        raise UsageError("resample", what, "take ddpm or ddim, or resample once")
    alpha_bar = np.asarray(schedule.alpha_bar, np.float64)
    back = plan.coefficients.copy()
    before = np.append(alpha_bar[plan.steps[1:]], 1.0)
    ratio = np.sqrt(alpha_bar[plan.steps] / before)
    back[:, STATE] *= ratio[:, None]
    back[:, STATE, NOISE] = np.sqrt(back[:, STATE, NOISE] ** 2 + 1.0 - ratio**2)
    rows = [np.concatenate([np.tile(again, (times - 1, 1, 1)), once[None]])
            for again, once in zip(back[:-1], plan.coefficients[:-1], strict=True)]  # fmt: skip
    count = [times] * (len(plan.steps) - 1) + [1]
    steps, network_times, clean = (np.repeat(values, count, axis=0) for values in (plan.steps, plan.times, plan.clean))
    coefficients = np.concatenate([*rows, plan.coefficients[-1:]])
    return replace(plan, steps=steps, times=network_times, clean=clean, coefficients=coefficients)
