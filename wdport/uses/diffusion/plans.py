"""Make plans: samplers as data, from a name, a noise schedule and settings.

After each repeat but the last, noise returns the state to its previous noise level, and the step is taken again, so
that known and filled-in values fit each other (arXiv 2201.09865, alg. 1).

A plan is run by one scan (:mod:`wdport.uses.diffusion.run_plan`): each row has the step of the network call and fifteen
coefficients. Samplers, schedules, targets and etas differ only in numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from wdport.base.errors import UsageError
from wdport.base.options import COUNT, require_number
from wdport.models.interface import Array
from wdport.uses.diffusion.sampler_updates import (
    CLEAN,
    END,
    LANGEVIN,
    LANGEVIN_NOISE,
    LEARNED,
    LEVEL_TARGETS,
    NOISE,
    OUTPUT,
    SAMPLERS,
    STATE,
    TARGETS,
    UNCHANGED,
    WITH_ETA,
    Point,
    Updates,
    View,
)
from wdport.uses.diffusion.schedules import NoiseSchedule, checked_steps, per_mille


def repeated(plan: SamplingPlan, schedule: NoiseSchedule, times: int) -> SamplingPlan:
    """``plan`` with every step but the last taken ``times`` times; the same plan for 1.

    Raises :class:`UsageError` for samplers whose rows depend on earlier rows, such as Heun's.
    """
    require_number(COUNT, resample=times)
    if times == 1:
        return plan
    if np.any(plan.coefficients[:, 1:]) or plan.corrects:
        what = f"{plan.sampler} cannot repeat single steps"
        raise UsageError("resample", what, "take ddpm or ddim, or resample once")
    # A repeated row is the step and the way back in one: the state is multiplied by the ratio of the signals, and the
    # two noises, which are independent, are one draw with the sum of their variances.
    alpha_bar = np.asarray(schedule.alpha_bar, np.float64)
    back = plan.coefficients.copy()
    before = np.append(alpha_bar[plan.steps[1:]], 1.0)
    ratio = np.sqrt(alpha_bar[plan.steps] / before)
    back[:, STATE] *= ratio[:, None]
    spread = plan.deviations
    if spread is None:
        back[:, STATE, NOISE] = np.sqrt(back[:, STATE, NOISE] ** 2 + 1.0 - ratio**2)
    else:
        # The learned deviation, which the ratio multiplies, is known to the network alone: the rest goes in with it.
        plain = plan.coefficients[:, STATE, LEARNED] == 0.0
        back[plain, STATE, NOISE] = np.sqrt(back[plain, STATE, NOISE] ** 2 + 1.0 - ratio[plain] ** 2)
        again = np.column_stack([spread[:, :2], np.where(plain, 0.0, ratio**-2.0 - 1.0)])
        spread = _interleaved(again, spread, times)
    count = [times] * (len(plan.steps) - 1) + [1]
    steps, network_times, clean = (np.repeat(values, count, axis=0) for values in (plan.steps, plan.times, plan.clean))
    coefficients = _interleaved(back, plan.coefficients, times)
    scales = None if plan.scales is None else np.repeat(plan.scales, count)
    return replace(plan, steps=steps, times=network_times, clean=clean, coefficients=coefficients, scales=scales,
                   deviations=spread)  # fmt: skip


def _interleaved(again: Array, once: Array, times: int) -> Array:
    """The rows of ``once``, each but the last after ``times`` - 1 of the row of ``again``."""
    rows = [np.concatenate([np.repeat(first[None], times - 1, axis=0), last[None]])
            for first, last in zip(again[:-1], once[:-1], strict=True)]  # fmt: skip
    return np.concatenate([*rows, once[-1:]])


REPEAT = 1024
"""Added to a step's number, from 1, for every earlier row of the same step; the largest step if that is larger."""


