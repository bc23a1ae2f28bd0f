"""The verdict of ``wdport verify --json`` as types."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from wdport.declared import Count, Number, Sha256


class FindingFacts(TypedDict):
    """An objection of a gate to the port, or a notice."""

    subject: Annotated[str, Meta(description="Layer, variable, constant or run that it is about; empty for the whole.")]
    part: Annotated[str, Meta(description="The part of it, in words.")]
    kind: Annotated[str, Meta(description=
        "`notice`, `waived` and `bound` fail nothing; every other kind fails the gate.")]  # fmt: skip
    value: Annotated[Number | None, Meta(description="Number that exceeds the bound; null for a fact.")]
    bound: Annotated[Number | None, Meta(description="The bound; null for a fact.")]
    leak: Annotated[bool, Meta(description="Whether the error is of the size of float32 rounding.")]
    text: Annotated[str, Meta(description="The sentence.")]


class GateFacts(TypedDict):
    """One gate."""

    name: Annotated[str, Meta(description="Letter of the gate.")]
    title: Annotated[str, Meta(description="Name of the gate.")]
    meaning: Annotated[str, Meta(description="What it compares.")]
    passed: Annotated[bool, Meta(description="Whether there are no objections and everything was compared.")]
    compared: Annotated[Count, Meta(description="Number of comparisons made.")]
    expected: Annotated[Count, Meta(description="Number of comparisons required.")]
    worst: Annotated[Number | None, Meta(description="Largest number; null if nothing was measured.")]
    bound: Annotated[Number | None, Meta(description="Its bound; null if nothing was measured.")]
    where: Annotated[str, Meta(description="The quantity with the largest number.")]
    seconds: Annotated[float | None, Meta(description="Duration in seconds; null if it was not measured.")]
    findings: Annotated[list[FindingFacts], Meta(description="Its objections, then its notices.")]


class TapFacts(TypedDict):
    """One layer. Errors are relative; float32 errors are multiples of the reference's own float32 error."""

    reference: Annotated[str, Meta(description="Path of the PyTorch module; its second call is `X#2`.")]
    candidate: Annotated[str, Meta(description="Path of the Keras layer.")]
    part: Annotated[int | None, Meta(description=
        "Index of the part of the output that it belongs to; null if it belongs to none.")]  # fmt: skip
    isolated: Annotated[Number, Meta(description="Float64 error of its outputs when it is fed the reference's inputs.")]
    inputs: Annotated[Number, Meta(description="Float64 error of the inputs that the surrounding code feeds it.")]
    cumulative: Annotated[Number, Meta(description="Float64 error of its outputs within the running network.")]
    rms_ratio: Annotated[Number, Meta(description="Root mean square of its float32 error, as a multiple.")]
    max_ratio: Annotated[Number, Meta(description="Largest float32 error, as a multiple.")]
    inputs_ratio: Annotated[Number, Meta(description="Float32 error of its inputs, as a multiple.")]
    bias: Annotated[Number, Meta(description="Mean of its float32 error, as a share of its root mean square.")]
    share32: Annotated[tuple[Number, Number], Meta(description=
        "Share of float64 values that float32 holds exactly, of the reference and of the port.")]  # fmt: skip
    gradient: Annotated[Number | None, Meta(description=
        "Float64 error of the gradient by its outputs; null if that gate was not run.")]  # fmt: skip
    bfloat16: Annotated[Number | None, Meta(description=
        "Error under bfloat16, as a multiple; null if that gate was not run.")]  # fmt: skip
    caller: Annotated[str, Meta(description="Layer in whose code it is called; empty for the network.")]
    conditioned: Annotated[Number, Meta(description=
        "Largest float64 error that is left out, since one rounding of its inputs explains it.")]  # fmt: skip


