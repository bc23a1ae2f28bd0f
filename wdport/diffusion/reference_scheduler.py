"""DDPM and DDIM of diffusers as plain loops in numpy, which return the state after every step.

The plans of :mod:`wdport.diffusion.scheduler` are compared with it, so it shares no code with them: it numbers the
steps as the library does, from T - 1 to 0, and writes each update as in the papers. Computes in the dtype of x_T.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import cos, exp, pi
from typing import Any

import numpy as np

from wdport.diffusion.process import Run
from wdport.diffusion.schedules import Array

Network = Callable[[Array, Array], Array]
Document = Mapping[str, Any]
"""The fields of :class:`wdport.diffusion.scheduler.Scheduler`."""


def scheduler_steps(document: Document, count: int) -> list[int]:
    """The library's timesteps, falling."""
    last = document["num_train_timesteps"]
    if document["timestep_spacing"] == "leading":
        return [i * (last // count) + document["steps_offset"] for i in range(count)][::-1]
    if document["timestep_spacing"] == "linspace":
        return [round(float(value)) for value in np.linspace(0, last - 1, count)][::-1]
    return [round(last - i * last / count) - 1 for i in range(count)]


def scheduler_ddpm(
    document: Document, network: Network, run: Run, steps: Sequence[int], init: Array, tape: Array
) -> list[Array]:
    """Ancestral sampling (arXiv 2006.11239, eqs. 6 and 7) over ``steps``, which count from 1 here."""
    bars, x, states = _bars(document), init, []
    timesteps = [step - 1 for step in steps]
    for i, t in enumerate(timesteps):
        bar = bars[t]
        before = bars[timesteps[i + 1]] if i + 1 < len(timesteps) else 1.0
        clean, _ = _seen(document, run, bar, x, network(x, np.full(len(x), t, x.dtype)))
        beta = 1.0 - bar / before
        x = np.sqrt(before) * beta / (1.0 - bar) * clean + np.sqrt(1.0 - beta) * (1.0 - before) / (1.0 - bar) * x
        if t > 0:
            small = (1.0 - before) / (1.0 - bar) * beta
            variance = beta if document["variance_type"] == "fixed_large" else small
            if variance > 0.0:
                x = x + np.sqrt(variance) * tape[i]
        x = x.astype(init.dtype)
        states.append(x)
    return states


def scheduler_ddim(
    document: Document, network: Network, run: Run, steps: Sequence[int], init: Array, tape: Array
) -> list[Array]:
    """DDIM (arXiv 2010.02502, eqs. 12 and 16), which goes down by the stride, wherever the next step is."""
    bars, x, states = _bars(document), init, []
    stride, slot = document["num_train_timesteps"] // len(steps), 0
    for step in steps:
        t = step - 1
        bar = bars[t]
        final = 1.0 if document["set_alpha_to_one"] else bars[0]
        before = bars[t - stride] if t - stride >= 0 else final
        clean, noise = _seen(document, run, bar, x, network(x, np.full(len(x), t, x.dtype)))
        sigma = run.eta * np.sqrt((1.0 - before) / (1.0 - bar) * (1.0 - bar / before))
        x = np.sqrt(before) * clean + np.sqrt(1.0 - before - sigma**2) * noise
        if sigma > 0.0:
            x = x + sigma * tape[slot]
            slot += 1
        x = x.astype(init.dtype)
        states.append(x)
    return states


def _seen(document: Document, run: Run, bar: float, x: Array, made: Array) -> tuple[Array, Array]:
    """The predicted clean state, clipped if configured, and the predicted noise."""
    a, s = np.sqrt(bar), np.sqrt(1.0 - bar)
    if run.target == "noise":
        clean, noise = (x - s * made) / a, made
    elif run.target == "sample":
        clean, noise = made, (x - a * made) / s
    else:
        clean, noise = a * x - s * made, a * made + s * x
    limit = document["clip"]
    return (clean if limit is None else np.clip(clean, -limit, limit)), noise


def _bars(document: Document) -> list[float]:
    """The running products of 1 - beta."""
    count, start, end = (document[name] for name in ("num_train_timesteps", "beta_start", "beta_end"))
    betas, name = document["trained_betas"], document["beta_schedule"]
    if betas is None:
        ramp = [i / (count - 1) if count > 1 else 0.0 for i in range(count)]
        if name == "linear":
            betas = [start + u * (end - start) for u in ramp]
        elif name == "scaled_linear":
            betas = [(start**0.5 + u * (end**0.5 - start**0.5)) ** 2 for u in ramp]
        elif name == "sigmoid":
            betas = [start + (end - start) / (1.0 + exp(6.0 - 12.0 * u)) for u in ramp]
        else:
            square = [cos((i / count + 0.008) / 1.008 * pi / 2) ** 2 for i in range(count + 1)]
            betas = [min(1 - square[i + 1] / square[i], 0.999) for i in range(count)]
    bars, product = [], 1.0
    for beta in betas:
        product *= 1.0 - beta
        bars.append(product)
    return bars
