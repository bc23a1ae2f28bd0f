"""The user's own generative model: what sampling needs beyond the layers, from ``sampling:`` in its table.

A diffusion and a process over noise levels have the fields of a diffusers ``scheduler_config.json``, a flow its path
and its target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Required, TypedDict

from msgspec import Meta

from wdport.base.errors import MisfitError
from wdport.base.shared_types import Count, Positive, about
from wdport.families.custom import CustomConfig, CustomFamily
from wdport.models.interface import (
    Array,
    ArrayNames,
    Clipping,
    Condition,
    Decoding,
    Diffused,
    Document,
    NotDecoded,
    labels_of,
    unchanged,
)
from wdport.uses.diffusion.flow import PATHS, TARGETS, Flow
from wdport.uses.diffusion.noise_levels import LEVEL_CLASSES, NoiseLevels
from wdport.uses.diffusion.process import Process
from wdport.uses.diffusion.scheduler_config import LEARNED_RANGE, Scheduler

if TYPE_CHECKING:
    from jax import Array as Tensor

    from wdport.families.roles import OwnFamily
    from wdport.uses.roles import Sampled

_Share = Annotated[float, Meta(gt=0, lt=1)]
_Word = Annotated[str, Meta(pattern=r"^[^\W\d]\w*$")]


class ConditionForm(TypedDict, total=False):
    """A conditioning input: the network's third, after the state and the time."""

    name: Required[Annotated[_Word, about("Name of the input, such as `scale`.")]]
    kind: Annotated[Literal["positive", "real"], about(
        "`positive`: positive numbers. `real`, the default: any numbers.")]  # fmt: skip
    shape: Annotated[list[Positive], about("Shape of one sample's value; a single number if absent.")]
    unconditional: Annotated[float, about("Value that means no condition; required for guidance.")]
    optional: Annotated[bool, about("Whether the network also runs without this input; false if absent.")]


class SamplingForm(TypedDict, total=False):
    """Fields of every process."""

    shape: Required[Annotated[Positive | Annotated[list[Positive], Meta(min_length=1)], about(
        "Shape of one sample without the batch, as the Keras model takes it.")]]  # fmt: skip
    name: Annotated[_Word, about("Name of the samples in the output file; `samples` if absent.")]
    classes: Annotated[Positive | None, about("Number of classes of a class-conditional model.")]
    no_class: Annotated[Count | None, about("Label that means no class; required for guidance.")]
    condition: Annotated[ConditionForm, about(
        "A conditioning input with one value per sample, instead of labels.")]  # fmt: skip


class FlowForm(SamplingForm, total=False):
    """A flow from noise at time 0 to data at time 1."""

    process: Required[Annotated[Literal["flow"], about("Process that the network was trained to reverse.")]]
    path: Annotated[Literal["linear", "cosine"], about("Path between noise and data; `linear` if absent.")]
    target: Annotated[Literal["velocity", "noise", "sample"], about(
        "What the network predicts; `velocity` if absent.")]  # fmt: skip
    time: Annotated[float, Meta(gt=0, lt=1 << 24), about(
        "For a flow, the time value that the network gets at the end; 1 if absent.")]  # fmt: skip


class DiffusionForm(SamplingForm, total=False):
    """A diffusion with the fields and defaults of the ``scheduler_config.json`` of diffusers."""

    process: Required[Annotated[Literal["diffusion"], about("Process that the network was trained to reverse.")]]
    time: Annotated[Literal["step", "fraction"], about(
        "For a diffusion, the time value that the network gets: `step`, the step number, counting from 0, or "
        "`fraction`, the step number, counting from 1, divided by the number of steps; `step` if absent.")]  # fmt: skip
    num_train_timesteps: Annotated[int, Meta(ge=1, le=100_000), about(
        "For a diffusion, the number of steps in training, T.")]  # fmt: skip
    beta_schedule: Annotated[Literal["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid"], about(
        "How beta changes from step to step.")]  # fmt: skip
    beta_start: Annotated[_Share, about("beta of the first step.")]
    beta_end: Annotated[_Share, about("beta of the last step.")]
    trained_betas: Annotated[Annotated[list[_Share], Meta(min_length=1)] | None, about(
        "beta of every step, an array (T,), instead of `beta_schedule`.")]  # fmt: skip
    prediction_type: Annotated[Literal["epsilon", "sample", "v_prediction"], about(
        "What the network predicts: the noise, the clean sample, or the velocity.")]  # fmt: skip
    variance_type: Annotated[Literal["fixed_small", "fixed_small_log", "fixed_large"], about(
        "Variance of the noise that a DDPM step adds.")]  # fmt: skip
    clip_sample: Annotated[bool, about("Whether the predicted clean sample is clipped; false if absent.")]
    clip_sample_range: Annotated[Annotated[float, Meta(gt=0)] | None, about(
        "Largest absolute value after clipping.")]  # fmt: skip
    timestep_spacing: Annotated[Literal["leading", "linspace", "trailing"], about(
        "How steps are chosen for sampling with fewer than T steps.")]  # fmt: skip
    steps_offset: Annotated[Count, about("Offset added to the steps with `leading` spacing.")]
    set_alpha_to_one: Annotated[bool, about("Whether the last DDIM step ends at a clean sample.")]
    rescale_betas_zero_snr: Annotated[bool, about(
        "Whether the betas are rescaled so that no signal is left at the last step; not with `epsilon`.")]  # fmt: skip
    thresholding: Annotated[bool, about(
        "Whether the predicted clean sample is clipped to a quantile of its absolute values and then divided by the "
        "quantile, which replaces `clip_sample`; false if absent.")]  # fmt: skip
    dynamic_thresholding_ratio: Annotated[float, Meta(ge=0, le=1, description="The quantile of `thresholding`.")]
    sample_max_value: Annotated[float, Meta(ge=1, description=
        "Upper limit of the quantile that `thresholding` uses; the lower limit is 1.")]  # fmt: skip


