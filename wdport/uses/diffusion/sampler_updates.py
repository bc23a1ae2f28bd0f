"""The updates of every sampler, as rows of coefficients.

An update is affine in a few arrays of the state's shape, so it is written here as the formula itself over unit vectors:
`x` the state, `base` and `memory` values kept by an earlier row, `out` the network's output at this row's step, `z`
standard normal noise. A row is three such forms: the next state, base and memory. If the network's estimate of the
clean state is changed before it is used, as by clipping, `clean` is the changed state. The step length of a Langevin
corrector, 2 (|z| / |out|)^2 for every sample, multiplies the output in `langevin` and its root the noise in
`langevin_z`; the deviation that a network with a learned variance predicts multiplies the noise in `learned_z`.

Sources: DDPM, arXiv 2006.11239, alg. 2; DDIM, arXiv 2010.02502, eq. 12; DPM-Solver++(2M) and its stochastic form,
arXiv 2211.01095, alg. 2 and eq. 18; UniPC, arXiv 2302.04867, alg. 1; Euler and Heun in x / sqrt(alpha_bar), arXiv
2206.00364, alg. 1; probability flow, arXiv 2011.13456, eq. 13; predictor and corrector, the same, algs. 2 and 4;
consistency models, arXiv 2303.01469, alg. 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, expm1, log, sqrt
from typing import NamedTuple

import numpy as np

from wdport.base.errors import UsageError
from wdport.models.interface import Array

STATE, BASE, MEMORY, OUTPUT, NOISE, CLEAN, LANGEVIN, LANGEVIN_NOISE, LEARNED = range(9)
# The order of the terms in diffusion/run_plan.py.
x, base, memory, out, z, clean, langevin, langevin_z, learned_z = np.eye(9)
NOTHING = np.zeros(9)

TARGETS = ("noise", "sample", "velocity")
"""What a network may have been trained to predict: the noise, the clean state, or v = signal * noise - noise level *
clean state (arXiv 2202.00512, appendix D)."""

LEVEL_TARGETS = ("score", "edm")
"""The same for a network that takes noise levels, noise / signal: the score of the state divided by the signal, which
is -noise / level, or the F of arXiv 2206.00364, eq. 7, for data of deviation 1."""

Forms = tuple[Array, Array, Array]
"""The next state, base and memory."""

Row = tuple[int, Forms] | tuple[int, Forms, tuple[float, float]]
"""The step of the network call, the forms, and the logarithms of the deviations between which that of `learned_z`
lies."""


class Point(NamedTuple):
    """One step's numbers: ``signal`` is sqrt(alpha_bar), ``noise`` is sqrt(1 - alpha_bar)."""

    step: int
    signal: float
    noise: float
    beta: float
    alpha: float


END = Point(0, 1.0, 0.0, 0.0, 1.0)
"""The end of every sampler: no noise is left."""


@dataclass(frozen=True)
class View:
    """How an update computes the clean state and the noise: from the network's ``target``, one of :data:`TARGETS`
    or :data:`LEVEL_TARGETS`; ``changed`` if the clean state is changed after the network. ``floor`` is the noise level
    at which a consistency model's prediction is its input, 0 for others."""

    target: str
    changed: bool = False
    floor: float = 0.0

    def predicted(self, point: Point) -> Array:
        """The clean state as predicted by the network."""
        if self.target == "sample":
            return out
        if self.target == "velocity":
            return point.signal * x - point.noise * out
        if self.target == "edm":
            above = point.noise / point.signal - self.floor
            return x / point.signal / (above**2 + 1.0) + above * point.signal * out
        return (x - point.noise * self.predicted_noise(point)) / point.signal

    def denoised(self, point: Point) -> Array:
        """The clean state, changed or not."""
        return clean if self.changed else self.predicted(point)

    def noise(self, point: Point) -> Array:
        """The noise consistent with :meth:`denoised`."""
        if self.changed:
            return (x - point.signal * clean) / point.noise
        return self.predicted_noise(point)

    def predicted_noise(self, point: Point) -> Array:
        """The noise as predicted by the network."""
        if self.target == "noise":
            return out
        if self.target == "score":
            return -point.noise / point.signal * out
        if self.target == "velocity":
            return point.noise * x + point.signal * out
        return (x - point.signal * self.predicted(point)) / point.noise


