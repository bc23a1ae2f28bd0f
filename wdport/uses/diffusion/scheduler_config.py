"""The process of a diffusers pipeline, from its ``scheduler_config.json``, by the scheduler's class and all of its
fields.

A class is a :class:`Scheduler` if its network is trained as DDPM's is: it sees signal * data + noise * noise at a whole
step, and the betas determine both factors. Classes over noise levels are :class:`NoiseLevels`; flows are refused by
name.

Source: diffusers 0.42.1; tests compare defaults and fields with the library's classes. Its steps are numbered 0 to
T - 1, ours 1 to T: its network gets step - 1 at our step. Its tables are float32, these are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from math import cos, log, pi, sqrt
from typing import Any, Final

import numpy as np

from wdport.base.errors import UsageError, did_you_mean, printable
from wdport.models.interface import Array, Clipping
from wdport.uses.diffusion.diffusion import Diffusion, Loop
from wdport.uses.diffusion.noise_levels import LEVEL_CLASSES, NoiseLevels
from wdport.uses.diffusion.process import (
    Network,
    Run,
    TrainedProcess,
    is_number,
    require_choice,
    require_fields,
    require_integer,
)
from wdport.uses.diffusion.reference_scheduler import KINDS, ReferenceScheduler
from wdport.uses.diffusion.sampler_updates import END, NOTHING, Point, Row, View, learned_z, shares, x, z
from wdport.uses.diffusion.schedules import WHOLE, NoiseSchedule, per_mille, step_count, whole_steps

Fields = Mapping[str, Any]
"""The fields of a class, with the library's defaults."""

_BETAS: Final[Fields] = {"num_train_timesteps": 1000, "beta_start": 1e-4, "beta_end": 0.02, "beta_schedule": "linear",
                         "trained_betas": None, "prediction_type": "epsilon"}  # fmt: skip
_SPACING: Final[Fields] = {"timestep_spacing": "linspace", "steps_offset": 0}
_CLIPPING: Final[Fields] = {"clip_sample": True, "clip_sample_range": 1.0}
_THRESHOLD: Final[Fields] = {"thresholding": False, "dynamic_thresholding_ratio": 0.995, "sample_max_value": 1.0}
_RESCALING: Final[Fields] = {"rescale_betas_zero_snr": False}
_SIGMAS: Final[Fields] = {"use_karras_sigmas": False, "use_exponential_sigmas": False, "use_beta_sigmas": False}
_FLOW: Final[Fields] = {"use_flow_sigmas": False, "flow_shift": 1.0}
_SHIFT: Final[Fields] = {"use_dynamic_shifting": False, "time_shift_type": "exponential"}
_END: Final[Fields] = {"final_sigmas_type": "zero"}
_STABLE: Final[Fields] = {"beta_start": 0.00085, "beta_end": 0.012}

_ANCESTRAL: Final[Fields] = {**_BETAS, **_SPACING, **_CLIPPING, **_THRESHOLD, **_RESCALING,
                             "timestep_spacing": "leading"}  # fmt: skip
_DDPM: Final[Fields] = {**_ANCESTRAL, "variance_type": "fixed_small"}
_DDIM: Final[Fields] = {**_ANCESTRAL, "set_alpha_to_one": True}
_SOLVER: Final[Fields] = {**_BETAS, **_THRESHOLD, **_SIGMAS, **_FLOW, **_SHIFT, "solver_order": 2,
                          "solver_type": "midpoint", "lower_order_final": True}  # fmt: skip
_DPM: Final[Fields] = {**_SOLVER, **_END, "algorithm_type": "dpmsolver++", "lambda_min_clipped": float("-inf"),
                       "variance_type": None}  # fmt: skip

OWN_STEPS: Final = ("DDPMScheduler", "DDPMParallelScheduler", "DDIMScheduler", "DDIMParallelScheduler")
"""Classes whose steps the samplers "ddpm" and "ddim" take. Of the others the diffusion is read, and not their steps."""

