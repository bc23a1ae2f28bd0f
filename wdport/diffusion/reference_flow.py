"""Samplers of flows as plain loops in numpy, which return the state after every call of the network.

The plans of :mod:`wdport.diffusion.flow` are compared with it, so it shares no code with them: each method is written
as in textbooks, over the velocity computed from the prediction at each call. Computes in the dtype of the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import pi

import numpy as np

from wdport.diffusion.schedules import Array

Network = Callable[[Array, Array], Array]
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
        blind = target == "sample" and i == steps - 1
        if blind and sampler == "heun":  # the end is the predicted data
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


def _euler(velocity: Velocity, x: Array, t: float, h: float, _: bool) -> Iterator[Array]:
    yield x + h * velocity(x, t)


def _heun(velocity: Velocity, x: Array, t: float, h: float, _: bool) -> Iterator[Array]:
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


_METHODS = {"euler": _euler, "heun": _heun, "rk4": _rk4}
