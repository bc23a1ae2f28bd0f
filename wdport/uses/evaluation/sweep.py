"""Steps against quality: sample with several settings of samplers, and score each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from wdport.base.errors import UsageError
from wdport.models.interface import FORMER_SAMPLERS, Array, Decoding, Diffused, KerasModel
from wdport.uses.data.samples_reader import SeriesSet
from wdport.uses.data.series import Series
from wdport.uses.data.statistics import Statistics
from wdport.uses.data.transforms import OHLC_ATR
from wdport.uses.diffusion.schedules import SPACINGS
from wdport.uses.evaluation.api import Data, Given, Report, evaluate, opened, real_windows, require_scale, set_of
from wdport.uses.evaluation.distances import Scaling
from wdport.uses.evaluation.result import Evaluation, apart
from wdport.uses.sampling.condition import DATA
from wdport.uses.sampling.job import Job, SamplingClock, plan_job
from wdport.uses.sampling.request import Request
from wdport.uses.sampling.sampler import Programs, Samples, programs_of

MOST: Final = 1_000_000
"""Maximum steps of a setting."""


@dataclass(frozen=True)
class SamplerSetting:
    """A sampler with a number of steps (None for all of them), an amount of noise, and a spacing of the steps."""

    sampler: str
    steps: int | None = None
    eta: float = 0.0
    spacing: str | None = None

    @property
    def kind(self) -> str:
        """The sampler with its spacing and its noise."""
        eta = f"eta{str(float(self.eta)).removesuffix('.0')}" if self.eta else ""
        return ":".join(part for part in (self.sampler, self.spacing, eta) if part)

    def __str__(self) -> str:
        return self.kind + ("" if self.steps is None else f":{self.steps}")


def listed(settings: str | Sequence[str | SamplerSetting] | None, default: str) -> list[SamplerSetting]:
    """The settings, of which text may have several."""
    if settings is None:
        return [SamplerSetting(default)]
    if isinstance(settings, str):
        return parse_settings(settings)
    if not isinstance(settings, Sequence) or not all(
        isinstance(setting, (str, SamplerSetting)) for setting in settings
    ):
        raise UsageError("sweep", "has settings that are not text", "write for example ddpm:1000 ddim:20,50")
    return [
        one
        for setting in settings
        for one in ([setting] if isinstance(setting, SamplerSetting) else parse_settings(setting))
    ]


def parse_settings(text: str) -> list[SamplerSetting]:
    """Settings from text such as ``"ddpm:1000 ddim:20,50 euler:karras:20 ddim-textbook:eta1:50"``;
    raises :class:`UsageError`."""
    settings = []
    for word in text.split():
        name, *parts = word.split(":")
        name, eta = FORMER_SAMPLERS.get(name, name), 0.0
        spacing = parts.pop(0) if parts and parts[0] in SPACINGS else None
        if parts and parts[0].startswith("eta"):
            eta = _number(word, parts.pop(0)[3:], float)
        if len(parts) > 1 or not name:
            raise UsageError("sweep", f"{word[:40]!r} is not SAMPLER:STEPS,STEPS", "write for example ddim:20,50")
        steps = [int(_number(word, number, int)) for number in parts[0].split(",")] if parts else [None]
        settings += [SamplerSetting(name, step_count, eta, spacing) for step_count in steps]
    if not settings:
        raise UsageError("sweep", "has no setting", "write for example ddpm:1000 ddim:20,50")
    if len(set(map(str, settings))) < len(settings):
        raise UsageError("sweep", "has a setting twice", "give it once")
    return settings


def _number(word: str, text: str, kind: Callable[[str], float]) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = -1
    largest = MOST if kind is int else sys.float_info.max
    if not 0 <= number <= largest:  # nor for NaN
        expected = f"a whole number up to {MOST}" if kind is int else "a finite number from 0"
        what = f"{word[:40]!r} has {text[:20]!r}, which is not {expected}"
        raise UsageError("sweep", what, "write for example ddim:20,50 or ddim-textbook:eta1:50")
    return number


@dataclass(frozen=True)
class SettingSamples:
    """The samples of a setting: network calls for each, and the seconds that all took, without compiling."""

    setting: SamplerSetting
    calls: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Sweep:
    """The scores of several settings, and the series (n, N, F) of each, under the names of the settings.

    ``failed`` has the settings whose samples cannot be scored, with the reason.
    """

    drawn: Sequence[SettingSamples]
    evaluation: Evaluation
    samples: Mapping[str, Array]
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, SettingSamples]:
        """The settings by the names of their sets."""
        return {str(run.setting): run for run in self.drawn}

    @property
    def compares(self) -> bool:
        """Whether settings can be compared: this takes two settings, and repetitions that show a spread."""
        return len(self.drawn) > 1 and self.evaluation.repeats > 1

    def full(self) -> SettingSamples:
        """The setting with the most network calls, with which the others are compared; if there are several, the best
        of them."""
        return min(self.drawn, key=lambda run: (-run.calls, self._rank(run)))

    def as_good(self, drawn: SettingSamples, width: float = 2.0) -> list[str]:
        """The metrics in which a setting is not worse than the full one by more than ``width`` standard deviations of
        their difference."""
        ours, full = (self.evaluation[str(run.setting)] for run in (drawn, self.full()))
        return [metric for metric in ours if not apart(ours[metric], full[metric], width)]

    def cheapest(self, width: float = 2.0) -> SettingSamples:
        """The setting with the fewest network calls that is as good as the full one in every metric; if there are
        several, the best of them."""
        count = len(self.evaluation.metrics)
        return min((run for run in self.drawn if len(self.as_good(run, width)) == count),
                   key=lambda run: (run.calls, self._rank(run)))  # fmt: skip

    def _rank(self, drawn: SettingSamples) -> int:
        """How many times another setting is better, over all metrics."""
        ours, others = self.evaluation[str(drawn.setting)], [self.evaluation[str(run.setting)] for run in self.drawn]
        return sum(other[metric].mean < ours[metric].mean for metric in ours for other in others)


def sweep(
    model: KerasModel,
    data: Data,
    settings: str | Sequence[str | SamplerSetting] | None = None,
    n: int = 2000,
    *,
    metrics: str | Sequence[str] | None = None,
    repeats: int = 5,
    seed: int = 0,
    encoder: KerasModel | None = None,
    more: Mapping[str, Given] | None = None,
    condition: ArrayLike | str | None = None,
    unconditional: bool = False,
    report: Report | None = None,
) -> Sweep:
    """Sample from a model with every setting, and score the samples against data.

    Every setting begins with the same noise. A setting is listed in ``Sweep.failed`` if its samples are not finite, or
    if they are farther from the data than a billion times the range of the data.

    Args:
        model: a converted diffusion model whose samples are series.
        data: as for :func:`wdport.evaluate`. Columns are found by the model's feature names; if the model has no
            statistics, so that its series are z-scores, the data are z-scored.
        settings: such as ``"ddpm:1000 ddim:20,50"``: samplers with numbers of steps, counted as for
            :func:`wdport.sample`. By default, the model's default sampler with all steps.
        n: number of samples per setting.
        metrics: as for :func:`wdport.evaluate`.
        repeats: as for :func:`wdport.evaluate`.
        encoder: as for :func:`wdport.evaluate`.
        seed: seed for the samples and for the scores.
        more: other sets of series to score, by name.
        condition: the condition of the samples, as for :func:`wdport.sample`; by default that of the training data, if
            the model holds it.
        unconditional: call the model without its condition.
        report: called before every run of the sampler and before every score.

    Returns:
        A :class:`Sweep`.

    Raises:
        UsageError: the model does not support a setting, or its samples do not fit the data.
    """
    programs = programs_of(model)
    real, shape = _units_of(data, programs.network.about)
    scale = Scaling.of(real_windows(real, *shape, programs.network.about.features).windows)
    about = programs.network.about
    if condition is None and not unconditional and about.condition is not None and about.condition.statistic:
        condition = DATA
    condition_options = {"condition": condition, "unconditional": unconditional}
    jobs = _jobs(programs, listed(settings, programs.network.process().samplers[0]), n, seed, condition_options)
    sets: dict[str, SeriesSet] = {}
    drawn, failed = [], {}
    if len(jobs) > 1:  # what all of them share is compiled before the first is timed
        _announce(report, 0, len(jobs), "compiling")
        _draw(min(jobs.values(), key=lambda job: len(job.sampler.plan.steps)))
    for index, (setting, job) in enumerate(jobs.items()):
        _announce(report, index, len(jobs), f"sampling, {setting}")
        series, seconds = _draw(job)
        try:
            series_set = set_of(str(setting), series)
            require_scale(series_set, scale)
        except UsageError as error:
            failed[str(setting)] = error.what
            continue
        drawn.append(SettingSamples(setting, len(job.sampler.plan.steps), seconds))
        sets[str(setting)] = series_set
    if not drawn:
        name, why = next(iter(failed.items()))
        raise UsageError("sweep", f"samples of {name} {why}", "name settings whose samples can be scored")
    every: dict[str, Given] = {**sets, **(more or {})}
    scored = evaluate(every, real, metrics=metrics, repeats=repeats, seed=seed, encoder=encoder, report=report)
    return Sweep(drawn, scored, {name: set_of(name, samples).values for name, samples in every.items()}, failed)


def _announce(report: Report | None, done: int, total: int, what: str) -> None:
    if report is not None:
        report(done, total, what)


def _draw(job: Job) -> tuple[Samples, float]:
    """All samples, and the seconds that they took, without compiling."""
    since, clock = time.monotonic(), SamplingClock(job.count, None)
    samples = Samples.join(list(job.draw(done=clock)))
    return samples, time.monotonic() - since - clock.compiling


def _jobs(
    programs: Programs, settings: Sequence[SamplerSetting], count: int, seed: int, options: Mapping[str, Any]
) -> dict[SamplerSetting, Job]:
    """A job for every setting; raises :class:`UsageError` for one that the model does not have, or for equal ones."""
    jobs: dict[SamplerSetting, Job] = {}
    for setting in settings:
        request = Request(
            count=count, sampler=setting.sampler, steps=setting.steps, eta=setting.eta, spacing=setting.spacing,
            seed=seed, **options,
        )  # fmt: skip
        try:
            job = plan_job(programs, request)
        except UsageError as error:
            if error.where not in ("sampler", "steps", "eta", "spacing"):
                raise
            raise UsageError("sweep", f"{setting}: {error.what}", error.fix) from None
        plan = job.sampler.plan
        for other, its in jobs.items():
            # Two numbers of steps may give the same plan, such as all steps and None.
            if setting.kind == other.kind and np.array_equal(plan.steps, its.sampler.plan.steps):
                raise UsageError("sweep", f"{other} and {setting} are the same", "give one of them")
        jobs[setting] = job
    return jobs


def _units_of(data: Data, about: Diffused) -> tuple[Array | Series, tuple[int, int]]:
    """The data in the units of the model's series: z-scored if it has no statistics; and the shape (N, F) of these.

    Raises :class:`UsageError` for a model whose samples are not series.
    """
    decoding = about.decoding
    if not isinstance(decoding, Decoding) or len(decoding.shape) != 2:
        raise UsageError("model", "has samples that are not series", "give a model of time series")
    length, features = decoding.shape
    real = opened(data)
    if about.windowed is not None and about.windowed.transform != OHLC_ATR:
        what = f"has samples in the units of {about.windowed.transform}, not of the data"
        raise UsageError("model", what, "draw samples with wdport sample --transform, and evaluate the file")
    if (
        not isinstance(real, Series)
        or about.windowed is not None
        or any(decoding.mean)
        or any(deviation != 1.0 for deviation in decoding.std)
    ):
        return real, (length, features)
    where = Path(data) if isinstance(data, (str, PathLike)) else "data"
    series = real.fitted(about.features, features, where)
    return replace(series, values=Statistics.of(series.values).normalize(series.values)), (length, features)