CLASSES: Final[Mapping[str, Fields]] = {
    "DDPMScheduler": _DDPM,
    "DDPMParallelScheduler": _DDPM,
    "DDIMScheduler": _DDIM,
    "DDIMParallelScheduler": _DDIM,
    "PNDMScheduler": {**_BETAS, **_SPACING, "timestep_spacing": "leading", "skip_prk_steps": False,
                      "set_alpha_to_one": False},
    "LMSDiscreteScheduler": {**_BETAS, **_SPACING, **_SIGMAS},
    "EulerDiscreteScheduler": {**_BETAS, **_SPACING, **_SIGMAS, **_END, **_RESCALING, "interpolation_type": "linear",
                               "sigma_min": None, "sigma_max": None, "timestep_type": "discrete"},
    "EulerAncestralDiscreteScheduler": {**_BETAS, **_SPACING, **_RESCALING},
    "HeunDiscreteScheduler": {**_BETAS, **_STABLE, **_SPACING, **_SIGMAS, **_CLIPPING, "clip_sample": False},
    "KDPM2DiscreteScheduler": {**_BETAS, **_STABLE, **_SPACING, **_SIGMAS},
    "KDPM2AncestralDiscreteScheduler": {**_BETAS, **_STABLE, **_SPACING, **_SIGMAS},
    "DPMSolverMultistepScheduler": {**_DPM, **_SPACING, **_RESCALING, "euler_at_final": False, "use_lu_lambdas": False},
    "DPMSolverSinglestepScheduler": {**_DPM, "lower_order_final": False},
    "DEISMultistepScheduler": {**_SOLVER, **_SPACING, "algorithm_type": "deis", "solver_type": "logrho"},
    "UniPCMultistepScheduler": {**_SOLVER, **_SPACING, **_END, **_RESCALING, "solver_type": "bh2", "predict_x0": True,
                                "disable_corrector": [], "solver_p": None, "sigma_min": None, "sigma_max": None,
                                "shift_terminal": None},
    **LEVEL_CLASSES,
}  # fmt: skip
"""The classes that are read."""

OLDER: Final[Fields] = {"tensor_format": "pt", "timestep_values": None, "predict_epsilon": True}
"""Fields that any class had in older releases."""

IMPLEMENTED: Final[Mapping[str, tuple[object, ...]]] = {
    "use_flow_sigmas": (False, None),
    "use_dynamic_shifting": (False, None),
    "timestep_type": ("discrete",),
    "shift_terminal": (None,),
    "timestep_values": (None,),
    "predict_epsilon": (True, None),
}
"""Fields that change what a network is trained for, and their supported values. Others are read by
:class:`Scheduler`, or concern the class's own steps alone."""

_KNOWN: Final = frozenset(OLDER).union(*CLASSES.values())
"""Fields of any class: the library keeps those of another class when it converts a configuration."""


def scheduler_fields(document: Mapping[str, object]) -> dict[str, object]:
    """The fields of a ``scheduler_config.json`` with its class's defaults; raises ``ValueError`` for an unknown class,
    an unknown field and an unsupported value. Names that begin with ``_`` are the library's own notes."""
    kind = document.get("_class_name")
    if not isinstance(kind, str) or kind not in CLASSES:
        named = "" if kind is None else f" {printable(repr(kind), 60)} is not supported"
        raise ValueError(f"_class_name{named or ' is missing'}")
    stated = {name: value for name, value in document.items() if not name.startswith("_")}
    if unknown := [name for name in stated if name not in _KNOWN]:
        meant = did_you_mean(unknown[0], CLASSES[kind])
        raise ValueError(f"unknown field {printable(repr(unknown[0]), 60)} of {kind}{meant and f'; {meant}'}")
    for name, supported in IMPLEMENTED.items():
        if (value := stated.get(name, supported[0])) not in supported:
            raise ValueError(f"{name} {printable(repr(value), 60)} of {kind} is not supported")
    for name in ("clip_sample", "rescale_betas_zero_snr"):
        if name not in CLASSES[kind] and stated.get(name, False) not in (False, None):
            raise ValueError(f"{name} is set, which {kind} does not have")
    values = {**CLASSES[kind], **stated}
    if values.get("variance_type") is None:  # of solvers, which add none; for DDPM the library takes its default
        values.pop("variance_type", None)
    return values


