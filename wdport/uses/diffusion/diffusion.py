"""A diffusion process: the plans of every sampler for a noise schedule.

Everything specific to a family's sampling is data here: its schedule, the network's target, the time passed to the
network at each step, and the steps that a sampler visits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from wdport.base.errors import UsageError, did_you_mean
from wdport.models.interface import FORMER_SAMPLERS, Array, Clipping
from wdport.uses.diffusion.plans import SamplingPlan, make_plan, repeated
from wdport.uses.diffusion.process import MIN_SNR, UNIFORM, Network, Run
from wdport.uses.diffusion.reference_samplers import Change, Noise, solver_states, solver_steps
from wdport.uses.diffusion.sampler_updates import END, SAMPLERS, Point, Updates
from wdport.uses.diffusion.schedules import (
    FEW,
    LEVELS,
    SPACINGS,
    WHOLE,
    NoiseSchedule,
    even_steps,
    step_count,
    whole_steps,
)

if TYPE_CHECKING:
    from wdport.uses.diffusion.noise import StepNoising

Thinning = Callable[[Array, int | None, int], Array]
"""(alpha_bar, number of steps, the last one) to the steps of a sampler that chooses them itself."""

THINNED: Final[Mapping[str, Thinning]] = {"dpm++2m-sde": even_steps}
"""Samplers that do so, if no spacing is asked for."""

LEAST_SIGNAL: Final = 2.0**-24
"""alpha_bar at step T in diffusers' solvers if no signal is left there: they divide by its root."""

TRIAL = 5
"""Steps of a run that is compared with a loop: errors accumulate, and a large network is slow in float64."""

Loop = Callable[[Network, Run, Sequence[int], Array, Array | Noise, Change | None, int], list[Array]]
"""A sampler as a plain loop: (network, run, the steps to visit, x_T (B, *shape), noise, change of the clean state, how
often each step is taken) to the state after every step; see :mod:`wdport.uses.diffusion.reference_samplers`."""


