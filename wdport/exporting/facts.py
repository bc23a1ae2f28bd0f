"""The types of ``facts.json`` in an exported file."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from wdport.declared import Count, Number, Positive, Sha256


class SamplerFacts(TypedDict):
    """The sampler that a file holds."""

    name: str
    """Name of the sampler."""
    eta: float
    """Fraction of noise that a DDIM step adds; 0 for none."""
    steps: list[int]
    """Diffusion steps in the order of the run."""
    slots: Count
    """How many steps add noise: the length of the noise tape."""
    count: NotRequired[Positive | None]
    """The number of steps that was asked for; null for the sampler's default."""


class WeightFacts(TypedDict):
    """One array of the weights."""

    dtype: str
    """Its dtype."""
    shape: list[Count]
    """Its shape."""


class ArrayFacts(TypedDict):
    """An input or output of a program."""

    name: str
    """Its name."""
    dtype: str
    """Its dtype."""
    shape: list[Count | str]
    """Its shape; sizes that may differ between calls are text, such as ``b`` or ``4*t - 3``."""


class ProgramFacts(TypedDict):
    """A program of a network."""

    inputs: list[ArrayFacts]
    """Its inputs in order, after the weights."""
    outputs: list[ArrayFacts]
    """Its outputs in order."""


class ComparedFacts(TypedDict):
    """What ``wdport export --verify`` compared with the model before it wrote the file."""

    model: Sha256
    """SHA-256 of the converted file."""
    members: dict[str, Sha256]
    """SHA-256 of the weights and of every program that were compared, by member of the file."""
    programs: dict[str, Number]
    """For every program the largest error of its outputs, relative to float64 and as a multiple of the model's own
    error in its dtype."""
    bound: Number
    """The largest multiple that passes."""
    inputs: list[str]
    """The inputs that were compared, in words."""
    device: str
    """The device that the programs ran on."""


class ConditionFacts(TypedDict):
    """A conditioning input: one value for every sample."""

    name: str
    """Its name, such as labels or scale."""
    kind: Literal["class", "positive", "real"]
    """Its values: whole numbers from 0 below ``classes``, positive numbers, or any."""
    shape: list[Positive]
    """Shape of one sample's value."""


class ExportFacts(TypedDict):
    """Facts about an exported file. That of a denoiser or sampler also has the sizes of the model family, such as the
    number of features."""

    format: Literal[1]
    """Format of the file."""
    what: Literal["denoiser", "sampler", "network"]
    """What was exported."""
    wdport: str
    """Version of wdport that wrote it."""
    jax: str
    """Version of JAX that compiled it."""
    platforms: list[Literal["cpu", "cuda", "rocm", "tpu"]]
    """Platforms that it runs on."""
    batch: Positive | None
    """Number of samples per call; null for any number."""
    dtype: Literal["float32", "float64"]
    """Dtype of states and predictions, and of a network's floating-point inputs."""
    precision: Literal["highest", "default"]
    """Precision of float32 products."""
    classes: NotRequired[Positive]
    """Number of classes; absent for a model without labels."""
    condition: NotRequired[ConditionFacts]
    """The further input that a denoiser or sampler takes last; absent for a model without one."""
    programs: NotRequired[dict[str, ProgramFacts]]
    """The programs of a network by name; absent for a denoiser or sampler."""
    target: NotRequired[str]
    """What a denoiser predicts: ``noise``, a clean sample or a velocity; absent for a network."""
    compute_dtype: str
    """Dtype that the Keras model computes in."""
    pad_widths: NotRequired[Positive]
    """Multiple to which widths were padded with zeros; absent for a network."""
    model: dict[str, object]
    """Configuration of the model; the model family defines its meaning."""
    sampler: NotRequired[SamplerFacts]
    """The sampler; absent for a denoiser or network."""
    compared: NotRequired[ComparedFacts]
    """What was compared with the model; absent if nothing was."""
    weights: list[WeightFacts]
    """The arrays of ``weights.bin``, one after another."""