@dataclass(frozen=True, eq=False)
class SamplingPlan:
    """One sampler, S rows long.

    ``steps`` (S,) int64 number the rows by their distance from the end, 0, and ``times`` (S,) float64 are the times
    passed to the network. ``coefficients`` float64: row s maps (state, base, memory, network output, noise) to the next
    (state, base, memory), (S, 3, 5). ``clean`` (S, 2) float64 times (state, network output) is the clean state as
    predicted by the network; if that is ``changed`` before it is used, the changed state is a sixth input, (S, 3, 6).
    The two terms of a Langevin corrector are the seventh and eighth, and the noise with the deviation that the network
    predicts is the ninth, (S, 3, 9). ``scales`` (S,) multiply the state before it enters the network; None if they are
    all 1. ``deviations`` (S, 3), if the network predicts them: two logarithms between which they lie, and a variance
    that is added. The other fields record what the plan was made from.
    """

    sampler: str
    target: str
    eta: float
    steps: Array
    times: Array
    coefficients: Array
    clean: Array
    spacing: str | None = None
    scales: Array | None = None
    deviations: Array | None = None

    @property
    def corrects(self) -> bool:
        """Whether the plan has steps of Langevin dynamics."""
        return bool(self.coefficients.shape[2] > LANGEVIN and np.any(self.coefficients[:, :, LANGEVIN]))

    @property
    def changed(self) -> bool:
        """Whether the plan uses a clean state that is changed after the network."""
        return bool(np.any(self.coefficients[:, :, CLEAN : CLEAN + 1]))

    @property
    def noisy(self) -> Array:
        """(S,) bool: the rows that use noise. Each takes one slot of a noise tape, in this order."""
        columns = [column for column in (NOISE, LANGEVIN_NOISE, LEARNED) if column < self.coefficients.shape[2]]
        return np.asarray(np.any(self.coefficients[:, STATE, columns], axis=1))

    @property
    def slots(self) -> int:
        """Length of this plan's noise tape."""
        return int(np.sum(self.noisy))

    @property
    def draws(self) -> Array:
        """(S,) int64 that distinguish the noise of the rows: the step, and its repeat count if repeated."""
        counts: Counter[int] = Counter()
        earlier = np.zeros(len(self.steps), np.int64)
        for row, step in enumerate(self.steps.tolist()):
            earlier[row] = counts[step]
            counts[step] += 1
        repeat = max(REPEAT, int(self.steps.max(initial=0)))
        draws: Array = self.steps + repeat * earlier
        return draws

    def padded(self, rows: int) -> SamplingPlan:
        """The same plan padded to ``rows`` rows, by rows that change nothing."""
        more = rows - len(self.steps)
        # The identity on state, base and memory: the network is called, but its output has the coefficient 0.
        idle = np.tile(np.eye(3, self.coefficients.shape[2]), (more, 1, 1))
        return replace(
            self,
            steps=np.concatenate([self.steps, np.ones(more, np.int64)]),
            times=np.concatenate([self.times, np.tile(self.times[-1:], more)]),
            coefficients=np.concatenate([self.coefficients, idle]),
            clean=np.concatenate([self.clean, np.tile([[1.0, 0.0]], (more, 1))]),
            scales=None if self.scales is None else np.concatenate([self.scales, np.tile(self.scales[-1:], more)]),
            deviations=None if self.deviations is None else np.pad(self.deviations, ((0, more), (0, 0))),
        )


