"""A noise schedule, steps and settings in; every sampler's updates out, as rows of coefficients.

An update is affine in five arrays of the state's shape, so it is written here as the formula itself over five
unit vectors: `x` the state, `base` and `memory` what an earlier row kept, `out` the network's output at
this row's step, `z` standard normal noise. A row is three such forms: the next state, base and memory.

Sources: DDPM, arXiv 2006.11239, alg. 2; DDIM, arXiv 2010.02502, eq. 12; DPM-Solver++(2M), arXiv 2211.01095,
alg. 2; Heun in x / sqrt(alpha_bar), arXiv 2206.00364, alg. 1; probability flow, arXiv 2011.13456, eq. 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import log, sqrt
from typing import NamedTuple

import numpy as np

from wdport.diffusion.schedules import Array
from wdport.errors import UsageError

STATE, BASE, MEMORY, OUTPUT, NOISE = range(5)
x, base, memory, out, z = np.eye(5)
NOTHING = np.zeros(5)

Row = tuple[int, tuple[Array, Array, Array]]
"""The step that the network is called at; the next state, base and memory."""


class Point(NamedTuple):
    """One step's numbers: ``signal`` is sqrt(alpha_bar), ``noise`` is sqrt(1 - alpha_bar)."""

    step: int
    signal: float
    noise: float
    beta: float
    alpha: float


END = Point(0, 1.0, 0.0, 0.0, 1.0)
"""Where every sampler ends: no noise is left."""

Updates = Callable[[Sequence[Point], str, float], Iterator[Row]]
"""(points ending in :data:`END`, target, eta) to rows."""


def denoised(point: Point, target: str) -> Array:
    """The clean state as the network sees it."""
    return (x - point.noise * out) / point.signal if target == "noise" else out


def noise(point: Point, target: str) -> Array:
    """The noise as the network sees it."""
    return out if target == "noise" else (x - point.signal * out) / point.noise


def ddpm(points: Sequence[Point], target: str, _: float) -> Iterator[Row]:
    """The checkpoint's DDPM: the noise has the deviation sqrt(beta), not the posterior's.

    Made for every step in turn; over a strided list beta and alpha stay those of the single step.
    """
    for now, then in pairwise(points):
        if target == "noise":
            mean = (x - now.beta / now.noise * out) / sqrt(now.alpha)
        else:
            of_denoised = then.signal * now.beta / now.noise**2
            mean = of_denoised * out + sqrt(now.alpha) * then.noise**2 / now.noise**2 * x
        yield now.step, (mean + (sqrt(now.beta) * z if then.step else 0.0), NOTHING, NOTHING)


def ddim(points: Sequence[Point], target: str, eta: float) -> Iterator[Row]:
    """The checkpoint's DDIM: no correction of the direction for eta, and the single step's beta when striding."""
    for now, then in pairwise(points):
        sigma = eta * then.noise / now.noise * sqrt(now.beta)
        yield now.step, (_towards(now, then, target, then.noise) + sigma * z, NOTHING, NOTHING)


def ddim_textbook(points: Sequence[Point], target: str, eta: float) -> Iterator[Row]:
    """DDIM as published: sigma from the strided alpha_bar, and the direction shortened by it."""
    for now, then in pairwise(points):
        sigma = eta * then.noise / now.noise * sqrt(1.0 - (now.signal / then.signal) ** 2)
        if sigma > then.noise:
            what = f"{eta:g} asks for more noise than is left after step {now.step}"
            raise UsageError("eta", what, "give at most 1")
        direction = sqrt(then.noise**2 - sigma**2)
        yield now.step, (_towards(now, then, target, direction) + sigma * z, NOTHING, NOTHING)


def _towards(now: Point, then: Point, target: str, direction: float) -> Array:
    return then.signal * denoised(now, target) + direction * noise(now, target)


def dpm_solver(points: Sequence[Point], target: str, _: float) -> Iterator[Row]:
    """DPM-Solver++(2M): the memory is the previous denoised; first order at the first step and at the end."""
    before: float | None = None
    for now, then in pairwise(points):
        estimate = denoised(now, target)
        if then.step:
            length = log(then.signal / then.noise) - log(now.signal / now.noise)
            if before is not None:
                estimate = estimate + (estimate - memory) * length / (2.0 * before)
            before = length
        shrink = then.noise / now.noise
        state = shrink * x + (then.signal - now.signal * shrink) * estimate
        yield now.step, (state, NOTHING, denoised(now, target))


def heun(points: Sequence[Point], target: str, _: float) -> Iterator[Row]:
    """Heun: two rows a step, an Euler step and its correction by the slope at its end; Euler alone at the end."""
    for now, then in pairwise(points):
        slope = noise(now, target)
        scale = then.signal / now.signal
        length = then.noise - scale * now.noise
        yield now.step, (scale * x + length * slope, x, slope)
        if then.step:
            mean_slope = (memory + noise(then, target)) / 2.0
            yield then.step, (scale * base + length * mean_slope, NOTHING, NOTHING)


def euler(points: Sequence[Point], target: str, _: float) -> Iterator[Row]:
    """Euler on the probability flow: dx = (x - noise / sqrt(1 - alpha_bar)) d log sqrt(alpha_bar)."""
    for now, then in pairwise(points):
        length = log(then.signal / now.signal)
        yield now.step, (x + length * (x - noise(now, target) / now.noise), NOTHING, NOTHING)


SAMPLERS: dict[str, Updates] = {
    "ddpm": ddpm,
    "ddim": ddim,
    "ddim-textbook": ddim_textbook,
    "dpm-solver++": dpm_solver,
    "heun": heun,
    "euler": euler,
}
WITH_ETA = ("ddim", "ddim-textbook")
