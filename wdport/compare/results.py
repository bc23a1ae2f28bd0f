"""The results of a comparison as data: errors of layers and of parts of an output, faults, and evidence of a fault."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Annotated

from wdport.base.shared_types import Number, about
from wdport.compare.calls import Answers, Calls
from wdport.compare.findings import Finding
from wdport.compare.gate_bounds import LOGIC, NUMERICS
from wdport.compare.measure import ErrorPair
from wdport.models.interface import Array


@dataclass
class TapResult:
    """One layer. Errors are relative; float32 errors are multiples of the reference's own float32 error. Unless stated
    otherwise, the outputs of all other layers are replaced by those of the reference."""

    reference: Annotated[str, about("Path of the PyTorch module; its second call is `X#2`.")]
    candidate: Annotated[str, about("Path of the Keras layer.")]
    part: Annotated[int | None, about(
        "Index of the part of the output that the layer belongs to; null if it belongs to none.")]  # fmt: skip
    isolated: Annotated[
        Number, about("Float64 error of the layer's outputs when the layer is fed the reference's inputs.")
    ] = 0.0
    inputs: Annotated[Number, about("Float64 error of the inputs that the surrounding code feeds to the layer.")] = 0.0
    cumulative: Annotated[Number, about("Float64 error of the layer's outputs within the running network.")] = 0.0
    rms_ratio: Annotated[Number, about(
        "Root mean square of the layer's float32 error, as a multiple of the reference's.")] = 0.0  # fmt: skip
    max_ratio: Annotated[Number, about("Largest float32 error, as a multiple of the reference's.")] = 0.0
    inputs_ratio: Annotated[Number, about(
        "Float32 error of the layer's inputs, as a multiple of the reference's.")] = 0.0  # fmt: skip
    bias: Annotated[Number, about(
        "Mean of the float32 error, divided by the root mean square of the float64 output.")] = 0.0  # fmt: skip
    share32: Annotated[tuple[Number, Number], about(
        "Share of the float64 values that float32 can represent exactly, in the reference and in the "
        "port.")] = (0.0, 0.0)  # fmt: skip
    gradient: Annotated[Number | None, about(
        "Float64 error of the gradient with respect to the layer's outputs; null if gradients were not "
        "compared.")] = None  # fmt: skip
    bfloat16: Annotated[Number | None, about(
        "Error in mixed bfloat16, as a multiple of the reference's; null if bfloat16 was not "
        "compared.")] = None  # fmt: skip
    caller: Annotated[str, about("Layer whose code calls this layer; empty if the network itself calls it.")] = ""
    conditioned: Annotated[Number, about(
        "Largest float64 error that is not counted, because a single rounding of every value between layers explains "
        "it.")] = 0.0  # fmt: skip
    only: Annotated[str, about(
        "The only inputs with which the layer differs in float64, if not with all; empty otherwise.")] = ""  # fmt: skip

    def add(self, errors: LayerErrors) -> None:
        """Add the float64 errors of one case."""
        self.isolated = max(self.isolated, errors.isolated)
        self.inputs = max(self.inputs, errors.inputs)
        self.cumulative = max(self.cumulative, errors.cumulative)
        self.conditioned = max(self.conditioned, errors.conditioned)
        self.share32 = (max(self.share32[0], errors.share32[0]), max(self.share32[1], errors.share32[1]))

    def add_float32(self, pair: ErrorPair) -> None:
        """Add the float32 errors of its isolated outputs in one case."""
        self.rms_ratio, self.max_ratio = max(self.rms_ratio, pair.rms_ratio), max(self.max_ratio, pair.max_ratio)
        self.bias = max(self.bias, pair.bias, key=abs)

    def sound(self, logic: float = LOGIC, numerics: float = NUMERICS) -> bool:
        """Whether the layer, fed the reference's inputs, is within the bounds of float64 (A) and float32 (B)."""
        return self.isolated <= logic and max(self.rms_ratio, self.max_ratio) <= numerics

    def fed(self, logic: float = LOGIC, numerics: float = NUMERICS) -> bool:
        """Whether the surrounding code feeds it the reference's inputs, within the same bounds."""
        return self.inputs <= logic and self.inputs_ratio <= numerics