def read_scheduler(document: Mapping[str, object]) -> Scheduler | NoiseLevels:
    """From the content of a ``scheduler_config.json``; raises ``ValueError``."""
    values, kind = scheduler_fields(document), str(document["_class_name"])
    return NoiseLevels.from_fields(kind, values) if kind in LEVEL_CLASSES else Scheduler.from_fields(values)


def stored_scheduler(values: Mapping[str, Any]) -> Scheduler | NoiseLevels:
    """From ``to_dict`` of either; raises ``ValueError``."""
    return NoiseLevels.from_dict(values) if "kind" in values else Scheduler.from_dict(values)


LEARNED_RANGE: Final = "learned_range"
"""The variance is a share, which the network predicts, of the way between the two fixed ones, in logarithms."""

LEAST_VARIANCE: Final = 1e-20
"""The library's lower limit of a variance."""

LEAST, MOST = 1, 100_000
"""Steps of training."""

TARGETS: Final = {"epsilon": "noise", "sample": "sample", "v_prediction": "velocity"}
# The second computes the same deviation by way of the logarithm of the variance.
VARIANCES: Final = ("fixed_small", "fixed_small_log", "fixed_large", "learned_range")
SCHEDULES: Final[Mapping[str, Callable[[int, float, float], Array]]] = {
    "linear": lambda count, start, end: np.linspace(start, end, count),
    "scaled_linear": lambda count, start, end: np.linspace(sqrt(start), sqrt(end), count) ** 2,
    "squaredcos_cap_v2": lambda count, start, end: _cosine(count),
    "sigmoid": lambda count, start, end: start + (end - start) / (1.0 + np.exp(-np.linspace(-6.0, 6.0, count))),
}
"""(T, beta_start, beta_end) to beta (T,), float64."""


