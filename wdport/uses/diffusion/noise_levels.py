"""Processes over continuous noise levels, from the ``scheduler_config.json`` of diffusers' classes for them.

A network on noise levels sees x = data + level * noise. Its samplers are those of every diffusion, over the same state
in other units: (x / unit) / sqrt(1 + (level / unit)^2), where ``unit`` is the assumed deviation of the data. Classes
differ in the levels that they visit, the time and the state that the network gets, and what it predicts.

Sources: diffusers 0.42.1; score SDE, arXiv 2011.13456, app. C and G; EDM, arXiv 2206.00364, table 1; consistency
models, arXiv 2303.01469, app. C. The library's tables are float32, these are float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import log, sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wdport.base.errors import UsageError, did_you_mean
from wdport.models.interface import FORMER_SAMPLERS, Array, Clipping
from wdport.uses.diffusion.diffusion import TRIAL, Diffusion, over_levels
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.process import (
    UNIFORM,
    Network,
    Process,
    Run,
    TrainedProcess,
    is_number,
    require_choice,
    require_fields,
    require_integer,
)
from wdport.uses.diffusion.reference_samplers import Change, Noise, consistency_states, solver_states
from wdport.uses.diffusion.reference_scheduler import CONSISTENCY, SCORE_SDE, ReferenceLevels
from wdport.uses.diffusion.sampler_updates import SAMPLERS, Updates, consistency, predictor_corrector
from wdport.uses.diffusion.schedules import LEVELS, RHO, WHOLE, exponential, karras, step_count

if TYPE_CHECKING:
    from wdport.uses.diffusion.noise import Noising

EDM: Final = "EDMEulerScheduler"
EDM_SOLVER: Final = "EDMDPMSolverMultistepScheduler"

_EDM: Final[Mapping[str, Any]] = {
    "sigma_min": 0.002, "sigma_max": 80.0, "sigma_data": 0.5, "sigma_schedule": "karras", "num_train_timesteps": 1000,
    "prediction_type": "epsilon", "rho": RHO, "final_sigmas_type": "zero",
}  # fmt: skip

LEVEL_CLASSES: Final[Mapping[str, Mapping[str, Any]]] = {
    SCORE_SDE: {"num_train_timesteps": 2000, "snr": 0.15, "sigma_min": 0.01, "sigma_max": 1348.0, "sampling_eps": 1e-5,
                "correct_steps": 1},
    EDM: _EDM,
    EDM_SOLVER: {**_EDM, "solver_order": 2, "thresholding": False, "dynamic_thresholding_ratio": 0.995,
                 "sample_max_value": 1.0, "algorithm_type": "dpmsolver++", "solver_type": "midpoint",
                 "lower_order_final": True, "euler_at_final": False},
    CONSISTENCY: {"num_train_timesteps": 40, "sigma_min": 0.002, "sigma_max": 80.0, "sigma_data": 0.5, "s_noise": 1.0,
                  "rho": RHO, "clip_denoised": True},
}  # fmt: skip
"""The classes that are read, with all of their fields and the library's defaults."""

FIXED: Final[Mapping[str, object]] = {"final_sigmas_type": "zero", "thresholding": False, "s_noise": 1.0}
"""Fields that change every sampler, and their supported values. Others that :class:`NoiseLevels` lacks concern the
class's own steps alone."""

FAMILIAR: Final = ("ddim-textbook", "euler", "euler-ancestral", "heun", "dpm++2m", "dpm++2m-sde", "unipc")
"""Samplers of every process except consistency models, whose prediction is not the mean of the data."""

USUAL: Final[Mapping[str, int | None]] = {SCORE_SDE: None, EDM: 50, EDM_SOLVER: 50, CONSISTENCY: 1}
"""Default number of steps, that of the library's pipelines; None is every step of training."""

MOST: Final = 100_000
"""Steps of a sampler."""

LARGEST: Final = 1e9
"""Every number of a scheduler is below it."""

LEAST: Final = 1e-44
"""Added to the noise level in the time of a consistency model."""