class NoiseLevelsForm(SamplingForm, total=False):
    """A process over noise levels with the fields and defaults of a class of diffusers."""

    process: Required[Annotated[Literal["noise-levels"], about("Process that the network was trained to reverse.")]]
    scheduler: Required[Annotated[
        Literal["ScoreSdeVeScheduler", "EDMEulerScheduler", "EDMDPMSolverMultistepScheduler",
                "CMStochasticIterativeScheduler"],
        about("Name of the diffusers scheduler class.")]]  # fmt: skip
    sigma_min: Annotated[float, Meta(gt=0, description="Smallest noise level.")]
    sigma_max: Annotated[float, Meta(gt=0, description="Largest noise level.")]
    sigma_data: Annotated[float, Meta(gt=0, description="Standard deviation of the data.")]
    sigma_schedule: Annotated[Literal["karras", "exponential"], about("How the levels of a run are spaced.")]
    rho: Annotated[float, Meta(gt=0, description="Exponent of `karras`.")]
    num_train_timesteps: Annotated[int, Meta(ge=2, le=100_000), about(
        "For a score model, the default number of sampling steps; for a consistency model, the number of noise levels "
        "in training.")]  # fmt: skip
    prediction_type: Annotated[Literal["epsilon", "v_prediction"], about(
        "For EDM, the sign of the network's output: `v_prediction` is the negative of `epsilon`.")]  # fmt: skip
    snr: Annotated[float, Meta(gt=0, description="Signal-to-noise ratio of the corrector.")]
    sampling_eps: Annotated[float, Meta(gt=0, lt=1), about("Time at which the sampling of a score model ends.")]
    correct_steps: Annotated[Count, about("Number of corrections per step.")]
    clip_denoised: Annotated[
        bool, about("Whether the clean sample that a consistency model predicts is clipped to -1 to 1.")
    ]


_OWN: Final = {*SamplingForm.__annotations__, "process", "time", "scheduler"}
"""Fields other than those of a scheduler."""

_TIMES: Final = ("step", "fraction")
_MOST: Final = 1 << 24
"""Largest number of values of one sample."""

LAYERS: Final = 64
"""Upper estimate of the activations of about the state's size that exist at once; a model's own number is unknown."""


@dataclass(frozen=True)
class Sampling:
    """``shape`` is the shape of one sample, as the Keras model takes it, and ``name`` the name of the samples.
    ``process`` makes the plans; ``clip`` and ``condition`` are as in :class:`wdport.models.interface.Diffused`. Samples
    are states times ``unit``."""

    shape: tuple[int, ...]
    name: str
    process: Process
    clip: Clipping | None
    condition: Condition | None
    unit: float = 1.0


def read_sampling(document: Document, where: str) -> Sampling:
    """Read ``sampling:`` of a table; raises :class:`MisfitError`."""
    try:
        return _sampling(document)
    except ValueError as error:
        raise MisfitError(where, f"sampling: {error}", "see the guide for your own model") from None


def _sampling(document: Document) -> Sampling:
    kind = document.get("process")
    if kind not in ("diffusion", "flow", "noise-levels"):
        raise ValueError("process is not diffusion, flow or noise-levels")
    shape, name = document.get("shape"), document.get("name", "samples")
    # YAML's `true` is a bool, which Python counts among the integers.
    if isinstance(shape, int) and not isinstance(shape, bool):
        shape = [shape]
    if not isinstance(shape, list) or not shape or not all(type(size) is int and size > 0 for size in shape):
        raise ValueError("shape is not a list of whole numbers, the axes of one sample")
    if prod(shape) > _MOST:
        raise ValueError(f"shape {shape} has more than {_MOST} values")
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError("name is not one word, such as points")
    classes, no_class = _class(document, "classes"), _class(document, "no_class")
    # The label without a class is a row of the same table, so it is below `classes`.
    if no_class is not None and (classes is None or no_class >= classes):
        raise ValueError("no_class is not one of the classes")
    condition = labels_of(classes, no_class)
    if "condition" in document:
        if condition is not None:
            raise ValueError("condition and classes are given together")
        condition = _condition(document["condition"])
    if kind == "noise-levels":
        levels = _noise_levels(document)
        return Sampling(tuple(shape), name, levels.process(), levels.clipping, condition, levels.unit)
    process = (_flow if kind == "flow" else _diffusion)(document)
    return Sampling(tuple(shape), name, process, process.clip, condition)


