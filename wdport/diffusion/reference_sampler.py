"""The checkpoint's own samplers as plain loops in numpy, which return the state after every step.

The port's sampling is compared with it, so it shares no code with plans and scans: each update follows the formulas of
the public code, step by step. Computes in the dtype of x_T.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wdport.diffusion.reference_solvers import Change, Network, Noise, walk
from wdport.diffusion.schedules import NoiseSchedule
from wdport.mapping.arrays import Array


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
    network: Network, schedule: NoiseSchedule, target: str, steps: Iterable[int], init: Array, tape: Array | Noise,
    change: Change | None = None, repeats: int = 1,
) -> list[Array]:  # fmt: skip
    """DDPM from ``init`` (B, C, F); ``tape`` (slots, B, C, F) has one slot per step but the last.

    ``steps`` fall from 1000 to 1. If they skip some, beta and alpha are still those of the single step, and
    alpha_bar of the previous step is that of the next in the list. ``change`` and ``repeats`` are as in
    :mod:`wdport.diffusion.reference_solvers`.
    """
    beta, alpha, alpha_bar = (np.asarray(values).astype(init.dtype) for values in schedule)
    one = init.dtype.type(1.0)

    def step(x: Array, t: int, t_prev: int) -> tuple[Array, float]:
        prediction = _prediction(network, target, alpha_bar[t], x, t, change)
        if target == "noise":
            mean = (x - beta[t] / np.sqrt(one - alpha_bar[t]) * prediction) / np.sqrt(alpha[t])
        else:
            alpha_bar_prev = alpha_bar[t_prev] if t_prev > 0 else one
            of_x0 = np.sqrt(alpha_bar_prev) * beta[t] / (one - alpha_bar[t])
            of_x = np.sqrt(alpha[t]) * (one - alpha_bar_prev) / (one - alpha_bar[t])
            mean = of_x0 * prediction + of_x * x
        return mean, np.sqrt(beta[t]) if t_prev > 0 else 0.0

    return walk(step, list(steps), alpha_bar, init, tape, repeats)


def ddim_states(
    network: Network, schedule: NoiseSchedule, target: str, steps: Iterable[int], init: Array, eta: float,
    tape: Array | Noise, change: Change | None = None, repeats: int = 1,
) -> list[Array]:  # fmt: skip
    """DDIM from ``init`` (B, C, F); with ``eta`` above 0, ``tape`` has one slot per step but the last."""
    beta, _, alpha_bar = (np.asarray(values).astype(init.dtype) for values in schedule)
    one = init.dtype.type(1.0)

    def step(x: Array, t: int, t_prev: int) -> tuple[Array, float]:
        alpha_bar_prev = alpha_bar[t_prev] if t_prev > 0 else one
        prediction = _prediction(network, target, alpha_bar[t], x, t, change)
        if target == "noise":
            noise = prediction
            x0 = (x - np.sqrt(one - alpha_bar[t]) * noise) / np.sqrt(alpha_bar[t])
        else:
            x0 = prediction
            noise = (x - np.sqrt(alpha_bar[t]) * x0) / np.sqrt(one - alpha_bar[t])
        mean = np.sqrt(alpha_bar_prev) * x0 + np.sqrt(one - alpha_bar_prev) * noise
        sigma = init.dtype.type(eta) * np.sqrt((one - alpha_bar_prev) / (one - alpha_bar[t])) * np.sqrt(beta[t])
        return mean, sigma if t_prev > 0 else 0.0

    return walk(step, list(steps), alpha_bar, init, tape, repeats)


def _prediction(network: Network, target: str, bar: Array, x: Array, step: int, change: Change | None) -> Array:
    """The network's prediction, or the one that belongs to the changed clean state."""
    output = network(x, np.full(len(x), step, x.dtype) / x.dtype.type(1000.0))
    if change is None:
        return output
    a, s = np.sqrt(bar), np.sqrt(1.0 - bar)
    if target != "noise":
        return change(output)
    changed: Array = (x - a * change((x - s * output) / a)) / s
    return changed