@dataclass(frozen=True)
class NoiseLevels(TrainedProcess):
    """The fields of the class ``kind`` that determine a trajectory; those that it lacks have no effect.

    Raises ``ValueError`` for unsupported values.
    """

    kind: str
    sigma_min: float
    sigma_max: float
    num_train_timesteps: int
    sigma_data: float = 1.0
    sigma_schedule: str = "karras"
    prediction_type: str = "epsilon"
    rho: float = RHO
    snr: float = 0.15
    sampling_eps: float = 1e-5
    correct_steps: int = 1
    clip_denoised: bool = False

    def __post_init__(self) -> None:
        for name in ("sigma_min", "sigma_max", "sigma_data", "rho", "snr", "sampling_eps"):
            if not (is_number(getattr(self, name)) and 0.0 < getattr(self, name) < LARGEST):
                raise ValueError(f"{name} is not a positive number below {LARGEST:g}")
        if self.sigma_min >= self.sigma_max:
            raise ValueError("sigma_min is not below sigma_max")
        if self.sampling_eps >= 1:
            raise ValueError("sampling_eps is not below 1")
        require_integer("num_train_timesteps", self.num_train_timesteps, 2, MOST)
        require_integer("correct_steps", self.correct_steps, 0, 100)
        require_choice("sigma_schedule", self.sigma_schedule, ("karras", "exponential"))
        require_choice("prediction_type", self.prediction_type, ("epsilon", "v_prediction"))
        if type(self.clip_denoised) is not bool:
            raise ValueError("clip_denoised is not true or false")

    @classmethod
    def from_fields(cls, kind: str, values: Mapping[str, Any]) -> NoiseLevels:
        """From the library's fields of the class ``kind``; raises ``ValueError``."""
        for name, supported in FIXED.items():
            if values.get(name, supported) != supported:
                raise ValueError(f"{name} {values[name]!r:.60} of {kind} is not supported")
        declared = LEVEL_CLASSES.get(kind, {})
        return cls(kind, **{field.name: values[field.name] for field in fields(cls) if field.name in declared})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NoiseLevels:
        """From :meth:`to_dict`, or a part of it, with the library's defaults; raises ``ValueError``."""
        require_fields(cls, values)
        names, kind = {field.name for field in fields(cls)}, str(values.get("kind"))
        if kind not in LEVEL_CLASSES:
            raise ValueError(f"{kind!r:.60} is not supported")
        usual = {name: value for name, value in LEVEL_CLASSES[kind].items() if name in names}
        return cls(**{**usual, **values})

    def __str__(self) -> str:
        return f"noise levels from {self.sigma_max:g} to {self.sigma_min:g}, {self.kind}"

    def to_dict(self) -> dict[str, object]:
        """As JSON values."""
        return asdict(self)

    @property
    def unit(self) -> float:
        """The deviation of the data, by which states are divided."""
        return 1.0 if self.kind == SCORE_SDE else self.sigma_data

    @property
    def pixels(self) -> tuple[float, float]:
        """The factor and the offset that make images from 0 to 1 of a clean state."""
        return (1.0, 0.0) if self.kind == SCORE_SDE else (self.unit / 2.0, 0.5)

    @property
    def clipping(self) -> Clipping | None:
        """How the predicted clean state is changed."""
        return Clipping(1.0 / self.unit) if self.kind == CONSISTENCY and self.clip_denoised else None

    @property
    def target(self) -> str:
        """What the network predicts."""
        if self.kind == SCORE_SDE:
            return "score"
        return "velocity" if self.kind != CONSISTENCY and self.prediction_type == "v_prediction" else "edm"

    @property
    def times(self) -> tuple[float, float]:
        """The smallest and the largest time that the network gets."""
        first, last = self._times(np.array([self.sigma_min, self.sigma_max]))
        return float(first), float(last)

    @property
    def own(self) -> Mapping[str, Updates]:
        """The class's own sampler, which is the default."""
        if self.kind == SCORE_SDE:
            return {"predictor-corrector": predictor_corrector(self.snr, self.correct_steps)}
        if self.kind == CONSISTENCY:
            return {"consistency": consistency}
        name = "euler" if self.kind == EDM else "dpm++2m"
        return {name: SAMPLERS[name]}

    def levels(self, count: int | None) -> Array:
        """(count,) falling noise levels; raises :class:`UsageError`."""
        last = self.num_train_timesteps
        count = step_count(count, USUAL[self.kind] or last, last if self.kind == CONSISTENCY else MOST)
        if self.kind == CONSISTENCY:
            # Of all levels of training, every (last // count)th.
            return karras(self.sigma_max, self.sigma_min, last, self.rho)[: count * (last // count) : last // count]
        if self.kind == SCORE_SDE or self.sigma_schedule == "exponential":
            return exponential(self.sigma_max, self.sigma_min, count)
        return karras(self.sigma_max, self.sigma_min, count, self.rho)

    def steps(self, sampler: str, levels: Array) -> Diffusion:
        """The process whose steps are these levels."""
        times = self._times(levels)
        if sampler == "predictor-corrector":
            # The library's network gets levels that end a little above the smallest one.
            share = np.linspace(1.0, self.sampling_eps, len(levels))
            times = self.sigma_min * (self.sigma_max / self.sigma_min) ** share
        scaled = levels / self.unit
        scales = np.append(1.0, np.sqrt(1.0 + scaled[::-1] ** 2)) if self.kind == SCORE_SDE else None
        floor = self.sigma_min / self.unit if self.kind == CONSISTENCY else 0.0
        return replace(over_levels(scaled, times, self.target), checkpoint_samplers=self.own, clip=self.clipping,
                       scales=scales, floor=floor)  # fmt: skip

    def process(self) -> LevelProcess:
        """The plans of every sampler."""
        return LevelProcess(self)

    def _times(self, levels: Array) -> Array:
        if self.kind == SCORE_SDE:
            return levels
        return 250.0 * np.log(levels + LEAST) if self.kind == CONSISTENCY else 0.25 * np.log(levels)


@dataclass(frozen=True, eq=False)
class LevelProcess(Process):
    """The process of a network on noise levels; ``levels``, if given, are visited in place of the scheduler's."""

    scheduler: NoiseLevels
    spacing: str | None = None
    levels: Array | None = None

    @property
    def target(self) -> str:
        return self.scheduler.target

    @property
    def clip(self) -> Clipping | None:
        return self.scheduler.clipping

    @property
    def samplers(self) -> tuple[str, ...]:
        more = () if self.scheduler.kind == CONSISTENCY else FAMILIAR
        return tuple(dict.fromkeys([*self.scheduler.own, *more]))

    def plan(
        self, sampler: str | None = None, steps: int | None = None, eta: float = 0.0, times: int = 1,
        changed: bool = False,
    ) -> SamplingPlan:  # fmt: skip
        name = sampler or self.samplers[0]
        return self._over(name, steps).plan(name, None, eta, times, changed)

    def respaced(self, spacing: str, count: int | None) -> LevelProcess:
        if spacing in WHOLE or self.scheduler.kind == CONSISTENCY:
            in_steps = f"{spacing} spacing is for a diffusion in steps"
            what = "a consistency model takes the levels of its training" if spacing in LEVELS else in_steps
            raise UsageError("spacing", what, "leave it out")
        if spacing not in LEVELS:
            fix = did_you_mean(spacing, LEVELS) or f"use one of {', '.join(LEVELS)}"
            raise UsageError("spacing", f"unknown spacing {spacing!r}", fix)
        usual = self.scheduler.levels(count)
        return replace(self, spacing=spacing, levels=LEVELS[spacing](usual[0], usual[-1], len(usual)))

    def noising(self, law: str = UNIFORM) -> Noising:
        from wdport.uses.diffusion.noise import EdmNoising, ScoreNoising  # imports jax

        scheduler = self.scheduler
        if law != UNIFORM:
            raise UsageError("law", f"{law} is for diffusions in steps", "leave it out")
        if scheduler.kind == CONSISTENCY:
            raise UsageError("model", "training of a consistency model is not implemented", "sample from it only")
        limits = scheduler.sigma_min, scheduler.sigma_max
        if scheduler.kind == SCORE_SDE:
            return ScoreNoising(*limits, scheduler.sampling_eps)
        return EdmNoising(*limits, scheduler.unit, scheduler.target == "velocity")

    @property
    def runs(self) -> Sequence[Run]:
        return [Run(sampler, 0.0, self.target) for sampler in self.scheduler.own]

    def trial(self, run: Run, changed: bool = False) -> SamplingPlan:
        process = self._over(run.sampler, TRIAL)
        return process.at(run.sampler, process.rule(None), run.eta, run.target, changed)

    def loop(self, run: Run, network: Network, init: Array, tape: Array | Noise) -> list[Array]:
        return ReferenceLevels(self._document).states(network, TRIAL, init, tape)

    def visited(self, run: Run) -> list[int]:
        repeats = 1 + self.scheduler.correct_steps if run.sampler == "predictor-corrector" else 1
        return [step for step in range(TRIAL, 0, -1) for _ in range(repeats)]

    def count(self, sampler: str) -> int:
        return TRIAL

    def plain(
        self, run: Run, network: Network, init: Array, noise: Noise, change: Change | None = None, repeats: int = 1
    ) -> Array:
        if run.sampler == "predictor-corrector":
            return self.loop(run, network, init, noise)[-1]
        scheduler = self.scheduler
        levels = _plain_levels(scheduler, TRIAL) if self.levels is None else self.levels.tolist()
        # By the number of the step, which falls to 0, the clean state.
        sigma = np.array([0.0, *reversed(levels)])

        def clean(y: Array, step: int) -> Array:
            """The clean state as the papers have it, from x = data + sigma * noise."""
            level, unit = sigma[step], scheduler.unit
            x = unit * sqrt(1.0 + (level / unit) ** 2) * y
            per_log = 250.0 if scheduler.kind == CONSISTENCY else 0.25
            time = np.full(len(y), level if scheduler.kind == SCORE_SDE else per_log * log(level), y.dtype)
            if scheduler.target == "score":
                return np.asarray(x + level**2 * network(x, time)) / unit
            floor = scheduler.sigma_min if scheduler.kind == CONSISTENCY else 0.0
            skip = unit**2 / ((level - floor) ** 2 + unit**2)
            gain = (level - floor) * unit / sqrt(level**2 + unit**2)
            sign = -1.0 if scheduler.target == "velocity" else 1.0
            return np.asarray(skip * x + sign * gain * network(x / sqrt(level**2 + unit**2), time)) / unit

        steps, bars = list(range(TRIAL, 0, -1)), 1.0 / (1.0 + (sigma / scheduler.unit) ** 2)
        if run.sampler == "consistency":
            least = scheduler.sigma_min / scheduler.unit
            return consistency_states(clean, bars, least, steps, init, noise, change, repeats)[-1]
        return solver_states(run.sampler, lambda y, step: clean(y, int(step[0])), bars, np.arange(TRIAL + 1.0),
                             "sample", steps, init, noise, run.eta, change, repeats)[-1]  # fmt: skip

    @property
    def _document(self) -> dict[str, Any]:
        """The class and its fields, as the library takes them."""
        values = self.scheduler.to_dict()
        return {"_class_name": values["kind"],
                **{name: values[name] for name in LEVEL_CLASSES[self.scheduler.kind] if name in values}}  # fmt: skip

    def _over(self, sampler: str, steps: int | None) -> Diffusion:
        name = FORMER_SAMPLERS.get(sampler, sampler)
        if name not in self.samplers:
            raise UsageError("sampler", f"unknown sampler {sampler!r}", f"use one of {', '.join(self.samplers)}")
        levels = self.scheduler.levels(steps) if self.levels is None else self.levels
        return replace(self.scheduler.steps(name, levels), spacing=self.spacing)


def _plain_levels(scheduler: NoiseLevels, count: int) -> list[float]:
    """The falling levels of a plain loop, one by one as the papers have them."""
    if scheduler.kind == CONSISTENCY:
        every = scheduler.num_train_timesteps
        shares = [index * (every // count) / (every - 1) for index in range(count)]
    else:
        shares = [index / max(count - 1, 1) for index in range(count)]
    first, last, rho = scheduler.sigma_max, scheduler.sigma_min, scheduler.rho
    if scheduler.kind == SCORE_SDE or scheduler.sigma_schedule == "exponential":
        return [first * (last / first) ** share for share in shares]
    roots = first ** (1.0 / rho), last ** (1.0 / rho)
    return [(roots[0] + share * (roots[1] - roots[0])) ** rho for share in shares]
