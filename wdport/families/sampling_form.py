"""The fields of ``sampling:`` in a mapping table: what sampling needs to know about your own generative model."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from msgspec import Meta

from wdport.declared import Count, Positive

_Share = Annotated[float, Meta(gt=0, lt=1)]


class ConditionForm(TypedDict, total=False):
    """A conditioning input: the network's third, after the state and the time."""

    name: Required[
        Annotated[Annotated[str, Meta(pattern=r"^[^\W\d]\w*$")], Meta(description="Its name, such as `scale`.")]
    ]
    kind: Annotated[Literal["positive", "real"], Meta(description=
        "Its values: positive numbers, or any; `real` if absent.")]  # fmt: skip
    shape: Annotated[list[Positive], Meta(description="Shape of one sample's value; a number if absent.")]
    unconditional: Annotated[float, Meta(description="Value that means no condition; required for guidance.")]
    optional: Annotated[bool, Meta(description="Whether the network also runs without it; false if absent.")]


class SamplingForm(TypedDict, total=False):
    """Fields common to a diffusion and a flow."""

    shape: Required[Annotated[Positive | Annotated[list[Positive], Meta(min_length=1)], Meta(description=
        "Shape of one sample without the batch, as the Keras model takes it.")]]  # fmt: skip
    name: Annotated[str, Meta(pattern=r"^[^\W\d]\w*$"), Meta(description=
        "Name of the samples in the output file; `samples` if absent.")]  # fmt: skip
    classes: Annotated[Positive | None, Meta(description="Number of classes of a class-conditional model.")]
    no_class: Annotated[Count | None, Meta(description="Label that means no class; required for guidance.")]
    condition: Annotated[ConditionForm, Meta(description=
        "Another input of one value for every sample, instead of labels.")]  # fmt: skip


class FlowForm(SamplingForm, total=False):
    """A flow from noise at time 0 to data at time 1."""

    process: Required[Annotated[Literal["flow"], Meta(description="Process that the network was trained to undo.")]]
    path: Annotated[Literal["linear", "cosine"], Meta(description="Path between noise and data; `linear` if absent.")]
    target: Annotated[Literal["velocity", "noise", "sample"], Meta(description=
        "What the network predicts; `velocity` if absent.")]  # fmt: skip
    time: Annotated[float, Meta(gt=0, lt=1 << 24), Meta(description=
        "Time value passed to the network at the end of a flow; 1 if absent.")]  # fmt: skip


class DiffusionForm(SamplingForm, total=False):
    """A diffusion with the fields and defaults of the ``scheduler_config.json`` of diffusers."""

    process: Required[
        Annotated[Literal["diffusion"], Meta(description="Process that the network was trained to undo.")]
    ]
    time: Annotated[Literal["step", "fraction"], Meta(description=
        "Time value passed to the network of a diffusion: the `step` number from 0, or the `fraction` of all steps; "
        "`step` if absent.")]  # fmt: skip
    num_train_timesteps: Annotated[int, Meta(ge=1, le=100_000), Meta(description=
        "Steps of training, T.")]  # fmt: skip
    beta_schedule: Annotated[Literal["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid"], Meta(description=
        "How beta depends on the step.")]  # fmt: skip
    beta_start: Annotated[_Share, Meta(description="beta of the first step.")]
    beta_end: Annotated[_Share, Meta(description="beta of the last step.")]
    trained_betas: Annotated[Annotated[list[_Share], Meta(min_length=1)] | None, Meta(description=
        "beta of every step (T,), instead of a schedule.")]  # fmt: skip
    prediction_type: Annotated[Literal["epsilon", "sample", "v_prediction"], Meta(description=
        "What the network predicts: the noise, the clean sample, or the velocity.")]  # fmt: skip
    variance_type: Annotated[Literal["fixed_small", "fixed_small_log", "fixed_large"], Meta(description=
        "Variance of the noise that a DDPM step adds.")]  # fmt: skip
    clip_sample: Annotated[bool, Meta(description="Whether the predicted clean sample is clipped; false if absent.")]
    clip_sample_range: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description=
        "Largest absolute value after clipping.")]  # fmt: skip
    timestep_spacing: Annotated[Literal["leading", "linspace", "trailing"], Meta(description=
        "Choice of the steps of a shorter run.")]  # fmt: skip
    steps_offset: Annotated[Count, Meta(description="Offset added to the steps under `leading`.")]
    set_alpha_to_one: Annotated[bool, Meta(description="Whether the last DDIM step ends at a clean sample.")]
