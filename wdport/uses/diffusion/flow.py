"""A flow: plans that follow the velocity of a path from noise to data.

The time runs from 0, noise, to 1, data: x(t) = signal(t) * data + noise(t) * noise. As for diffusion samplers, a step
is affine in the carry of a plan's scan, whatever the network predicts: the velocity dx/dt, the noise or the data.
Sources: flow matching, arXiv 2210.02747, and stochastic interpolants, arXiv 2303.08797, sec. 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import cos, isfinite, pi, sin
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wdport.base.errors import UsageError
from wdport.models.interface import Array
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.process import UNIFORM, Network, Process, Run
from wdport.uses.diffusion.reference_samplers import Change, Noise, flow_states, flow_steps
from wdport.uses.diffusion.sampler_updates import CLEAN, LANGEVIN, NOTHING, OUTPUT, STATE, base, clean, memory, out, x
from wdport.uses.diffusion.schedules import step_count

if TYPE_CHECKING:
    from wdport.uses.diffusion.noise import FlowNoising

TARGETS = ("velocity", "noise", "sample")

FEW = 5
"""Steps of a run that is compared with a loop."""

STEPS = 50
"""Default number of steps."""

MOST = 1000

SINGULAR = 1e-3
"""Start time of a flow whose network predicts the noise, which does not determine the data at 0."""


class PathPoint(NamedTuple):
    """A path at one time: its two factors, and their derivatives."""

    time: float
    signal: float
    noise: float
    signal_slope: float
    noise_slope: float


def linear(time: float) -> PathPoint:
    """The straight path of optimal transport, and of rectified flows."""
    return PathPoint(time, time, 1.0 - time, 1.0, -1.0)


def cosine(time: float) -> PathPoint:
    """The path that keeps the variance of data of variance 1 (arXiv 2303.08797, eq. 4.6)."""
    angle = pi * time / 2.0
    signal, noise = sin(angle), cos(angle)
    return PathPoint(time, signal, noise, pi / 2.0 * noise, -pi / 2.0 * signal)


PATHS: dict[str, Callable[[float], PathPoint]] = {"linear": linear, "cosine": cosine}


@dataclass(frozen=True)
class FlowView:
    """How a step computes the data and the velocity: from the network's ``target``; ``changed`` if the data are changed
    after the network."""

    target: str
    changed: bool = False

    def predicted(self, place: PathPoint) -> Array:
        """The data as predicted by the network."""
        if self.target == "sample":
            return out
        if self.target == "noise":
            return (x - place.noise * out) / place.signal
        # Solved for the data: x = signal * data + noise * e, and the output is the derivative of both terms.
        return (place.noise * out - place.noise_slope * x) / (
            place.noise * place.signal_slope - place.noise_slope * place.signal
        )

    def denoised(self, place: PathPoint) -> Array:
        """The data, changed or not."""
        return clean if self.changed else self.predicted(place)

    def velocity(self, place: PathPoint) -> Array:
        """dx/dt."""
        if self.target == "velocity" and not self.changed:
            return out
        data = self.denoised(place)
        noise = out if self.target == "noise" and not self.changed else (x - place.signal * data) / place.noise
        return place.signal_slope * data + place.noise_slope * noise


Row = tuple[PathPoint, tuple[Array, Array, Array]]
"""The time of the network call; the next state, base and memory."""

Steps = Callable[[Sequence[PathPoint], Callable[[float], PathPoint], FlowView], Iterator[Row]]
"""(places from the first to the last, the path, view) to rows."""


def euler(places: Sequence[PathPoint], _: Callable[[float], PathPoint], view: FlowView) -> Iterator[Row]:
    """First order: one call per step."""
    for now, then in pairwise(places):
        yield now, (x + (then.time - now.time) * view.velocity(now), NOTHING, NOTHING)


def heun(places: Sequence[PathPoint], path: Callable[[float], PathPoint], view: FlowView) -> Iterator[Row]:
    """Second order: two calls per step, the second at the end of an Euler step; one in the last step if no noise is
    left there to compute the velocity from."""
    for now, then in pairwise(places):
        length, slope = then.time - now.time, view.velocity(now)
        if _is_blind(then, view):
            yield now, (_straight(now, then, view), NOTHING, NOTHING)
            return
        yield now, (x + length * slope, x, slope)
        yield then, (base + length * (memory + view.velocity(then)) / 2.0, NOTHING, NOTHING)


def rk4(places: Sequence[PathPoint], path: Callable[[float], PathPoint], view: FlowView) -> Iterator[Row]:
    """The classical fourth-order method: four calls per step; the midpoint method's two in a last step where Heun's
    method makes only one."""
    for now, then in pairwise(places):
        length, slope = then.time - now.time, view.velocity(now)
        half = path((now.time + then.time) / 2.0)
        # The base keeps the state at the start of the step, and the memory sums the slopes k1 + 2 k2 + 2 k3.
        yield now, (x + length / 2.0 * slope, x, slope)
        middle = view.velocity(half)
        if _is_blind(then, view):
            yield half, (base + length * middle, NOTHING, NOTHING)
            return
        yield half, (base + length / 2.0 * middle, base, memory + 2.0 * middle)
        yield half, (base + length * middle, base, memory + 2.0 * middle)
        yield then, (base + length / 6.0 * (memory + view.velocity(then)), NOTHING, NOTHING)


def _straight(now: PathPoint, then: PathPoint, view: FlowView) -> Array:
    """The state at ``then`` if data and noise are as predicted now."""
    data = view.denoised(now)
    return then.signal * data + then.noise * (x - now.signal * data) / now.noise


def _is_blind(place: PathPoint, view: FlowView) -> bool:
    """Whether the velocity depends on the noise, and no noise is left."""
    needs_noise = view.changed or view.target == "sample"
    # The cosine path ends at cos(pi / 2), which is 6e-17 in float64 and not 0.
    return needs_noise and place.noise < 1e-9


SAMPLERS: dict[str, Steps] = {"heun": heun, "euler": euler, "rk4": rk4}


@dataclass(frozen=True, eq=False)
class Flow(Process):
    """A flow along ``path``, one of :data:`PATHS`, whose network predicts ``target``, one of :data:`TARGETS`.

    ``network_time(time)`` is the time value passed to the network; the time itself by default.
    """

    path: str = "linear"
    target: str = "velocity"
    network_time: Callable[[float], float] = float

    def __post_init__(self) -> None:
        for name, value, choices in (("path", self.path, tuple(PATHS)), ("target", self.target, TARGETS)):
            if value not in choices:
                raise UsageError(name, f"{value!r} is unknown", f"use one of {', '.join(choices)}")

    @property
    def samplers(self) -> tuple[str, ...]:
        return tuple(SAMPLERS)

    @property
    def clip(self) -> None:
        """None: the estimate of the data is not clipped."""
        return None

    def plan(
        self, sampler: str | None = None, steps: int | None = None, eta: float = 0.0, times: int = 1,
        changed: bool = False,
    ) -> SamplingPlan:  # fmt: skip
        if times != 1:
            raise UsageError("resample", "a flow adds no noise, so no step can be repeated", "give 1, or leave it out")
        return self.at(sampler or self.samplers[0], self.grid(steps), eta, changed=changed)

    def respaced(self, spacing: str, count: int | None) -> Flow:
        raise UsageError("spacing", "the times of a flow are evenly spaced", "leave it out")

    def noising(self, law: str = UNIFORM) -> FlowNoising:
        from wdport.uses.diffusion.noise import FlowNoising  # imports jax

        if law != UNIFORM:
            raise UsageError("law", f"{law} is for diffusions", "leave it out")
        network_time: Any = self.network_time
        # float, the default, cannot be applied to a traced time.
        return FlowNoising(self.target, self.path, (lambda time: time) if network_time is float else network_time)

    def grid(self, steps: int | None = None) -> Array:
        """(S+1,) equally spaced times from the first to 1; raises :class:`UsageError`."""
        first = SINGULAR if self.target == "noise" else 0.0
        return np.linspace(first, 1.0, step_count(steps, STEPS, MOST) + 1)

    def at(self, sampler: str, grid: Array, eta: float = 0.0, target: str = "", changed: bool = False) -> SamplingPlan:
        """The plan over these times, for another ``target`` if given; raises :class:`UsageError`."""
        if sampler not in SAMPLERS:
            raise UsageError("sampler", f"unknown flow sampler {sampler!r}", f"use one of {', '.join(SAMPLERS)}")
        if eta or not isfinite(eta):
            raise UsageError("eta", "a flow adds no noise", "leave it out")
        path, view = PATHS[self.path], FlowView(target or self.target, changed)
        rows = list(SAMPLERS[sampler]([path(float(time)) for time in grid], path, view))
        forms = np.array([forms for _, forms in rows], np.float64)
        predictions = np.array([view.predicted(place)[[STATE, OUTPUT]] for place, _ in rows], np.float64)
        times = np.array([self.network_time(place.time) for place, _ in rows], np.float64)
        # Rows are numbered by their distance from the end, as a diffusion's are; here in times of the grid.
        left = np.array([np.sum(grid > place.time) for place, _ in rows], np.int64)
        # Without a change no form uses the sixth input, so its column is left out.
        return SamplingPlan(
            sampler, view.target, 0.0, left, times, forms[:, :, : LANGEVIN if changed else CLEAN], predictions
        )

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(Run(sampler, 0.0, self.target) for sampler in SAMPLERS)

    def trial(self, run: Run, changed: bool = False) -> SamplingPlan:
        return self.at(run.sampler, self.grid(FEW), run.eta, run.target, changed)

    def loop(self, run: Run, network: Network, init: Array, tape: Array) -> list[Array]:
        return flow_states(run.sampler, self.path, run.target, network, self.network_time, FEW, init)

    def count(self, sampler: str) -> int:
        return FEW

    def plain(
        self, run: Run, network: Network, init: Array, noise: Noise, change: Change | None = None, repeats: int = 1
    ) -> Array:
        if change is not None or repeats != 1:
            raise UsageError("flow", "has no plain loop with a changed clean state", "compare it without")
        return self.loop(run, network, init, init)[-1]

    def visited(self, run: Run) -> list[int]:
        return flow_steps(run.sampler, run.target, FEW)