Updates = Callable[[Sequence[Point], View, float], Iterator[Row]]
"""(points ending without noise, view, eta) to rows."""


def ddpm(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """The checkpoint's DDPM: the noise has the standard deviation sqrt(beta), not that of the posterior.

    Meant for every step in turn; over a strided list beta and alpha are still those of the single step.
    """
    for now, then in pairwise(points):
        if view.target == "noise":
            mean = (x - now.beta / now.noise * view.noise(now)) / sqrt(now.alpha)
        else:
            of_denoised = then.signal * now.beta / now.noise**2
            mean = of_denoised * view.denoised(now) + sqrt(now.alpha) * then.noise**2 / now.noise**2 * x
        yield now.step, (mean + (sqrt(now.beta) * z if then.step else 0.0), NOTHING, NOTHING)


def ddim(points: Sequence[Point], view: View, eta: float) -> Iterator[Row]:
    """The checkpoint's DDIM: no correction of the direction for eta, and the single step's beta when striding."""
    for now, then in pairwise(points):
        # As the public code has it; ``ddim_textbook`` is the published formula.
        sigma = eta * then.noise / now.noise * sqrt(now.beta)
        yield now.step, (_towards(now, then, view, then.noise) + sigma * z, NOTHING, NOTHING)


def ddim_textbook(points: Sequence[Point], view: View, eta: float) -> Iterator[Row]:
    """DDIM as published: sigma from the strided alpha_bar, and the direction shortened by it."""
    for now, then in pairwise(points):
        sigma, direction = shares(now, then, eta)
        yield now.step, (_towards(now, then, view, direction) + sigma * z, NOTHING, NOTHING)


def euler(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """Euler in y = x / signal over sigma = noise / signal, which is DDIM without noise."""
    return ddim_textbook(points, view, 0.0)


def euler_ancestral(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """Euler to a lower noise level, and noise back to the next one, which is DDIM with eta 1."""
    return ddim_textbook(points, view, 1.0)


def shares(now: Point, then: Point, eta: float) -> tuple[float, float]:
    """The factors of the new noise and of the kept noise (arXiv 2010.02502, eq. 16)."""
    sigma = eta * then.noise / now.noise * sqrt(1.0 - (now.signal / then.signal) ** 2)
    if sigma > then.noise:
        raise UsageError("eta", f"{eta:g} asks for more noise than is left after step {now.step}", "give at most 1")
    return sigma, sqrt(then.noise**2 - sigma**2)


def _towards(now: Point, then: Point, view: View, direction: float) -> Array:
    return then.signal * view.denoised(now) + direction * view.noise(now)


def dpm_solver(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """DPM-Solver++(2M): the memory is the previous denoised state; first order at the first step and at the end."""
    before: float | None = None
    for now, then in pairwise(points):
        estimate = view.denoised(now)
        # At the end log(signal / noise) is infinite: the step is of first order, and leads to the denoised state.
        if then.step:
            length = log(then.signal / then.noise) - log(now.signal / now.noise)
            if before is not None:
                estimate = estimate + (estimate - memory) * length / (2.0 * before)
            before = length
        shrink = then.noise / now.noise
        state = shrink * x + (then.signal - now.signal * shrink) * estimate
        yield now.step, (state, NOTHING, view.denoised(now))


def sde_dpm_solver(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """SDE-DPM-Solver++(2M): as :func:`dpm_solver` for the reverse stochastic equation, which adds noise in every step
    and so forgets the errors of earlier ones; at the end the denoised state."""
    before: float | None = None
    for now, then in pairwise(points):
        estimate = view.denoised(now)
        if not then.step:
            yield now.step, (then.signal * estimate + then.noise * z, NOTHING, NOTHING)
            return
        length = log(then.signal / then.noise) - log(now.signal / now.noise)
        if before is not None:
            estimate = estimate + (estimate - memory) * length / (2.0 * before)
        before, decay = length, exp(-2.0 * length)
        state = then.noise / now.noise * exp(-length) * x + then.signal * (1.0 - decay) * estimate
        yield now.step, (state + then.noise * sqrt(1.0 - decay) * z, NOTHING, view.denoised(now))


def unipc(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """UniPC of order 2 with B(h) = exp(-h) - 1: a row corrects the state by the estimate at the state itself, and
    predicts the next one. The base is the correction but for that estimate, and the memory the previous estimate."""
    corrected, before = x, 0.0
    for now, then in pairwise(points):
        estimate, shrink = view.denoised(now), then.noise / now.noise
        if not then.step:
            yield now.step, (shrink * corrected + (then.signal - now.signal * shrink) * estimate, NOTHING, NOTHING)
            return
        length = log(then.signal / then.noise) - log(now.signal / now.noise)
        scale = then.signal * expm1(-length)
        step = shrink * corrected - scale * estimate
        # The integrals of the first two terms of the estimate's Taylor series over the step, by B(h).
        first = (1.0 - length / -expm1(-length)) / -length
        second = 2.0 * (first * expm1(-length) / -length - 0.5) / expm1(-length)
        if before:
            # The slope from the previous estimate, over the length of this step.
            slope = (estimate - memory) * length / before
            ratio = -before / length
            share = (first - second) / (1.0 - ratio)
            state = step - scale * 0.5 * slope
            uncorrected = step - scale * (share * slope - (first - share) * estimate)
            weight = first - share
        else:
            state, uncorrected, weight = step, step + scale * 0.5 * estimate, 0.5
        yield now.step, (state, uncorrected, estimate)
        corrected, before = base - scale * weight * view.denoised(then), length


def heun(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """Heun: two rows per step, an Euler step and its correction by the slope at its end; only Euler at the end."""
    for now, then in pairwise(points):
        # Euler in y = x / signal over sigma = noise / signal, where dy / dsigma is the noise, written for x.
        slope = view.noise(now)
        scale = then.signal / now.signal
        length = then.noise - scale * now.noise
        yield now.step, (scale * x + length * slope, x, slope)
        if then.step:
            mean_slope = (memory + view.noise(then)) / 2.0
            yield then.step, (scale * base + length * mean_slope, NOTHING, NOTHING)


def probability_flow(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """Euler on the probability flow over log signal: dx = (x - noise / sqrt(1 - alpha_bar)) d log sqrt(alpha_bar)."""
    for now, then in pairwise(points):
        length = log(then.signal / now.signal)
        yield now.step, (x + length * (x - view.noise(now) / now.noise), NOTHING, NOTHING)


def predictor_corrector(snr: float, corrections: int) -> Updates:
    """The reverse diffusion predictor of a variance-exploding process, after ``corrections`` steps of Langevin dynamics
    with the signal-to-noise ratio ``snr`` at the same level; the end is without noise. For a network that predicts the
    score."""

    def updates(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
        for now, then in pairwise(points):
            for _ in range(corrections):
                # Written for x / signal, whose score the network predicts.
                length, noise = snr**2 * langevin, sqrt(2.0) * snr * langevin_z
                yield now.step, (x + now.signal * (length + noise), NOTHING, NOTHING)
            variance = (now.noise / now.signal) ** 2 - (then.noise / then.signal) ** 2
            mean = x / now.signal + variance * out
            yield now.step, (then.signal * (mean + (sqrt(variance) * z if then.step else 0.0)), NOTHING, NOTHING)

    return updates


def consistency(points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
    """The clean state, and noise back to the next level, of which the part up to ``view.floor`` is thought to be in the
    clean state."""
    for now, then in pairwise(points):
        # With every step of training, the last level is the floor, up to rounding.
        variance = max((then.noise / then.signal) ** 2 - view.floor**2, 0.0)
        noise = sqrt(variance) * z if then.step else 0.0
        yield now.step, (then.signal * (view.denoised(now) + noise), NOTHING, NOTHING)


SAMPLERS: dict[str, Updates] = {
    "ddpm": ddpm,
    "ddim": ddim,
    "ddim-textbook": ddim_textbook,
    "euler": euler,
    "euler-ancestral": euler_ancestral,
    "heun": heun,
    "dpm++2m": dpm_solver,
    "dpm++2m-sde": sde_dpm_solver,
    "unipc": unipc,
    "probability-flow": probability_flow,
}
WITH_ETA = ("ddim", "ddim-textbook")

UNCHANGED = ("predictor-corrector",)
"""Samplers that use the network's output directly, so that the clean state cannot be changed."""