@dataclass(frozen=True)
class Scheduler(TrainedProcess):
    """The fields that determine a trajectory, with the library's defaults; ``clip`` is ``None`` without clipping.

    Raises ``ValueError`` for unsupported values.
    """

    num_train_timesteps: int = 1000
    beta_schedule: str = "linear"
    beta_start: float = 1e-4
    beta_end: float = 0.02
    trained_betas: tuple[float, ...] | None = None
    prediction_type: str = "epsilon"
    variance_type: str = "fixed_small"
    clip: float | None = 1.0
    timestep_spacing: str = "leading"
    steps_offset: int = 0
    set_alpha_to_one: bool = True
    rescale_betas_zero_snr: bool = False
    thresholding: bool = False
    dynamic_thresholding_ratio: float = 0.995
    sample_max_value: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.trained_betas, list):
            object.__setattr__(self, "trained_betas", tuple(self.trained_betas))
        require_integer("num_train_timesteps", self.num_train_timesteps, LEAST, MOST)
        require_integer("steps_offset", self.steps_offset, 0, self.num_train_timesteps - 1)
        for name, choices in (("beta_schedule", tuple(SCHEDULES)), ("prediction_type", tuple(TARGETS)),
                            ("variance_type", VARIANCES), ("timestep_spacing", WHOLE)):  # fmt: skip
            require_choice(name, getattr(self, name), choices)
        for name in ("set_alpha_to_one", "rescale_betas_zero_snr", "thresholding"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} is not true or false")
        if self.rescale_betas_zero_snr and self.prediction_type == "epsilon":
            # The state at step T is pure noise, from which a predicted noise gives no clean state.
            raise ValueError("rescale_betas_zero_snr is not supported with prediction_type epsilon")
        for name in ("beta_start", "beta_end"):
            if not (is_number(getattr(self, name)) and 0.0 < getattr(self, name) < 1.0):
                raise ValueError(f"{name} is not between 0 and 1")
        if self.clip is not None and not (is_number(self.clip) and self.clip > 0.0):
            raise ValueError("clip_sample_range is not a positive number")
        if not (is_number(self.dynamic_thresholding_ratio) and 0.0 <= self.dynamic_thresholding_ratio <= 1.0):
            raise ValueError("dynamic_thresholding_ratio is not a number from 0 to 1")
        if not (is_number(self.sample_max_value) and self.sample_max_value >= 1.0):
            raise ValueError("sample_max_value is not a number from 1")
        self._check_betas()

    def _check_betas(self) -> None:
        betas = self.trained_betas
        if betas is None:
            return
        if not isinstance(betas, tuple) or len(betas) != self.num_train_timesteps:
            raise ValueError(f"trained_betas are not {self.num_train_timesteps} numbers")
        if not all(is_number(beta) and 0.0 < beta < 1.0 for beta in betas):
            raise ValueError("trained_betas are not between 0 and 1")

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Scheduler:
        """From the library's fields that are this class's, without clipping unless ``clip_sample`` is true; raises
        ``ValueError``."""
        clips = values.get("clip_sample", False)
        if type(clips) is not bool:
            raise ValueError("clip_sample is not true or false")
        # null means false there, as in the library.
        values = {**values, **{name: values.get(name) or False for name in ("rescale_betas_zero_snr", "thresholding")}}
        read = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        return cls(**{**read, "clip": values.get("clip_sample_range", 1.0) if clips else None})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scheduler:
        """From :meth:`to_dict`; raises ``ValueError``."""
        require_fields(cls, values)
        return cls(**values)

    def __str__(self) -> str:
        return f"{self.num_train_timesteps} steps, {self.beta_schedule} betas, {self.prediction_type}"

    def to_dict(self) -> dict[str, object]:
        """As JSON values."""
        values = asdict(self)
        return {**values, "trained_betas": None if self.trained_betas is None else list(self.trained_betas)}

    @property
    def clipping(self) -> Clipping | None:
        """How the predicted clean state is changed; by thresholding if that is set, as in the library."""
        if self.thresholding:
            return Clipping(self.sample_max_value, self.dynamic_thresholding_ratio)
        return None if self.clip is None else Clipping(self.clip)

    @property
    def target(self) -> str:
        """What the network predicts, one of :data:`wdport.uses.diffusion.sampler_updates.TARGETS`."""
        return TARGETS[self.prediction_type]

    def schedule(self) -> NoiseSchedule:
        """beta, alpha and alpha_bar, (T+1,) float64, with a dummy at index 0."""
        if self.trained_betas is not None:
            betas = np.array(self.trained_betas, np.float64)
        else:
            betas = SCHEDULES[self.beta_schedule](self.num_train_timesteps, self.beta_start, self.beta_end)
        if self.rescale_betas_zero_snr:
            betas = _without_signal(betas)
        beta = np.concatenate([[0.0], betas])
        return NoiseSchedule(beta, 1.0 - beta, np.cumprod(1.0 - beta))

    def steps(self, count: int | None = None) -> Array:
        """(S,) int64, the library's steps for this number of them plus one; all of them if ``None``."""
        last = self.num_train_timesteps
        count = step_count(count, last, last)
        steps = whole_steps(self.timestep_spacing, count, last, self.steps_offset)
        if steps[0] > last:
            what = f"{count} steps from {self.steps_offset} on go beyond the last of {last}"
            raise UsageError("steps", what, "give fewer")
        return steps

    def process(self, fraction: bool = False, integer_times: bool = False) -> Scheduled:
        """The samplers "ddpm" and "ddim" are the library's; DDIM with ``eta`` as there.

        The network gets the library's step, or with ``fraction`` the step counted from 1, divided by T;
        ``integer_times`` if it can take no times in between.
        """
        schedule = self.schedule()
        last = self.num_train_timesteps
        all_points = [Point(t, sqrt(schedule.alpha_bar[t]), sqrt(1.0 - schedule.alpha_bar[t]), schedule.beta[t],
                       schedule.alpha[t]) for t in range(1, last + 1)]  # fmt: skip
        # Otherwise the library's DDIM ends at the noise level of its step 0, our step 1.
        end = END if self.set_alpha_to_one else all_points[0]._replace(step=0)

        def ddim(points: Sequence[Point], view: View, eta: float) -> Iterator[Row]:
            # The library's DDIM goes back by T // steps at every step, also where the spacing visits other steps.
            stride = last // (len(points) - 1)
            for now in points[:-1]:
                then = all_points[now.step - stride - 1] if now.step > stride else end
                yield now.step, (_ddim(now, then, view, eta), NOTHING, NOTHING)

        def retimed(network: Network) -> Network:
            return (lambda x, t: network(x, (t + 1) / last)) if fraction else network

        runs = [Run("ddpm", 0.0, self.target), Run("ddim", 0.0, self.target), Run("ddim", 0.5, self.target)]
        reference = ReferenceScheduler(self.to_dict())

        def loop(sampler: str) -> Loop:
            return lambda network, *arguments: reference.states(sampler, retimed(network), *arguments)

        return Scheduled(
            schedule,
            self.target,
            per_mille(last) if fraction else np.arange(last + 1) - 1.0,
            self.steps,
            checkpoint_samplers={"ddpm": self._ddpm, "ddim": ddim},
            loops={sampler: loop(sampler) for sampler in KINDS},
            listed=lambda count: [step + 1 for step in reference.steps(count)],
            runs=tuple(runs),
            silent=self.rescale_betas_zero_snr,
            scheduler=self,
            fraction=fraction,
            clip=self.clipping,
            integer_times=integer_times,
            learned=self.variance_type == LEARNED_RANGE,
        )

    def _ddpm(self, points: Sequence[Point], view: View, _: float) -> Iterator[Row]:
        for now, then in pairwise(points):
            mean, small, large = _ddpm(now, then, view)
            if self.variance_type == LEARNED_RANGE:
                logs = log(max(small, LEAST_VARIANCE)) / 2.0, log(large) / 2.0
                yield now.step, (mean + (learned_z if now.step > 1 else 0.0), NOTHING, NOTHING), logs
                continue
            # The library adds noise at every step but its step 0, which is our step 1.
            variance = (large if self.variance_type == "fixed_large" else small) if now.step > 1 else 0.0
            yield now.step, (mean + sqrt(variance) * z, NOTHING, NOTHING)


