"""The published samplers, the checkpoint's own and those of flows, as plain loops in numpy that return every state.

The plans of :mod:`wdport.uses.diffusion.sampler_updates` and :mod:`wdport.uses.diffusion.flow` are compared with these
loops, which share no code with plans and scans. The published methods are written as in their papers, over the clean
state and the noise computed from the prediction at each call; the checkpoint's own follow the formulas of the public
code, step by step; those of flows are written as in textbooks, over the velocity. Each computes in the dtype of its
first noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, pairwise
from math import exp, expm1, factorial, inf, log, pi, sqrt

import numpy as np

from wdport.models.interface import Array
from wdport.uses.diffusion.schedules import NoiseSchedule

Network = Callable[[Array, Array], Array]
Change = Callable[[Array], Array]
"""Maps the predicted clean state to the one that is used."""

Noise = Callable[[int], Array]
"""The number of a draw to standard normal noise (B, *shape): the step, and for every earlier draw of that step 1024
more, or the largest step if that is larger."""

Step = Callable[[Array, int, int], tuple[Array, float | Array]]
"""(state, step, the next visited step or 0) to the next state's mean and the deviation of its noise, which may be one
for every value."""

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
    x, states, apart = init, [], max(1024, *steps)
    draw = _slots(noise) if isinstance(noise, np.ndarray) else noise
    for t, then in zip(steps, [*steps[1:], 0], strict=True):
        for again in range(repeats if then else 1):
            mean, deviation = step(x, t, then)
            if then and again + 1 < repeats:
                ratio = sqrt(bars[t] / bars[then])
                mean, deviation = ratio * mean, np.sqrt((ratio * deviation) ** 2 + 1.0 - ratio**2)
            # Only a noisy step draws, so that a tape needs no slot for the others.
            if np.any(deviation):
                # The deviation may be a NumPy float64, which would promote a float32 state.
                mean = mean + np.asarray(deviation, init.dtype) * draw(t + apart * again).astype(init.dtype)
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


def consistency_states(
    denoise: Callable[[Array, int], Array], bars: Array, least: float, steps: Sequence[int], init: Array,
    noise: Noise | Array, change: Change | None = None, repeats: int = 1,
) -> list[Array]:  # fmt: skip
    """Multistep sampling from a consistency model, which predicts the clean state (arXiv 2303.01469, alg. 1);
    ``least`` is its lowest noise level."""

    def step(y: Array, t: int, then: int) -> tuple[Array, float]:
        clean = denoise(y, t)
        if change is not None:
            clean = change(clean)
        signal = sqrt(bars[then])
        level = sqrt(1.0 - bars[then]) / signal
        return signal * clean, signal * sqrt(max(0.0, level**2 - least**2)) if then else 0.0

    return walk(step, steps, bars, init, noise, repeats)


def clean_and_noise(target: str, a: float, s: float, x: Array, prediction: Array) -> tuple[Array, Array]:
    """The clean state and the noise of x = a clean + s noise, from a prediction of either, or of a noise - s clean."""
    if target == "noise":
        return (x - s * prediction) / a, prediction
    if target == "sample":
        return prediction, (x - a * prediction) / s
    if target != "velocity":
        raise ValueError(f"unknown target {target}")
    return a * x - s * prediction, a * prediction + s * x


def solver_steps(bars: Array, number: int, last: int) -> list[int]:
    """The steps of SDE-DPM-Solver++(2M): evenly spaced in log(signal / noise), from the last of ``last`` steps whose
    signal is at least 0.03 to 1; where two are the same step, the earlier one moves up."""
    start = max((t for t in range(1, last + 1) if sqrt(bars[t]) >= 0.03), default=last)
    ratio = {t: log(bars[t] / (1.0 - bars[t])) for t in range(1, start + 1)}
    chosen: list[int] = []
    for i in reversed(range(number)):
        share = i / (number - 1) if number > 1 else 0.0
        goal = ratio[start] + share * (ratio[1] - ratio[start])
        # The smaller step where two are equally near.
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
        # At the end log(signal / noise) is infinite, so the last step is of first order.
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
            # No correction at the end: without noise, the slope there is not defined.
            y = x / a + h * (slope + split(b * y, then)[1]) / 2.0
        return b * y, 0.0

    return step


def _euler(split: Split, level: Levels, ancestral: bool) -> Step:
    """arXiv 2206.00364, eq. 5 in y = x / signal, and the ancestral step of k-diffusion, which goes below the next noise
    level and adds noise back to it."""

    def step(x: Array, t: int, then: int) -> tuple[Array, float]:
        (a, s), (b, r) = level[t], level[then]
        now, after = s / a, r / b
        up = min(after, sqrt(after**2 * (now**2 - after**2) / now**2)) if ancestral else 0.0
        down = sqrt(after**2 - up**2)
        return b * (x / a + (down - now) * split(x, t)[1]), b * up

    return step


def _unipc(split: Split, level: Levels, _: float) -> Step:
    """arXiv 2302.04867, alg. 1 of order 2 with data prediction: the corrector solves for its weights at every step."""
    lam = {t: log(a / s) if s else inf for t, (a, s) in level.items()}
    calls: list[tuple[int, Array]] = []
    start: list[Array] = []

    def slopes(h: float, nodes: list[tuple[int, Array]]) -> tuple[list[float], list[Array]]:
        (s, now), ratios, differences = nodes[0], [], []
        for t, estimate in nodes[1:]:
            ratios.append((lam[t] - lam[s]) / h)
            differences.append((estimate - now) / ratios[-1])
        return ratios, differences

    def weights(h: float, ratios: list[float]) -> Array:
        # int_0^1 exp(h (u - 1)) u^k du, by the recursion of integration by parts, over B(h) / h.
        b, value = expm1(-h), expm1(-h) / -h - 1.0
        right = [value / b]
        for k in range(2, len(ratios) + 1):
            value = value / -h - 1.0 / factorial(k)
            right.append(value * factorial(k) / b)
        return np.linalg.solve([[ratio**k for ratio in ratios] for k in range(len(ratios))], right)

    def moved(x: Array, s: int, t: int, estimate: Array) -> Array:
        (a, n), (b, m) = level[s], level[t]
        return m / n * x + (b - a * m / n) * estimate

    def step(x: Array, t: int, then: int) -> tuple[Array, float]:
        estimate, _ = split(x, t)
        if calls:
            h = lam[t] - lam[calls[-1][0]]
            nodes = [calls[-1], *calls[-2:-1], (t, estimate)]
            ratios, differences = slopes(h, nodes)
            solved = [0.5] if len(ratios) == 1 else weights(h, ratios)
            correction = sum(weight * slope for weight, slope in zip(solved, differences, strict=True))
            x = moved(start[-1], calls[-1][0], t, calls[-1][1]) - level[t][0] * expm1(-h) * correction
        calls.append((t, estimate))
        start.append(x)
        state = moved(x, t, then, estimate)
        if then and len(calls) > 1:
            _, differences = slopes(lam[then] - lam[t], calls[:-3:-1])
            state = state - level[then][0] * expm1(lam[t] - lam[then]) * 0.5 * differences[0]
        return state, 0.0

    return step


def _probability_flow(split: Split, level: Levels, _: float) -> Step:
    """arXiv 2011.13456, eq. 13, in the logarithm of the signal: dx = (x - noise / its level) dlog."""

    def step(x: Array, t: int, then: int) -> tuple[Array, float]:
        (a, s), (b, _) = level[t], level[then]
        return x + log(b / a) * (x - split(x, t)[1] / s), 0.0

    return step


SOLVERS: dict[str, Callable[[Split, Levels, float], Step]] = {
    "ddim-textbook": _ddim,
    "euler": lambda split, level, _: _euler(split, level, ancestral=False),
    "euler-ancestral": lambda split, level, _: _euler(split, level, ancestral=True),
    "heun": _heun,
    "dpm++2m": lambda split, level, _: _solver(split, level, stochastic=False),
    "dpm++2m-sde": lambda split, level, _: _solver(split, level, stochastic=True),
    "unipc": _unipc,
    "probability-flow": _probability_flow,
}


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
    :func:`walk`.
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
        x0, noise = clean_and_noise(target, np.sqrt(alpha_bar[t]), np.sqrt(one - alpha_bar[t]), x, prediction)
        # The public code does not shorten the direction by sigma, and takes beta of the single step when it strides.
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


Velocity = Callable[[Array, float], Array]

FIRST = {"velocity": 0.0, "noise": 1e-3, "sample": 0.0}
"""The time at which a flow begins, by target: at 0 a predicted noise does not determine the data."""


def flow_states(
    sampler: str,
    path: str,
    target: str,
    network: Network,
    network_time: Callable[[float], float],
    steps: int,
    init: Array,
) -> list[Array]:
    """The states from noise ``init`` (B, *shape) to data, in ``steps`` equal steps."""

    def velocity(x: Array, t: float) -> Array:
        output = network(x, np.full(len(x), network_time(t), x.dtype))
        return output if target == "velocity" else _velocity(path, target, x, output, t)

    first = FIRST[target]
    times = [first + (1.0 - first) * i / steps for i in range(steps + 1)]
    states: list[Array] = []
    x = init
    for i, (t, then) in enumerate(pairwise(times)):
        # At time 1 no noise is left from which a velocity could be computed.
        blind = target == "sample" and i == steps - 1
        if blind and sampler == "heun":
            # Data and noise held as predicted, the state at time 1 is the data.
            return [*states, network(x, np.full(len(x), network_time(t), x.dtype)).astype(init.dtype)]
        for state in _METHODS[sampler](velocity, x, t, then - t, blind):
            x = state.astype(init.dtype)
            states.append(x)
    return states


def flow_steps(sampler: str, target: str, steps: int) -> list[int]:
    """For every state, the number of grid times after the preceding call of the network."""
    remaining: list[int] = []
    for left in range(steps, 0, -1):
        last = target == "sample" and left == 1
        remaining += {"euler": [left], "heun": [left] if last else [left, left - 1],
                  "rk4": [left, left] if last else [left, left, left, left - 1]}[sampler]  # fmt: skip
    return remaining


def _velocity(path: str, target: str, x: Array, output: Array, t: float) -> Array:
    """dx/dt of x = a data + s noise."""
    a, s, da, ds = (
        (t, 1.0 - t, 1.0, -1.0)
        if path == "linear"
        else (np.sin(pi * t / 2), np.cos(pi * t / 2), pi / 2 * np.cos(pi * t / 2), -pi / 2 * np.sin(pi * t / 2))
    )
    data, noise = (output, (x - a * output) / s) if target == "sample" else ((x - s * output) / a, output)
    velocity: Array = da * data + ds * noise
    return velocity


def _flow_euler(velocity: Velocity, x: Array, t: float, h: float, _: bool) -> Iterator[Array]:
    yield x + h * velocity(x, t)


def _flow_heun(velocity: Velocity, x: Array, t: float, h: float, _: bool) -> Iterator[Array]:
    first = velocity(x, t)
    ahead = x + h * first
    yield ahead
    yield x + h * (first + velocity(ahead, t + h)) / 2


def _rk4(velocity: Velocity, x: Array, t: float, h: float, blind: bool) -> Iterator[Array]:
    k1 = velocity(x, t)
    x2 = x + h / 2 * k1
    yield x2
    k2 = velocity(x2, t + h / 2)
    if blind:
        yield x + h * k2
        return
    x3 = x + h / 2 * k2
    yield x3
    k3 = velocity(x3, t + h / 2)
    x4 = x + h * k3
    yield x4
    yield x + h / 6 * (k1 + 2 * k2 + 2 * k3 + velocity(x4, t + h))


_METHODS = {"euler": _flow_euler, "heun": _flow_heun, "rk4": _rk4}
