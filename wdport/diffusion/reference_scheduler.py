"""DDPM and DDIM of diffusers as plain loops in numpy, which return the state after every step.

The plans of :mod:`wdport.diffusion.scheduler` are compared with it, so it shares no code with them: it numbers the
steps as the library does, from T - 1 to 0, and writes each update as in the papers. Computes in the dtype of x_T.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, exp, pi, sqrt
from typing import Any

import numpy as np

from wdport.diffusion.process import Run
from wdport.diffusion.reference_solvers import Change, Network, Noise, clean_and_noise, walk
from wdport.diffusion.schedules import Array

Document = Mapping[str, Any]
"""The fields of :class:`wdport.diffusion.scheduler.Scheduler`."""


def scheduler_steps(document: Document, count: int) -> list[int]:
    """The library's timesteps, falling."""
    last = document["num_train_timesteps"]
    if document["timestep_spacing"] == "leading":
        return [i * (last // count) + document["steps_offset"] for i in range(count)][::-1]
    if document["timestep_spacing"] == "linspace":
        return [round(float(value)) for value in np.linspace(0, last - 1, count)][::-1]
    falling = np.arange(last, 0, -last / count)  # halves are rounded as this sum of the library's leaves them
    return [round(float(value)) - 1 for value in falling[:count]]


def scheduler_ddpm(
    document: Document, network: Network, run: Run, steps: Sequence[int], init: Array, tape: Array | Noise,
    change: Change | None = None, repeats: int = 1,
) -> list[Array]:  # fmt: skip
    """Ancestral sampling (arXiv 2006.11239, eqs. 6 and 7) over ``steps``, which count from 1 here."""
    bars = [1.0, *_bars(document)]

    def step(x: Array, t: int, then: int) -> tuple[Array, float]:
        bar, before = bars[t], bars[then]
        clean, _ = _seen(document, run, bar, x, network(x, np.full(len(x), t - 1, x.dtype)), change)
        beta = 1.0 - bar / before
        mean = np.sqrt(before) * beta / (1.0 - bar) * clean + np.sqrt(1.0 - beta) * (1.0 - before) / (1.0 - bar) * x
        small = (1.0 - before) / (1.0 - bar) * beta
        variance = beta if document["variance_type"] == "fixed_large" else small
        return mean, np.sqrt(variance) if t > 1 else 0.0

    return walk(step, steps, np.array(bars), init, tape, repeats)


def scheduler_ddim(
    document: Document, network: Network, run: Run, steps: Sequence[int], init: Array, tape: Array | Noise,
    change: Change | None = None, repeats: int = 1,
) -> list[Array]:  # fmt: skip
    """DDIM (arXiv 2010.02502, eqs. 12 and 16), which goes down by the stride, wherever the next step is."""
    bars = [1.0, *_bars(document)]
    stride = document["num_train_timesteps"] // len(steps)

    def step(x: Array, t: int, _: int) -> tuple[Array, float]:
        bar = bars[t]
        final = 1.0 if document["set_alpha_to_one"] else bars[1]
        before = bars[t - stride] if t > stride else final
        clean, noise = _seen(document, run, bar, x, network(x, np.full(len(x), t - 1, x.dtype)), change)
        sigma = run.eta * np.sqrt((1.0 - before) / (1.0 - bar) * (1.0 - bar / before))
        return np.sqrt(before) * clean + np.sqrt(1.0 - before - sigma**2) * noise, sigma

    return walk(step, steps, np.array(bars), init, tape, repeats)


def _seen(
    document: Document, run: Run, bar: float, x: Array, made: Array, change: Change | None
) -> tuple[Array, Array]:
    """The predicted clean state, clipped if configured and then changed, and the predicted noise."""
    clean, noise = clean_and_noise(run.target, sqrt(bar), sqrt(1.0 - bar), x, made)
    limit = document["clip"]
    clean = clean if limit is None else np.clip(clean, -limit, limit)
    return (clean if change is None else change(clean)), noise


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