@dataclass(frozen=True, eq=False)
class Scheduled(Diffusion):
    """The process of a :class:`Scheduler`, and what it was made from."""

    scheduler: Scheduler = field(default_factory=Scheduler)
    fraction: bool = False

    def otherwise(self, **fields: Any) -> Scheduled:
        """The process of the same scheduler with other fields."""
        return replace(self.scheduler, **fields).process(self.fraction, self.integer_times)

    def respaced(self, spacing: str, count: int | None) -> Diffusion:
        if spacing in WHOLE:
            return replace(self.otherwise(timestep_spacing=spacing), spacing=spacing, thinned={})

        def ddim(points: Sequence[Point], view: View, eta: float) -> Iterator[Row]:
            for now, then in pairwise(points):
                yield now.step, (_ddim(now, then, view, eta), NOTHING, NOTHING)

        samplers = {"ddpm": self.checkpoint_samplers["ddpm"], "ddim": ddim}
        return replace(super().respaced(spacing, count), checkpoint_samplers=samplers)


def _ddpm(now: Point, then: Point, view: View) -> tuple[Array, float, float]:
    """The mean of the next visited step by the posterior, its variance, and that of the step."""
    beta = 1.0 - (now.signal / then.signal) ** 2
    mean = then.signal * beta / now.noise**2 * view.denoised(now)
    mean = mean + sqrt(1.0 - beta) * then.noise**2 / now.noise**2 * x
    return mean, beta * then.noise**2 / now.noise**2, beta


def _ddim(now: Point, then: Point, view: View, eta: float) -> Array:
    """DDIM with the predicted noise, even if the clean state is clipped."""
    sigma, direction = shares(now, then, eta)
    return then.signal * view.denoised(now) + direction * view.predicted_noise(now) + sigma * z


def _without_signal(betas: Array) -> Array:
    """Betas (T,) changed so that no signal is left at step T (arXiv 2305.08891, alg. 1)."""
    signal = np.sqrt(np.cumprod(1.0 - betas))
    bars = ((signal - signal[-1]) * signal[0] / (signal[0] - signal[-1])) ** 2
    rescaled: Array = 1.0 - bars / np.append(1.0, bars[:-1])
    return rescaled


def _cosine(count: int) -> Array:
    """Nichol and Dhariwal's (arXiv 2102.09672, eq. 17), capped at 0.999."""
    bar = [cos((i / count + 0.008) / 1.008 * pi / 2.0) ** 2 for i in range(count + 1)]
    return np.array([min(1.0 - after / before, 0.999) for before, after in pairwise(bar)])
