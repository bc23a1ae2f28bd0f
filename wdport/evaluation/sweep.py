"""Steps against quality: sample with several settings, and score each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike

import numpy as np

from wdport.data.series import Series, read_series
from wdport.data.statistics import Statistics
from wdport.errors import UsageError
from wdport.evaluation.api import Evaluation, Report, apart, evaluate
from wdport.evaluation.scaling import require_series
from wdport.model import Array, Decoding, Diffused, KerasModel
from wdport.sampling.job import plan_job
from wdport.sampling.programs import programs_of
from wdport.sampling.ran import Clock
from wdport.sampling.request import Request
from wdport.sampling.samples import Samples


@dataclass(frozen=True)
class Setting:
    """A sampler with a number of steps, all of them for None, and an amount of noise."""

    sampler: str
    steps: int | None = None
    eta: float = 0.0

    @property
    def kind(self) -> str:
        """The sampler with its noise."""
        return self.sampler + (f":eta{self.eta:g}" if self.eta else "")

    def __str__(self) -> str:
        return self.kind + ("" if self.steps is None else f":{self.steps}")


@dataclass(frozen=True)
class Drawn:
    """The samples of a setting: network calls for each, and the seconds that all took, without compiling."""

    setting: Setting
    calls: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Sweep:
    """The scores of several settings, and the series (n, N, F) of each, under the names of the settings."""

    drawn: Sequence[Drawn]
    evaluation: Evaluation
    samples: Mapping[str, Array]

    @property
    def by_name(self) -> dict[str, Drawn]:
        """The settings by the names of their sets."""
        return {str(each.setting): each for each in self.drawn}

    def full(self) -> Drawn:
        """The setting with the most network calls, which the others are compared with."""
        return max(self.drawn, key=lambda each: each.calls)

    def as_good(self, drawn: Drawn, width: float = 2.0) -> list[str]:
        """The metrics in which a setting is not worse than the full one by more than ``width`` standard deviations of
        their difference."""
        ours, full = (self.evaluation[str(each.setting)] for each in (drawn, self.full()))
        return [metric for metric in ours if not apart(ours[metric], full[metric], width)]

    def cheapest(self, width: float = 2.0) -> Drawn:
        """The setting with the fewest network calls that is as good as the full one in every metric."""
        count = len(self.evaluation.metrics)
        return min(
            (each for each in self.drawn if len(self.as_good(each, width)) == count), key=lambda each: each.calls
        )


def parse_settings(text: str) -> list[Setting]:
    """Settings from text such as ``"ddpm:1000 ddim:20,50 ddim-textbook:eta1:50"``; raises :class:`UsageError`."""
    found = []
    for word in text.split():
        name, *parts = word.split(":")
        eta = 0.0
        if parts and parts[0].startswith("eta"):
            eta = _number(word, parts.pop(0)[3:], float)
        if len(parts) > 1 or not name:
            raise UsageError("sweep", f"{word[:40]!r} is not SAMPLER:STEPS,STEPS", "write for example ddim:20,50")
        steps = [int(_number(word, each, int)) for each in parts[0].split(",")] if parts else [None]
        found += [Setting(name, each, eta) for each in steps]
    if not found:
        raise UsageError("sweep", "has no setting", "write for example ddpm:1000 ddim:20,50")
    if len(set(map(str, found))) < len(found):
        raise UsageError("sweep", "has a setting twice", "give it once")
    return found


def _number(word: str, text: str, kind: Callable[[str], float]) -> float:
    try:
        found = kind(text)
    except ValueError:
        found = -1
    if not found >= 0 or not np.isfinite(found):
        raise UsageError(
            "sweep", f"{word[:40]!r} has {text[:20]!r}, which is not a number", "write for example ddim:20,50"
        )
    return found


def sweep(
    model: KerasModel,
    data: Array | Series | str | PathLike[str],
    settings: str | Sequence[Setting] | None = None,
    n: int = 2000,
    *,
    metrics: Sequence[str] | None = None,
    repeats: int = 5,
    seed: int = 0,
    encoder: KerasModel | None = None,
    more: Mapping[str, Array] | None = None,
    report: Report | None = None,
) -> Sweep:
    """Sample from a model with every setting, and score the samples against data.

    Every setting begins with the same noise.

    Args:
        model: a converted diffusion model whose samples are series.
        data: as for :func:`wdport.evaluate`. Columns are found by the model's feature names; if the model has no
            statistics, so that its series are z-scores, the data are z-scored.
        settings: such as ``"ddpm:1000 ddim:20,50"``: samplers with numbers of steps, by the rule of
            :func:`wdport.sample`. By default the model's default sampler with all steps.
        n: samples of each.
        metrics, repeats, encoder: as for :func:`wdport.evaluate`.
        seed: of the samples and of the scores.
        more: other sets of series to score, by name.
        report: called before every run of the sampler and before every score.

    Returns:
        A :class:`Sweep`.

    Raises:
        UsageError: a setting is not one of the model, or its samples do not fit the data.
    """
    programs = programs_of(model)
    real = _units_of(data, programs.network.about)
    listed = _listed(settings, programs.network.process().samplers[0])
    jobs = [plan_job(programs, Request(count=n, sampler=each.sampler, steps=each.steps, eta=each.eta, seed=seed))
            for each in listed]  # fmt: skip
    sets: dict[str, Array] = {}
    drawn = []
    for at, (setting, job) in enumerate(zip(listed, jobs, strict=True)):
        if report is not None:
            report(at, len(jobs), f"sampling, {setting}")
        calls = len(job.sampler.plan.steps)
        since, clock = time.monotonic(), Clock(n, None)
        series = Samples.join(list(job.draw(done=clock))).decoded
        drawn.append(Drawn(setting, calls, time.monotonic() - since - clock.compiling))
        sets[str(setting)] = require_series(str(setting), series)
    found = evaluate(
        {**sets, **(more or {})}, real, metrics=metrics, repeats=repeats, seed=seed, encoder=encoder, report=report
    )
    return Sweep(drawn, found, {**sets, **(more or {})})


def _units_of(data: Array | Series | str | PathLike[str], about: Diffused) -> Array | Series:
    """The data in the units of the model's series: its features by name, and z-scored if it has no statistics.

    Raises :class:`UsageError` for a model whose samples are not series.
    """
    decoding = about.decoding
    if not isinstance(decoding, Decoding) or len(decoding.shape) != 2:
        raise UsageError("model", "has samples that are not series", "give a model of time series")
    if isinstance(data, np.ndarray):
        if data.ndim == 3:
            return data
        data = Series.of(data)
    series = data if isinstance(data, Series) else read_series(data)
    if series.named and about.features and set(about.features) <= set(series.names):
        series = series.choose(about.features)
    if any(decoding.mean) or any(each != 1.0 for each in decoding.std):
        return series
    return replace(series, values=Statistics.of(series.values).normalize(series.values))


def _listed(settings: str | Sequence[Setting] | None, default: str) -> list[Setting]:
    if settings is None:
        return [Setting(default)]
    return parse_settings(settings) if isinstance(settings, str) else list(settings)
