"""The verdict of ``wdport verify --json`` as types."""

from __future__ import annotations

from typing import Literal, TypedDict

from wdport.declared import Count, Number, Sha256


class FindingFacts(TypedDict):
    """An objection of a gate to the port, or a notice."""

    subject: str
    """Layer, variable, constant or run that it is about; empty for the whole."""
    part: str
    """The part of it, in words."""
    kind: str
    """``notice``, ``waived`` and ``bound`` fail nothing; every other kind fails the gate."""
    value: Number | None
    """Number that exceeds the bound; null for a fact."""
    bound: Number | None
    """The bound; null for a fact."""
    leak: bool
    """Whether the error is of the size of float32 rounding."""
    text: str
    """The sentence."""


class GateFacts(TypedDict):
    """One gate."""

    name: str
    """Letter of the gate."""
    title: str
    """Name of the gate."""
    meaning: str
    """What it compares."""
    passed: bool
    """Whether there are no objections and everything was compared."""
    compared: Count
    """Number of comparisons made."""
    expected: Count
    """Number of comparisons required."""
    worst: Number | None
    """Largest number; null if nothing was measured."""
    bound: Number | None
    """Its bound; null if nothing was measured."""
    where: str
    """The quantity with the largest number."""
    seconds: float | None
    """Duration in seconds; null if it was not measured."""
    findings: list[FindingFacts]
    """Its objections, then its notices."""


class TapFacts(TypedDict):
    """One layer. Errors are relative; float32 errors are multiples of the reference's own float32 error."""

    reference: str
    """Path of the PyTorch module; its second call is ``X#2``."""
    candidate: str
    """Path of the Keras layer."""
    part: int | None
    """Index of the part of the output that it belongs to; null if it belongs to none."""
    isolated: Number
    """Float64 error of its outputs when it is fed the reference's inputs."""
    inputs: Number
    """Float64 error of the inputs that the surrounding code feeds it."""
    cumulative: Number
    """Float64 error of its outputs within the running network."""
    rms_ratio: Number
    """Root mean square of its float32 error, as a multiple."""
    max_ratio: Number
    """Largest float32 error, as a multiple."""
    inputs_ratio: Number
    """Float32 error of its inputs, as a multiple."""
    bias: Number
    """Mean of its float32 error, as a share of its root mean square."""
    share32: tuple[Number, Number]
    """Share of float64 values that float32 holds exactly, of the reference and of the port."""
    gradient: Number | None
    """Float64 error of the gradient by its outputs; null if that gate was not run."""
    bfloat16: Number | None
    """Error under bfloat16, as a multiple; null if that gate was not run."""
    caller: str
    """Layer in whose code it is called; empty for the network."""
    conditioned: Number
    """Largest float64 error that is left out, since one rounding of its inputs explains it."""


class PartFacts(TypedDict):
    """One part of the output."""

    name: str
    """Its name."""
    values: Number
    """Float64 error of its values."""
    decoded: Number | None
    """Float64 error of its decoding with all other parts zero; null if unknown."""
    ratio: Number
    """Float32 error of its worst channel, as a multiple of the reference's."""
    energy: Number | None
    """Share of the decoded reference's energy; null if unknown."""
    gradient: Number | None
    """Float64 error of the gradient by the same part of the input; null if that gate was not run."""


class OverlayFacts(TypedDict):
    """One channel of one sample, decoded from one part only."""

    part: str
    """The part."""
    reference: list[Number]
    """The reference in float64."""
    candidate: list[Number]
    """The port in float32."""


class TrajectoryFacts(TypedDict):
    """One sampler, run on both sides from the same state and noise tape."""

    sampler: str
    """Name of the sampler."""
    steps: list[int]
    """Diffusion steps in the order of the run."""
    logic: list[Number]
    """Relative float64 error of the state after each step."""
    single: list[Number]
    """Relative error of the float32 port against float64 after each step."""
    ratio: Number | None
    """Root mean square of that as a multiple of the float32 reference's; null if it was not run."""


class VariableFacts(TypedDict):
    """Relative float64 errors of one variable: of its gradients and of the optimiser's results."""

    reference: str
    """Name of the tensor."""
    candidate: str
    """Path of the variable."""
    gradient: Number
    """Error of its gradient."""
    step_gradient: Number
    """Largest error of its gradient over the optimiser's steps."""
    first: Number
    """Largest error of the first moment."""
    second: Number
    """Largest error of the second moment."""
    value: Number
    """Largest error of its value."""