class PartFacts(TypedDict):
    """One part of the output."""

    name: Annotated[str, Meta(description="Its name.")]
    values: Annotated[Number, Meta(description="Float64 error of its values.")]
    decoded: Annotated[Number | None, Meta(description=
        "Float64 error of its decoding with all other parts zero; null if unknown.")]  # fmt: skip
    ratio: Annotated[Number, Meta(description="Float32 error of its worst channel, as a multiple of the reference's.")]
    energy: Annotated[Number | None, Meta(description="Share of the decoded reference's energy; null if unknown.")]
    gradient: Annotated[Number | None, Meta(description=
        "Float64 error of the gradient by the same part of the input; null if that gate was not run.")]  # fmt: skip


class OverlayFacts(TypedDict):
    """One channel of one sample, decoded from one part only."""

    part: Annotated[str, Meta(description="The part.")]
    reference: Annotated[list[Number], Meta(description="The reference in float64.")]
    candidate: Annotated[list[Number], Meta(description="The port in float32.")]


class TrajectoryFacts(TypedDict):
    """One sampler, run on both sides from the same state and noise tape."""

    sampler: Annotated[str, Meta(description="Name of the sampler.")]
    steps: Annotated[list[int], Meta(description="Diffusion steps in the order of the run.")]
    logic: Annotated[list[Number], Meta(description="Relative float64 error of the state after each step.")]
    single: Annotated[list[Number], Meta(description=
        "Relative error of the float32 port against float64 after each step.")]  # fmt: skip
    ratio: Annotated[Number | None, Meta(description=
        "Root mean square of that as a multiple of the float32 reference's; null if it was not run.")]  # fmt: skip


class VariableFacts(TypedDict):
    """Relative float64 errors of one variable: of its gradients and of the optimiser's results."""

    reference: Annotated[str, Meta(description="Name of the tensor.")]
    candidate: Annotated[str, Meta(description="Path of the variable.")]
    gradient: Annotated[Number, Meta(description="Error of its gradient.")]
    step_gradient: Annotated[Number, Meta(description="Largest error of its gradient over the optimiser's steps.")]
    first: Annotated[Number, Meta(description="Largest error of the first moment.")]
    second: Annotated[Number, Meta(description="Largest error of the second moment.")]
    value: Annotated[Number, Meta(description="Largest error of its value.")]


class SettingFacts(TypedDict):
    """One hyper-parameter that differs."""

    name: Annotated[str, Meta(description="Its name in Keras, or in PyTorch if Keras has none.")]
    torch: Annotated[object, Meta(description="Value of the reference.")]
    keras: Annotated[object, Meta(description="Value of the port.")]
    level: Annotated[Literal["differs", "training"], Meta(description=
        "`differs`: it changes what the layer computes. `training`: inference does not read it.")]  # fmt: skip
    text: Annotated[str, Meta(description="The sentence.")]
    reference: Annotated[str, Meta(description="Path of the PyTorch module.")]
    candidate: Annotated[str, Meta(description="Path of the Keras layer.")]


class SettingsFacts(TypedDict):
    """Comparison of the hyper-parameters of the two models."""

    layers: Annotated[Count, Meta(description="Number of pairs of layers with at least one comparison.")]
    compared: Annotated[Count, Meta(description="Number of hyper-parameters that were compared.")]
    found: Annotated[list[SettingFacts], Meta(description="Those that differ.")]
    note: Annotated[str, Meta(description="Why nothing was compared; empty if something was.")]
    unread: Annotated[list[str], Meta(description=
        "Modules with a setting that does not have the kind's meaning for its name.")]  # fmt: skip


class WordsFacts(TypedDict):
    """Names of the parts of the output in reports."""

    one: Annotated[str, Meta(description="One part.")]
    kind: Annotated[str, Meta(description="Kind of the parts.")]
    values: Annotated[str, Meta(description="Their values.")]
    decoded: Annotated[str, Meta(description="The decoded output.")]


