"""The types of ``facts.json`` in an exported file."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from wdport.declared import Count, Positive


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


class WeightFacts(TypedDict):
    """One array of the weights."""

    dtype: str
    """Its dtype."""
    shape: list[Count]
    """Its shape."""


class ExportFacts(TypedDict):
    """Facts about an exported file. It also has the sizes of the model family, such as the number of features."""

    format: Literal[1]
    """Format of the file."""
    what: Literal["denoiser", "sampler"]
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
    """Dtype of states and predictions."""
    precision: Literal["highest", "default"]
    """Precision of float32 products."""
    classes: NotRequired[Positive]
    """Number of classes; absent for a model without labels."""
    target: str
    """What the network predicts: ``noise``, a clean sample or a velocity."""
    compute_dtype: str
    """Dtype that the Keras model computes in."""
    pad_widths: Positive
    """Multiple to which widths were padded with zeros."""
    model: dict[str, object]
    """Configuration of the model; the model family defines its meaning."""
    sampler: NotRequired[SamplerFacts]
    """The sampler; absent for a denoiser."""
    weights: list[WeightFacts]
    """The arrays of ``weights.bin``, one after another."""