class SettingFacts(TypedDict):
    """One hyper-parameter that differs."""

    name: str
    """Its name in Keras, or in PyTorch if Keras has none."""
    torch: object
    """Value of the reference."""
    keras: object
    """Value of the port."""
    level: Literal["differs", "training"]
    """``differs``: it changes what the layer computes. ``training``: inference does not read it."""
    text: str
    """The sentence."""
    reference: str
    """Path of the PyTorch module."""
    candidate: str
    """Path of the Keras layer."""


class SettingsFacts(TypedDict):
    """Comparison of the hyper-parameters of the two models."""

    layers: Count
    """Number of pairs of layers with at least one comparison."""
    compared: Count
    """Number of hyper-parameters that were compared."""
    found: list[SettingFacts]
    """Those that differ."""
    note: str
    """Why nothing was compared; empty if something was."""
    unread: list[str]
    """Modules with a setting that does not have the kind's meaning for its name."""


class WordsFacts(TypedDict):
    """Names of the parts of the output in reports."""

    one: str
    """One part."""
    kind: str
    """Kind of the parts."""
    values: str
    """Their values."""
    decoded: str
    """The decoded output."""


class FaultFacts(TypedDict):
    """A place where the port differs from the reference while everything around it is right: one probable bug."""

    reference: str
    """Path of the PyTorch module; empty for the network."""
    candidate: str
    """Path of the Keras layer."""
    feeds: str
    """Layer inside it that it feeds wrongly; empty if its outputs are wrong."""
    logic: Number
    """Relative float64 error."""
    ratio: Number
    """Float32 error as a multiple of the reference's."""


class VerdictDocument(TypedDict):
    """What ``wdport verify --json`` writes: all results. Infinite numbers are the text ``inf``."""

    schema: Literal[4]
    """Format of the document."""
    kind: Literal["verdict"]
    """Kind of the document."""
    passed: bool
    """Whether the models are equal: everything was compared and agrees."""
    complete: bool
    """Whether everything was compared that had to be."""
    exit_code: Literal[0, 1, 6]
    """0 equal, 1 different, 6 something was not compared."""
    checkpoint: str
    """Name of the checkpoint or the recording."""
    converted: str
    """Name of the converted file."""
    reference: str
    """Your own model, ``module:name``, or a recording of it; empty for wdport's or a library's."""
    reference_kind: str
    """Whose code the reference is."""
    reference_code: str
    """Name of the reference's code."""
    rounded_to: str
    """The 16-bit dtype that weights were rounded to, on both sides; empty if none were."""
    started: str
    """Start time in UTC, in ISO 8601; empty if unknown."""
    seconds: float
    """Duration in seconds."""
    digests: dict[str, Sha256]
    """SHA-256 of the compared files, by role."""
    environment: dict[str, str]
    """Versions of the libraries, and the machine."""
    gates: list[GateFacts]
    """Every gate, in the order of the report."""
    bounds: dict[str, float]
    """Bounds in force, by name."""
    faults: list[FaultFacts]
    """Every place that is wrong in isolation, in the order of the computation."""
    causes: dict[str, list[str]]
    """Probable causes, by layer."""
    taps: list[TapFacts]
    """Every layer, in the order of the table."""
    variables: list[VariableFacts]
    """Every variable, if gradients were compared."""
    left_out: dict[str, str]
    """The layers without any measurement, each with the reason."""
    parts: list[PartFacts]
    """Every part of the output."""
    decoded: Number | None
    """Float64 error of the decoded output; null if it is not decoded."""
    overlays: list[OverlayFacts]
    """Curves to plot."""
    trajectories: list[TrajectoryFacts]
    """Sampling runs."""
    settings: SettingsFacts
    """Hyper-parameters that differ."""
    inputs: list[str]
    """Cases that were run, in words."""
    words: WordsFacts
    """Names of the parts of the output in reports."""
    assumed: dict[str, object]
    """Configuration values that are neither in the files nor given."""
    assuming: dict[str, object]
    """Those of them that the outcome depends on."""
    rests_on: dict[str, list[str]]
    """By configuration value, the letters of the gates whose outcome depends on it."""