def _condition(document: object) -> Condition:
    if not isinstance(document, Mapping) or (unknown := set(document) - set(ConditionForm.__annotations__)):
        what = f"has no field {min(map(str, unknown))!r}" if isinstance(document, Mapping) else "is not a mapping"
        raise ValueError(f"condition {what}")
    name, kind, shape = document.get("name"), document.get("kind", "real"), document.get("shape", [])
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError("condition: name is not one word, such as scale")
    if kind not in ("positive", "real"):
        raise ValueError("condition: kind is not positive or real")
    if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape) or prod(shape) > _MOST:
        raise ValueError("condition: shape is not a list of whole numbers")
    null, optional = document.get("unconditional"), document.get("optional", False)
    if null is not None and (type(null) not in (int, float) or not isfinite(null)):
        raise ValueError("condition: unconditional is not a number")
    if not isinstance(optional, bool):
        raise ValueError("condition: optional is not true or false")
    return Condition(name, "positive" if kind == "positive" else "real", tuple(shape), None, null, optional)


def _class(document: Document, name: str) -> int | None:
    value = document.get(name)
    if value is not None and (type(value) is not int or value < (name == "classes")):
        raise ValueError(f"{name} is not a whole number")
    return value


def _flow(document: Document) -> Process:
    if unknown := set(document) - set(FlowForm.__annotations__):
        raise ValueError(f"unknown field {min(map(str, unknown))!r} of a flow")
    path, target = document.get("path", "linear"), document.get("target", "velocity")
    for name, value, names in (("path", path, tuple(PATHS)), ("target", target, TARGETS)):
        if value not in names:
            raise ValueError(f"{name} is not one of {', '.join(names)}")
    factor = document.get("time", 1.0)
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 0.0 < factor < _MOST:
        raise ValueError("time is not a number, the time passed to the network at the end of the flow")
    return Flow(str(path), str(target), lambda time: time * factor)


def _diffusion(document: Document) -> Process:
    if unknown := set(document) - set(DiffusionForm.__annotations__):
        raise ValueError(f"unknown field {min(map(str, unknown))!r} of a diffusion")
    time = document.get("time", "step")
    if time not in _TIMES:
        raise ValueError(f"time is not one of {', '.join(_TIMES)}")
    values = {name: value for name, value in document.items() if name not in _OWN}
    if values.get("variance_type") == LEARNED_RANGE:
        raise ValueError(f"variance_type {LEARNED_RANGE} is supported of a UNet2DModel alone")
    return Scheduler.from_fields(values).process(time == "fraction", integer_times=time == "step")


def _noise_levels(document: Document) -> NoiseLevels:
    kind = str(document.get("scheduler"))
    if kind not in LEVEL_CLASSES:
        raise ValueError(f"scheduler is not one of {', '.join(LEVEL_CLASSES)}")
    values = {name: value for name, value in document.items() if name not in _OWN}
    if unknown := set(values) - set(LEVEL_CLASSES[kind]):
        raise ValueError(f"unknown field {min(map(str, unknown))!r} of {kind}")
    return NoiseLevels.from_fields(kind, {**LEVEL_CLASSES[kind], **values})


class CustomSampled(CustomFamily):
    """A :class:`CustomFamily` whose table has ``sampling:``."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sampling = read_sampling(self.table.sampling, self.table.path)

    def process(self, config: CustomConfig, table: Callable[[str], Array]) -> Process:
        return self.sampling.process

    def diffused(self, config: CustomConfig) -> Diffused:
        sampling = self.sampling
        axis, names = "place" if len(sampling.shape) > 1 else "number", (sampling.name, "decoded")
        decoding: Decoding | NotDecoded = NotDecoded(
            "samples are the output of the network", "samples are not decoded", "leave out known values", data=True
        )
        if sampling.unit != 1.0:
            last = sampling.shape[-1]
            names = ("states", sampling.name)
            decoding = Decoding(
                sampling.shape, unchanged, unchanged, (0.0,) * last, (sampling.unit,) * last, "of the data"
            )
        state, decoded = (ArrayNames(name, axis, axis) for name in names)
        return Diffused(sampling.shape, state, decoded, decoding, LAYERS * prod(sampling.shape), {}, sampling.clip,
                        sampling.condition)  # fmt: skip

    def to_series(self, config: CustomConfig, states: Array | Tensor, /) -> Tensor | None:
        return None if self.sampling.unit == 1.0 else unchanged(states) * self.sampling.unit


if TYPE_CHECKING:  # checked by mypy

    def _roles(family: CustomSampled) -> tuple[OwnFamily, Sampled]:
        return family, family
