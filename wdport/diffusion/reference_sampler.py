"""The checkpoint's own samplers as plain loops in numpy, which return the state after every step.

The port's sampling is compared with it, so it shares no code with plans and scans: each update follows the formulas of
the public code, step by step. Computes in the dtype of x_T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from wdport.diffusion.schedules import NoiseSchedule
from wdport.mapping.arrays import Array

Network = Callable[[Array, Array], Array]
"""(state (B, C, F), time (B,) = step / 1000) to the prediction (B, C, F)."""


def ddim_step_list(count: int) -> list[int]:
    """The steps that DDIM visits for ``count`` steps: strided from 1000, ending with 1."""
    steps, step = [], 1000
    while step > 0:
        steps.append(step)
        step -= 1000 // count
    if 1 not in steps:
        steps.append(1)
    return steps


def ddpm_states(
    network: Network, schedule: NoiseSchedule, target: str, steps: Iterable[int], init: Array, tape: Array
) -> list[Array]:
    """DDPM from ``init`` (B, C, F); ``tape`` (slots, B, C, F) has one slot per step but the last.

    ``steps`` fall from 1000 to 1. If they skip some, beta and alpha are still those of the single step, and
    alpha_bar of the previous step is that of the next in the list.
    """
    x, states, slot = init, [], 0
    beta, alpha, alpha_bar = (np.asarray(values).astype(init.dtype) for values in schedule)
    one = init.dtype.type(1.0)
    listed = list(steps)
    for i, t in enumerate(listed):
        t_prev = listed[i + 1] if i + 1 < len(listed) else 0
        prediction = network(x, _time(t, x))
        if target == "noise":
            mean = (x - beta[t] / np.sqrt(one - alpha_bar[t]) * prediction) / np.sqrt(alpha[t])
        else:
            alpha_bar_prev = alpha_bar[t_prev] if t_prev > 0 else one
            of_x0 = np.sqrt(alpha_bar_prev) * beta[t] / (one - alpha_bar[t])
            of_x = np.sqrt(alpha[t]) * (one - alpha_bar_prev) / (one - alpha_bar[t])
            mean = of_x0 * prediction + of_x * x
        if t_prev > 0:
            mean = mean + np.sqrt(beta[t]) * tape[slot].astype(init.dtype)
            slot += 1
        x = mean
        states.append(x)
    return states


def ddim_states(
    network: Network, schedule: NoiseSchedule, target: str, steps: Iterable[int], init: Array, eta: float, tape: Array
) -> list[Array]:
    """DDIM from ``init`` (B, C, F); with ``eta`` above 0, ``tape`` has one slot per step but the last."""
    x, states, slot = init, [], 0
    beta, _, alpha_bar = (np.asarray(values).astype(init.dtype) for values in schedule)
    one = init.dtype.type(1.0)
    listed = list(steps)
    for i, t in enumerate(listed):
        t_prev = listed[i + 1] if i + 1 < len(listed) else 0
        alpha_bar_prev = alpha_bar[t_prev] if t_prev > 0 else one
        prediction = network(x, _time(t, x))
        if target == "noise":
            noise = prediction
            x0 = (x - np.sqrt(one - alpha_bar[t]) * noise) / np.sqrt(alpha_bar[t])
        else:
            x0 = prediction
            noise = (x - np.sqrt(alpha_bar[t]) * x0) / np.sqrt(one - alpha_bar[t])
        x = np.sqrt(alpha_bar_prev) * x0 + np.sqrt(one - alpha_bar_prev) * noise
        if eta > 0 and t_prev > 0:
            sigma = init.dtype.type(eta) * np.sqrt((one - alpha_bar_prev) / (one - alpha_bar[t])) * np.sqrt(beta[t])
            x = x + sigma * tape[slot].astype(init.dtype)
            slot += 1
        states.append(x)
    return states


def _time(step: int, x: Array) -> Array:
    time: Array = np.full(len(x), step, x.dtype) / x.dtype.type(1000.0)
    return time