def make_plan(
    sampler: str,
    schedule: NoiseSchedule,
    steps: Sequence[int] | Array,
    *,
    eta: float = 0.0,
    target: str = "noise",
    updates: Updates | None = None,
    times: Array | None = None,
    changed: bool = False,
    end: Point = END,
    silent: bool = False,
    floor: float = 0.0,
) -> SamplingPlan:
    """The plan of one sampler.

    Args:
        sampler: a name of :data:`wdport.uses.diffusion.sampler_updates.SAMPLERS`, or any name with ``updates``.
        schedule: the checkpoint's beta, alpha and alpha_bar, each (T+1,), in any float dtype.
        steps: falling diffusion steps, as from :func:`wdport.uses.diffusion.schedules.step_list`; after the last one
            the sampler goes to ``end``.
        eta: noise level of DDIM; 0 adds no noise.
        target: what the network predicts, one of :data:`wdport.uses.diffusion.sampler_updates.TARGETS` or
            ``LEVEL_TARGETS``.
        updates: the sampler itself, for one of the checkpoint's own.
        times: times passed to the network at every step, (T+1,). Default: step / T.
        changed: whether the network's estimate of the clean state is changed, see :class:`SamplingPlan`.
        end: the signal and noise left at the end. Default: no noise.
        silent: whether ``updates`` take a last step without signal, where alpha_bar is 0.
        floor: the lowest noise level of a consistency model, see :class:`wdport.uses.diffusion.sampler_updates.View`.

    Raises:
        UsageError: an argument is invalid, or the schedule would cause a division by zero.
    """
    if updates is None:
        if sampler not in SAMPLERS:
            raise UsageError("sampler", f"unknown sampler {sampler!r}", f"use one of {', '.join(SAMPLERS)}")
        updates = SAMPLERS[sampler]
    if target not in (*TARGETS, *LEVEL_TARGETS):
        raise UsageError("target", f"unknown prediction target {target!r}", f"use one of {', '.join(TARGETS)}")
    _check_eta(sampler, eta)
    if changed and sampler in UNCHANGED:
        raise UsageError("sampler", f"{sampler} takes no known values", "use another sampler")
    # By step: a row of a sampler with two rows per step calls the network at either end of it.
    points = {point.step: point for point in _points(schedule, steps, silent)}
    view = View(target, changed, floor)
    rows = list(updates([*points.values(), end], view, float(eta)))
    listed = np.array([row[0] for row in rows], np.int64)
    if times is None:
        times = per_mille(len(schedule.beta) - 1)
    predictions = [view.predicted(points[row[0]])[[STATE, OUTPUT]] for row in rows]
    forms = np.array([row[1] for row in rows], np.float64)
    if not np.any(forms[:, :, LANGEVIN:]):
        forms = forms[:, :, : LANGEVIN if changed else CLEAN]
    deviations = np.array([(*row[2], 0.0) if len(row) > 2 else (0.0, 0.0, 0.0) for row in rows], np.float64)
    return SamplingPlan(sampler, target, float(eta), listed, np.asarray(times, np.float64)[listed], forms,
                        np.array(predictions, np.float64),
                        deviations=deviations if np.any(deviations) else None)  # fmt: skip


def _check_eta(sampler: str, eta: float) -> None:
    require_number("from 0", eta=eta)
    if eta and sampler not in WITH_ETA:
        raise UsageError("eta", f"is for {' and '.join(WITH_ETA)}, not for {sampler}", "leave it out")


def _points(schedule: NoiseSchedule, steps: Sequence[int] | Array, silent: bool) -> list[Point]:
    """The schedule at these steps; raises :class:`UsageError` if no sampler can use it."""
    beta, alpha, alpha_bar = (np.asarray(values, np.float64) for values in schedule)
    if beta.ndim != 1 or beta.size < 2 or not beta.shape == alpha.shape == alpha_bar.shape:
        what = f"has shapes {beta.shape}, {alpha.shape} and {alpha_bar.shape}"
        raise UsageError("noise schedule", what, "give three arrays of one length")
    listed = checked_steps(steps, beta.size - 1)
    for name, values in zip(NoiseSchedule._fields, (beta, alpha, alpha_bar), strict=True):
        # Negated, so that NaN is refused as well. A file in bfloat16 has alpha_bar = 1 at its first steps.
        ruined = ~((values[listed] > 0.0) & (values[listed] < 1.0)) & ~(silent & (listed == beta.size - 1))
        if np.any(ruined):
            step = listed[ruined][-1]
            what = f"{name} is {values[step]:g} at step {step}, where it must be between 0 and 1"
            raise UsageError("noise schedule", what, "convert the checkpoint again, with its noise schedule")
    if np.any(np.diff(alpha_bar[listed]) <= 0.0):
        raise UsageError("noise schedule", "alpha_bar does not fall from step to step", "use the checkpoint's own")
    return [Point(int(t), sqrt(alpha_bar[t]), sqrt(1.0 - alpha_bar[t]), float(beta[t]), float(alpha[t]))
            for t in listed]  # fmt: skip