class FaultFacts(TypedDict):
    """A place where the port differs from the reference while everything around it is right: one probable bug."""

    reference: Annotated[str, Meta(description="Path of the PyTorch module; empty for the network.")]
    candidate: Annotated[str, Meta(description="Path of the Keras layer.")]
    feeds: Annotated[str, Meta(description="Layer inside it that it feeds wrongly; empty if its outputs are wrong.")]
    logic: Annotated[Number, Meta(description="Relative float64 error.")]
    ratio: Annotated[Number, Meta(description="Float32 error as a multiple of the reference's.")]


class VerdictDocument(TypedDict):
    """What ``wdport verify --json`` writes: all results. Infinite numbers are the text ``inf``."""

    schema: Annotated[Literal[4], Meta(description="Format of the document.")]
    kind: Annotated[Literal["verdict"], Meta(description="Kind of the document.")]
    passed: Annotated[bool, Meta(description="Whether the models are equal: everything was compared and agrees.")]
    complete: Annotated[bool, Meta(description="Whether everything was compared that had to be.")]
    exit_code: Annotated[Literal[0, 1, 6], Meta(description="0 equal, 1 different, 6 something was not compared.")]
    checkpoint: Annotated[str, Meta(description="Name of the checkpoint or the recording.")]
    converted: Annotated[str, Meta(description="Name of the converted file.")]
    reference: Annotated[str, Meta(description=
        "Your own model, `module:name`, or a recording of it; empty for wdport's or a library's.")]  # fmt: skip
    reference_kind: Annotated[str, Meta(description="Whose code the reference is.")]
    reference_code: Annotated[str, Meta(description="Name of the reference's code.")]
    rounded_to: Annotated[str, Meta(description=
        "The 16-bit dtype that weights were rounded to, on both sides; empty if none were.")]  # fmt: skip
    started: Annotated[str, Meta(description="Start time in UTC, in ISO 8601; empty if unknown.")]
    seconds: Annotated[float, Meta(description="Duration in seconds.")]
    digests: Annotated[dict[str, Sha256], Meta(description="SHA-256 of the compared files, by role.")]
    environment: Annotated[dict[str, str], Meta(description="Versions of the libraries, and the machine.")]
    gates: Annotated[list[GateFacts], Meta(description="Every gate, in the order of the report.")]
    bounds: Annotated[dict[str, float], Meta(description="Bounds in force, by name.")]
    faults: Annotated[list[FaultFacts], Meta(description=
        "Every place that is wrong in isolation, in the order of the computation.")]  # fmt: skip
    causes: Annotated[dict[str, list[str]], Meta(description="Probable causes, by layer.")]
    taps: Annotated[list[TapFacts], Meta(description="Every layer, in the order of the table.")]
    variables: Annotated[list[VariableFacts], Meta(description="Every variable, if gradients were compared.")]
    left_out: Annotated[dict[str, str], Meta(description="The layers without any measurement, each with the reason.")]
    parts: Annotated[list[PartFacts], Meta(description="Every part of the output.")]
    decoded: Annotated[Number | None, Meta(description=
        "Float64 error of the decoded output; null if it is not decoded.")]  # fmt: skip
    overlays: Annotated[list[OverlayFacts], Meta(description="Curves to plot.")]
    trajectories: Annotated[list[TrajectoryFacts], Meta(description="Sampling runs.")]
    settings: Annotated[SettingsFacts, Meta(description="Hyper-parameters that differ.")]
    inputs: Annotated[list[str], Meta(description="Cases that were run, in words.")]
    words: Annotated[WordsFacts, Meta(description="Names of the parts of the output in reports.")]
    assumed: Annotated[dict[str, object], Meta(description=
        "Configuration values that are neither in the files nor given.")]  # fmt: skip
    assuming: Annotated[dict[str, object], Meta(description="Those of them that the outcome depends on.")]
    rests_on: Annotated[dict[str, list[str]], Meta(description=
        "By configuration value, the letters of the gates whose outcome depends on it.")]  # fmt: skip
