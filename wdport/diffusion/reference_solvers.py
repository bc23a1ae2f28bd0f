"""The published samplers as plain loops in numpy, and the loop over steps that every plain sampler shares.

The plans of :mod:`wdport.diffusion.updates` are compared with it, so it shares no code with them: it writes each method
as its paper does, over the clean state and the noise computed from the prediction at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import exp, expm1, inf, log, sqrt

import numpy as np

from wdport.diffusion.schedules import Array

Network = Callable[[Array, Array], Array]
Change = Callable[[Array], Array]
"""Maps the predicted clean state to the one that is used."""

Noise = Callable[[int], Array]
"""The number of a draw, step + 1024 for every earlier draw of that step, to standard normal noise (B, *shape)."""

Step = Callable[[Array, int, int], tuple[Array, float]]
"""(state, step, the next visited step or 0) to the next state's mean and the deviation of its noise."""

Split = Callable[[Array, int], tuple[Array, Array]]
"""(state, step) to the clean state and the noise."""


def walk(
    step: Step, steps: Sequence[int], bars: Array, init: Array, noise: Noise | Array, repeats: int = 1
) -> list[Array]:
    """The states after each of ``steps``. ``bars`` are alpha_bar by step, and ``noise`` may be a tape, which has a slot
    (B, *shape) for every noisy step.

    With ``repeats`` every step but the last is taken that often, and noise returns the state to its level between two
    times (arXiv 2201.09865, alg. 1): both noises of such a step are one draw with their common deviation.
    """
    x, states = init, []
    draw = _slots(noise) if isinstance(noise, np.ndarray) else noise
    for t, then in zip(steps, [*steps[1:], 0], strict=True):
        for again in range(repeats if then else 1):
            mean, deviation = step(x, t, then)
            if then and again + 1 < repeats:
                ratio = sqrt(bars[t] / bars[then])
                mean, deviation = ratio * mean, sqrt((ratio * deviation) ** 2 + 1.0 - ratio**2)
            if deviation > 0.0:
                mean = mean + init.dtype.type(deviation) * draw(t + 1024 * again).astype(init.dtype)
            x = mean.astype(init.dtype)
            states.append(x)
    return states


def _slots(tape: Array) -> Noise:
    slot = count()
    return lambda _: np.asarray(tape[next(slot)])


def solver_states(
    sampler: str, network: Network, bars: Array, times: Array, target: str, steps: Sequence[int], init: Array,
    noise: Noise | Array, eta: float = 0.0, change: Change | None = None, repeats: int = 1,
) -> list[Array]:  # fmt: skip
    """The states of one of :data:`SOLVERS` after each of ``steps``; ``times`` are the network's times by step."""

    def split(x: Array, t: int) -> tuple[Array, Array]:
        a, s = sqrt(bars[t]), sqrt(1.0 - bars[t])
        prediction = network(x, np.full(len(x), times[t], x.dtype))
        clean, predicted = clean_and_noise(target, a, s, x, prediction)
        if change is None:
            return clean, predicted
        changed = change(clean)
        return changed, (x - a * changed) / s

    level = {t: (sqrt(bars[t]), sqrt(1.0 - bars[t])) for t in steps} | {0: (1.0, 0.0)}
    return walk(SOLVERS[sampler](split, level, eta), steps, bars, init, noise, repeats)


def clean_and_noise(target: str, a: float, s: float, x: Array, prediction: Array) -> tuple[Array, Array]:
    """The clean state and the noise of x = a clean + s noise, from a prediction of either, or of a noise - s clean."""
    if target == "noise":
        return (x - s * prediction) / a, prediction
    if target == "sample":
        return prediction, (x - a * prediction) / s
    return a * x - s * prediction, a * prediction + s * x


def solver_steps(bars: Array, number: int, last: int) -> list[int]:
    """The steps of SDE-DPM-Solver++: evenly spaced in log(signal / noise), from the last of ``last`` steps whose signal
    is at least 0.03 to 1; where two are the same step, the earlier one moves up."""
    start = max((t for t in range(1, last + 1) if sqrt(bars[t]) >= 0.03), default=last)
    ratio = {t: log(bars[t] / (1.0 - bars[t])) for t in range(1, start + 1)}
    chosen: list[int] = []
    for i in reversed(range(number)):
        share = i / (number - 1) if number > 1 else 0.0
        goal = ratio[start] + share * (ratio[1] - ratio[start])
        nearest = min(ratio, key=lambda t: (abs(ratio[t] - goal), t))
        chosen.append(max(nearest, chosen[-1] + 1) if chosen else nearest)
    return [min(t, start - i) for i, t in enumerate(reversed(chosen))]


Levels = dict[int, tuple[float, float]]
"""Signal and noise by step; 0 is the end."""


def _ddim(split: Split, level: Levels, eta: float) -> Step:
    """arXiv 2010.02502, eqs. 12 and 16."""

    def step(x: Array, t: int, then: int) -> tuple[Array, float]:
        (a, s), (b, r) = level[t], level[then]
        clean, noise = split(x, t)
        sigma = eta * r / s * sqrt(1.0 - (a / b) ** 2)
        return b * clean + sqrt(r**2 - sigma**2) * noise, sigma

    return step


def _solver(split: Split, level: Levels, stochastic: bool) -> Step:
    """arXiv 2211.01095, alg. 2, and its stochastic form, eq. 18."""
    before: list[tuple[Array, float]] = []

    def step(x: Array, t: int, then: int) -> tuple[Array, float]:
        (a, s), (b, r) = level[t], level[then]
        clean, _ = split(x, t)
        h = log(b / r) - log(a / s) if then else inf
        estimate = clean
        if before and then:
            previous, earlier = before.pop()
            share = h / (2.0 * earlier)  # 1 / (2 r) of the paper
            estimate = (1.0 + share) * clean - share * previous
        before.append((clean, h))
        if not stochastic:
            return r / s * x - b * expm1(-h) * estimate, 0.0
        return r / s * exp(-h) * x - b * expm1(-2.0 * h) * estimate, r * sqrt(-expm1(-2.0 * h))

    return step


def _heun(split: Split, level: Levels, _: float) -> Step:
    """arXiv 2206.00364, alg. 1, in y = x / signal and sigma = noise / signal, where dy / dsigma is the noise."""

    def step(x: Array, t: int, then: int) -> tuple[Array, float]:
        (a, s), (b, r) = level[t], level[then]
        h, slope = r / b - s / a, split(x, t)[1]
        y = x / a + h * slope
        if then:
            y = x / a + h * (slope + split(b * y, then)[1]) / 2.0
        return b * y, 0.0

    return step


def _euler(split: Split, level: Levels, _: float) -> Step:
    """arXiv 2011.13456, eq. 13, in the logarithm of the signal: dx = (x - noise / its level) dlog."""

    def step(x: Array, t: int, then: int) -> tuple[Array, float]:
        (a, s), (b, _) = level[t], level[then]
        return x + log(b / a) * (x - split(x, t)[1] / s), 0.0

    return step


SOLVERS: dict[str, Callable[[Split, Levels, float], Step]] = {
    "ddim-textbook": _ddim,
    "dpm-solver++": lambda split, level, _: _solver(split, level, stochastic=False),
    "sde-dpm-solver++": lambda split, level, _: _solver(split, level, stochastic=True),
    "heun": _heun,
    "euler": _euler,
}