@dataclass(frozen=True, eq=False)
class Diffusion:
    """A diffusion process over T steps.

    ``schedule`` has beta, alpha and alpha_bar, (T+1,) each, index 0 a dummy; ``times`` (T+1,) is the time passed to the
    network at each step. ``rule(count)`` returns the visited steps, all of them for None. ``checkpoint_samplers`` are
    those of the checkpoint's own code, by name; ``unthinned`` are those that can only take every step; ``end`` is the
    signal and noise left at the end. ``loops`` are the checkpoint's own samplers as plain loops, with which ``runs``
    are compared, over the steps that ``listed`` returns for a number of them. ``first`` is the first of the T steps on
    which the network was trained. ``clip`` is how the predicted clean state is changed, if it is. ``silent``: no signal
    is left at step T; ``integer_times``: the network takes no times between those of the steps. ``spacing``, if given,
    is the one of :data:`wdport.uses.diffusion.schedules.SPACINGS` by which the steps were chosen. ``thinned`` are the
    samplers that choose their steps themselves. ``scales`` (T+1,), if given, multiply the state before it enters the
    network at each step. ``floor`` is the lowest noise level of a consistency model. ``learned``: see
    :attr:`wdport.uses.diffusion.process.Process.learned`.
    """

    schedule: NoiseSchedule
    target: str
    times: Array
    rule: Callable[[int | None], Array]
    checkpoint_samplers: Mapping[str, Updates] = field(default_factory=dict)
    unthinned: frozenset[str] = frozenset()
    end: Point = END
    loops: Mapping[str, Loop] = field(default_factory=dict)
    listed: Callable[[int], list[int]] | None = None
    runs: tuple[Run, ...] = ()
    first: int = 1
    clip: Clipping | None = None
    silent: bool = False
    integer_times: bool = False
    spacing: str | None = None
    thinned: Mapping[str, Thinning] = field(default_factory=lambda: THINNED)
    scales: Array | None = None
    floor: float = 0.0
    learned: bool = False

    @property
    def solved(self) -> NoiseSchedule:
        """The schedule of samplers that divide by the signal: at a silent step T, with the alpha_bar of diffusers'
        solvers there."""
        if not self.silent:
            return self.schedule
        beta, alpha, alpha_bar = (values.copy() for values in self.schedule)
        alpha_bar[-1] = LEAST_SIGNAL
        alpha[-1] = LEAST_SIGNAL / alpha_bar[-2]
        beta[-1] = 1.0 - alpha[-1]
        return NoiseSchedule(beta, alpha, alpha_bar)

    @property
    def samplers(self) -> tuple[str, ...]:
        return tuple({**SAMPLERS, **self.checkpoint_samplers})

    @property
    def few(self) -> tuple[str, int]:
        """See :attr:`wdport.uses.diffusion.process.Process.few`."""
        # A network that predicts the noise errs at the first step by its error over the signal (0.003). Deterministic
        # solvers keep that error, whatever their number of steps; stochastic ones forget it. See docs/evaluation.md.
        return ("dpm++2m", 10) if self.target == "sample" else ("dpm++2m-sde", FEW)

    def noising(self, law: str = UNIFORM) -> StepNoising:
        from wdport.uses.diffusion.noise import StepNoising, min_snr_law, step_noising  # imports jax

        if self.learned:
            raise UsageError("model", "training of a learned variance is not implemented", "sample from it only")
        # The public training draws from every entry of its tables, the dummy at index 0 included.
        if law == MIN_SNR:
            every = step_noising(self.target, self.times, self.schedule.alpha_bar, range(len(self.times)))
            return StepNoising(every.target, every.times, every.alpha_bar, min_snr_law(every.alpha_bar))
        if law != UNIFORM:
            raise UsageError("law", f"{law!r} is unknown", f"give {UNIFORM} or {MIN_SNR}")
        steps = range(self.first, self.first + self.last)
        return step_noising(self.target, self.times, self.schedule.alpha_bar, steps)

    @property
    def trained_last(self) -> int:
        """The last step on which the network was trained."""
        # Some models train on steps 0 to T - 1 and sample from T to 1: step T was never trained.
        return min(self.first + self.last - 1, self.last)

    @property
    def last(self) -> int:
        """T."""
        return len(self.schedule.beta) - 1

    def trial(self, run: Run, changed: bool = False) -> SamplingPlan:
        return self.at(run.sampler, self.rule(TRIAL), run.eta, run.target, changed)

    def loop(self, run: Run, network: Network, init: Array, tape: Array) -> list[Array]:
        return self.loops[run.sampler](network, run, self.visited(run), init, tape, None, 1)

    def count(self, sampler: str) -> int | None:
        return None if sampler in self.unthinned else TRIAL

    def plain(
        self, run: Run, network: Network, init: Array, noise: Noise, change: Change | None = None, repeats: int = 1
    ) -> Array:
        bars = self.solved.alpha_bar
        if run.sampler in self.thinned:
            steps = solver_steps(bars, TRIAL, self.trained_last)
        else:
            steps = list(range(self.last, 0, -1)) if run.sampler in self.unthinned else self.visited(run)
        if run.sampler in self.loops:
            return self.loops[run.sampler](network, run, steps, init, noise, change, repeats)[-1]
        if self.learned:
            with_variance = network
            network = lambda x, times: with_variance(x, times)[..., : x.shape[-1]]  # noqa: E731
        return solver_states(run.sampler, network, bars, self.times, run.target, steps, init, noise, run.eta, change,
                             repeats)[-1]  # fmt: skip

    def respaced(self, spacing: str, count: int | None) -> Diffusion:
        """The process whose samplers visit other steps; see :meth:`wdport.uses.diffusion.process.Process.respaced`."""
        if spacing not in SPACINGS:
            fix = did_you_mean(spacing, SPACINGS) or f"use one of {', '.join(SPACINGS)}"
            raise UsageError("spacing", f"unknown spacing {spacing!r}", fix)
        if spacing in WHOLE:
            rule = lambda count: whole_steps(spacing, step_count(count, self.last, self.last), self.last)  # noqa: E731
            return replace(self, rule=rule, listed=None, spacing=spacing, thinned={})
        # Noise levels are steps of a process of their own, which a sampler takes one by one.
        last = self.trained_last
        count = step_count(count, last, last)
        bars = self.solved.alpha_bar[1 : last + 1]
        trained = np.sqrt((1.0 - bars) / bars)
        levels = LEVELS[spacing](trained[-1], trained[0], count)
        steps = np.interp(np.log(levels), np.log(trained), np.arange(1.0, last + 1.0))
        times = np.interp(np.rint(steps) if self.integer_times else steps, np.arange(self.last + 1.0), self.times)
        return replace(over_levels(levels, times, self.target), end=self.end, clip=self.clip, spacing=spacing,
                       learned=self.learned)  # fmt: skip

    def visited(self, run: Run) -> list[int]:
        return self.listed(TRIAL) if self.listed else self.rule(TRIAL).tolist()

    @property
    def counts(self) -> int:
        return self.last

    def wrong_count(self) -> int | None:
        if self.listed is None:
            return None
        listed = self.listed
        return next((n for n in range(1, self.last + 1) if self._visits(n) not in (None, listed(n))), None)

    def _visits(self, count: int) -> list[int] | None:
        """The steps for this number of them; ``None`` if the number is not available, as with steps that begin late."""
        try:
            steps: list[int] = self.rule(count).tolist()
        except UsageError:
            return None
        return steps

    def plan(
        self, sampler: str | None = None, steps: int | None = None, eta: float = 0.0, times: int = 1,
        changed: bool = False,
    ) -> SamplingPlan:  # fmt: skip
        name = sampler or self.samplers[0]
        name = FORMER_SAMPLERS.get(name, name)
        if name in self.unthinned and steps not in (None, self.last):
            raise UsageError("steps", f"{name} takes all {self.last} steps, not {steps}", "leave it out, or use ddim")
        chosen = self.thinned.get(name)
        listed = self.rule(steps) if chosen is None else chosen(self.schedule.alpha_bar, steps, self.trained_last)
        return repeated(self.at(name, listed, eta, changed=changed), self.schedule, times)

    def at(
        self, sampler: str, steps: Sequence[int] | Array, eta: float = 0.0, target: str = "", changed: bool = False
    ) -> SamplingPlan:
        """The plan over these steps, for another ``target`` if given; raises :class:`UsageError`."""
        samplers = {**SAMPLERS, **self.checkpoint_samplers}
        if sampler not in samplers:
            raise UsageError("sampler", f"unknown sampler {sampler!r}", f"use one of {', '.join(samplers)}")
        schedule = self.schedule if sampler in self.checkpoint_samplers else self.solved
        plan = make_plan(sampler, schedule, steps, eta=eta, target=target or self.target,
                         updates=samplers[sampler],
                         times=self.times, changed=changed, end=self.end, silent=self.silent,
                         floor=self.floor)  # fmt: skip
        scales = None if self.scales is None else self.scales[plan.steps]
        return replace(plan, spacing=self.spacing, scales=scales)


def over_levels(levels: Array, times: Array, target: str) -> Diffusion:
    """The process whose steps are falling noise levels (T,), noise / signal, all of which its samplers visit; ``times``
    (T,) are the network's."""
    alpha_bar = np.append(1.0, 1.0 / (1.0 + levels[::-1] ** 2))
    alpha = np.append(1.0, alpha_bar[1:] / alpha_bar[:-1])
    count = len(levels)
    return Diffusion(NoiseSchedule(1.0 - alpha, alpha, alpha_bar), target, np.append(times[-1], times[::-1]),
                     lambda _: np.arange(count, 0, -1), thinned={})  # fmt: skip
