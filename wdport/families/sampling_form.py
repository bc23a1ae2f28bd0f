"""The fields of ``sampling:`` in a mapping table: what sampling needs to know about your own generative model."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from wdport.declared import Also, Count, Positive

_Share = Annotated[float, Also(exclusiveMinimum=0, exclusiveMaximum=1)]


class ConditionForm(TypedDict, total=False):
    """A conditioning input: the network's third, after the state and the time."""

    name: Required[Annotated[str, Also(pattern=r"^[^\W\d]\w*$")]]
    """Its name, such as ``scale``."""
    kind: Literal["positive", "real"]
    """Its values: positive numbers, or any; ``real`` if absent."""
    shape: list[Positive]
    """Shape of one sample's value; a number if absent."""
    unconditional: float
    """Value that means no condition; required for guidance."""
    optional: bool
    """Whether the network also runs without it; false if absent."""


class SamplingForm(TypedDict, total=False):
    """Fields common to a diffusion and a flow."""

    shape: Required[Positive | Annotated[list[Positive], Also(minItems=1)]]
    """Shape of one sample without the batch, as the Keras model takes it."""
    name: Annotated[str, Also(pattern=r"^[^\W\d]\w*$")]
    """Name of the samples in the output file; ``samples`` if absent."""
    classes: Positive | None
    """Number of classes of a class-conditional model."""
    no_class: Count | None
    """Label that means no class; required for guidance."""
    condition: ConditionForm
    """Another input of one value for every sample, instead of labels."""


class FlowForm(SamplingForm, total=False):
    """A flow from noise at time 0 to data at time 1."""

    process: Required[Literal["flow"]]
    """Process that the network was trained to undo."""
    path: Literal["linear", "cosine"]
    """Path between noise and data; ``linear`` if absent."""
    target: Literal["velocity", "noise", "sample"]
    """What the network predicts; ``velocity`` if absent."""
    time: Annotated[float, Also(exclusiveMinimum=0, exclusiveMaximum=1 << 24)]
    """Time value passed to the network at the end of a flow; 1 if absent."""


class DiffusionForm(SamplingForm, total=False):
    """A diffusion with the fields and defaults of the ``scheduler_config.json`` of diffusers."""

    process: Required[Literal["diffusion"]]
    """Process that the network was trained to undo."""
    time: Literal["step", "fraction"]
    """Time value passed to the network of a diffusion: the ``step`` number from 0, or the ``fraction`` of all
    steps; ``step`` if absent."""
    num_train_timesteps: Annotated[int, Also(minimum=1, maximum=100_000)]
    """Steps of training, T."""
    beta_schedule: Literal["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid"]
    """How beta depends on the step."""
    beta_start: _Share
    """beta of the first step."""
    beta_end: _Share
    """beta of the last step."""
    trained_betas: Annotated[list[_Share], Also(minItems=1)] | None
    """beta of every step (T,), instead of a schedule."""
    prediction_type: Literal["epsilon", "sample", "v_prediction"]
    """What the network predicts: the noise, the clean sample, or the velocity."""
    variance_type: Literal["fixed_small", "fixed_small_log", "fixed_large"]
    """Variance of the noise that a DDPM step adds."""
    clip_sample: bool
    """Whether the predicted clean sample is clipped; false if absent."""
    clip_sample_range: Annotated[float, Also(exclusiveMinimum=0)] | None
    """Largest absolute value after clipping."""
    timestep_spacing: Literal["leading", "linspace", "trailing"]
    """Choice of the steps of a shorter run."""
    steps_offset: Count
    """Offset added to the steps under ``leading``."""
    set_alpha_to_one: bool
    """Whether the last DDIM step ends at a clean sample."""