@dataclass
class LayerErrors:
    """The float64 errors of a layer or an output in one case; the fields are those of :class:`TapResult`.

    ``wrong`` are the samples in which it differs, empty if unknown; ``None`` if it does not.
    """

    isolated: float
    inputs: float
    cumulative: float
    conditioned: float = 0.0
    share32: tuple[float, float] = (0.0, 0.0)
    wrong: Collection[int] | None = None


@dataclass
class CaseErrors:
    """What one case shows in float64.

    Attributes:
        layers: the errors of every layer; ``None`` where it did not run on both sides.
        outputs: the errors of the network's outputs.
        arranged: layers whose values are in another order while everything after them agrees, with the order.
        left_out: the kinds of the samples in which one rounding decides a layer's result.
        misfits: shapes that do not fit, unless layers are in another order.
        findings: what else is to be known about the case.
        evidence: the calls of the port if it is faulty.
    """

    layers: dict[str, LayerErrors | None] = field(default_factory=dict)
    outputs: dict[str, LayerErrors] = field(default_factory=dict)
    arranged: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, dict[str, None]] = field(default_factory=dict)
    misfits: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Fault:
    """A place where the port differs from the reference while everything around it is correct: one probable bug."""

    reference: Annotated[str, about("Path of the PyTorch module; empty for the network.")]
    candidate: Annotated[str, about("Path of the Keras layer.")]
    feeds: Annotated[str, about(
        "Inner layer that gets wrong inputs from this layer; empty if this layer's own outputs are "
        "wrong.")]  # fmt: skip
    logic: Annotated[Number, about("Relative float64 error.")]
    ratio: Annotated[Number, about("Float32 error as a multiple of the reference's.")]
    only: Annotated[str, about(
        "The only inputs with which they differ in float64, if not with all; empty otherwise.")] = ""  # fmt: skip


@dataclass(frozen=True)
class PartResult:
    """One of the parts into which the family divides the output, such as a level."""

    name: Annotated[str, about("Name of the part.")]
    values: Annotated[Number, about("Float64 error of the part's values.")]
    decoded: Annotated[Number | None, about(
        "Float64 error of the decoded part, with all other parts set to zero; null if unknown.")]  # fmt: skip
    ratio: Annotated[Number, about("Float32 error of the part's worst channel, as a multiple of the reference's.")]
    energy: Annotated[Number | None, about(
        "The part's share of the energy of the decoded reference; null if unknown.")]  # fmt: skip
    gradient: Annotated[Number | None, about(
        "Float64 error of the gradient with respect to the same part of the input; null if gradients were not "
        "compared.")] = None  # fmt: skip


@dataclass(frozen=True)
class Overlay:
    """One channel of one sample, decoded from one part only."""

    part: Annotated[str, about("Name of the part.")]
    reference: Annotated[tuple[Number, ...], about("Values of the reference, in float64.")]
    candidate: Annotated[tuple[Number, ...], about("Values of the port, in float32.")]


@dataclass(frozen=True)
class Evidence:
    """One case in float64: the network's inputs, the isolated calls of the faulty port's layers (its output under ""),
    and the reference's calls, by the candidate's paths; ``torch_inputs`` are those of the reference, and
    ``random_biases`` states with which weights."""

    inputs: tuple[Array, ...]
    port: Calls
    answers: Answers
    torch_inputs: tuple[Array, ...] = ()
    random_biases: bool = False


def locate(taps: Iterable[TapResult], logic: float = LOGIC, numerics: float = NUMERICS) -> tuple[Fault, ...]:
    """Every place that differs from the reference when tested on its own, by more than these bounds, in the order of
    ``taps``: each is one probable bug.

    A layer that is fed wrongly is the fault of the innermost tapped layer that calls it.
    """
    taps = tuple(taps)
    by_reference = {tap.reference: tap for tap in taps}
    faults: dict[tuple[str, bool], Fault] = {}
    for tap in taps:
        if not tap.fed(logic, numerics):
            candidate = by_reference[tap.caller].candidate if tap.caller else ""
            fault = Fault(tap.caller, candidate, tap.reference, tap.inputs, tap.inputs_ratio, tap.only)
            # Only the first layer that a caller feeds wrongly: later ones get wrong inputs from the same code.
            faults.setdefault((tap.caller, True), fault)
        if not tap.sound(logic, numerics):
            ratio = max(tap.rms_ratio, tap.max_ratio)
            faults[tap.reference, False] = Fault(tap.reference, tap.candidate, "", tap.isolated, ratio, tap.only)
    return tuple(faults.values())
