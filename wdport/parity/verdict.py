"""The results of a parity run: plain objects, from which text and JSON are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Literal

from wdport.base.shared_types import Number, Sha256, about
from wdport.compare.findings import Gate, GateFacts
from wdport.compare.gate_bounds import bounds
from wdport.compare.results import Fault as Fault
from wdport.compare.results import Overlay as Overlay
from wdport.compare.results import PartResult as PartResult
from wdport.compare.results import TapResult as TapResult
from wdport.compare.results import locate as locate
from wdport.compare.setting_values import SettingsReport
from wdport.files import json_document
from wdport.models.interface import PartWords

KIND: Final = "verdict"
TERMS = ("P", "R", "S")
"""Gates of a policy, a baseline and the known faults: requirements beyond the comparison."""

UNTRIED, NOT_FRESH = "known faults were not tried", "fresh inputs were not compared"
"""Notices on what a run under a policy or a baseline usually does."""

ReferenceKind = Literal["wdport", "library", "package", "own", "recording"]
"""Whose code the reference is: wdport's implementation, the class of the library that the model comes from, that of the
package that added the family, the user's own, or a recording of the user's own."""


@dataclass
class VariableResult:
    """Relative float64 errors for one variable of the port: the error of its gradient for a random cotangent at the
    output, and its errors over the steps of the optimizer."""

    reference: Annotated[str, about("Name of the tensor.")]
    candidate: Annotated[str, about("Path of the variable.")]
    gradient: Annotated[Number, about("Error of the variable's gradient.")] = 0.0
    step_gradient: Annotated[Number, about(
        "Largest error of the variable's gradient over the optimizer's steps.")] = 0.0  # fmt: skip
    first: Annotated[Number, about("Largest error of the first moment.")] = 0.0
    second: Annotated[Number, about("Largest error of the second moment.")] = 0.0
    value: Annotated[Number, about("Largest error of the variable's value.")] = 0.0


@dataclass(frozen=True)
class Trajectory:
    """One sampler, run in both models from the same initial state with the same recorded noise."""

    sampler: Annotated[str, about("Name of the sampler.")]
    steps: Annotated[tuple[int, ...], about("Diffusion steps, in the order in which they are run.")]
    logic: Annotated[tuple[Number, ...], about("Relative float64 error of the state after each step.")]
    single: Annotated[tuple[Number, ...], about(
        "Relative error of the float32 port against the float64 reference after each step.")]  # fmt: skip
    ratio: Annotated[Number | None, about(
        "Root mean square of the float32 port's error over all steps, as a multiple of the float32 reference's; null "
        "if float32 was not run.")] = None  # fmt: skip


@dataclass(frozen=True)
class VerdictOutcome:
    """The outcome of a comparison."""

    schema: Annotated[Literal[4], about("Version number of the format.")]
    kind: Annotated[Literal["verdict"], about("Kind of the document.")]
    passed: Annotated[bool, about(
        "Whether everything was compared and matches, and the policy, the baseline and the known-fault check, if any, "
        "pass.")]  # fmt: skip
    complete: Annotated[bool, about("Whether everything that had to be compared was compared.")]
    exit_code: Annotated[Literal[0, 1, 6], about(
        "Exit code of `wdport verify`: 0 if `passed` is true; 1 if the models differ, or if only the policy, the "
        "baseline or the known-fault check fails; 6 if something was not compared.")]  # fmt: skip


@dataclass(frozen=True)
class VerdictFacts:
    """What a comparison is of, how it was run, and all its numbers."""

    checkpoint: Annotated[str, about("Path of the checkpoint or the recording.")]
    converted: Annotated[str, about("Path of the converted file.")]
    gates: Annotated[tuple[Gate | GateFacts, ...], about("Every gate, in the order of the report.")]
    taps: Annotated[tuple[TapResult, ...], about("Every layer, in the order in which the reference's calls complete.")]
    parts: Annotated[tuple[PartResult, ...], about(
        "Every part into which the family divides the output, such as a level.")]  # fmt: skip
    decoded: Annotated[Number | None, about(
        "Float64 error of the decoded output; null if it is not decoded.")]  # fmt: skip
    assumed: Annotated[dict[str, object], about(
        "Assumed configuration values: those that no file and no option specifies.")]  # fmt: skip
    inputs: Annotated[tuple[str, ...], about("Descriptions of the cases that were run.")]
    environment: Annotated[dict[str, str], about(
        "Versions of the libraries, and a description of the machine.")]  # fmt: skip
    bounds: Annotated[dict[str, float], about("Bounds in force, by name.")] = field(default_factory=dict)
    overlays: Annotated[tuple[Overlay, ...], about("Curves to plot.")] = ()
    trajectories: Annotated[tuple[Trajectory, ...], about("Sampling runs that were compared.")] = ()
    variables: Annotated[tuple[VariableResult, ...], about(
        "Every variable, if gradients were compared.")] = ()  # fmt: skip
    settings: Annotated[SettingsReport, about(
        "Comparison of the hyper-parameters.")] = field(default_factory=SettingsReport)  # fmt: skip
    causes: Annotated[dict[str, tuple[str, ...]], about(
        "Probable causes, by layer.")] = field(default_factory=dict)  # fmt: skip
    reference: Annotated[str, about(
        "Your own model, as `module:function`, or a recording of it; empty if the reference comes from wdport or a "
        "library.")] = ""  # fmt: skip
    words: Annotated[PartWords, about(
        "Names that reports use for the parts of the output.")] = field(default_factory=PartWords)  # fmt: skip
    rests_on: Annotated[Mapping[str, tuple[str, ...]], about(
        "For each configuration value, the letters of the gates whose outcome depends on "
        "it.")] = field(default_factory=dict)  # fmt: skip
    digests: Annotated[dict[str, Sha256], about(
        "SHA-256 of the compared files, by role.")] = field(default_factory=dict)  # fmt: skip
    reference_kind: Annotated[ReferenceKind, about("Origin of the reference's code.")] = "wdport"
    reference_code: Annotated[str, about("Name of the reference's code.")] = ""
    rounded_to: Annotated[str, about(
        "16-bit dtype to which the weights of both models were rounded; empty if they were not "
        "rounded.")] = ""  # fmt: skip
    started: Annotated[str, about(
        "Start time in UTC, in ISO 8601 format; empty if unknown.")] = field(default="", compare=False)  # fmt: skip
    left_out: Annotated[dict[str, str], about(
        "Layers without any measurement, each with the reason.")] = field(default_factory=dict)  # fmt: skip
    further: Annotated[
        str, about("Command that looks for the first step that differs, if no fault has a cause; empty otherwise.")
    ] = ""
    seconds: Annotated[float, about(
        "Duration in seconds, including compilation and the known faults.",
    )] = field(default=0.0, compare=False)  # fmt: skip
    times: Annotated[dict[str, float], about(
        "Seconds by activity, of all threads together: threads work at the same time, so the sum may exceed the "
        "duration.")] = field(default_factory=dict, compare=False)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class VerdictDocument(VerdictFacts, VerdictOutcome):
    """What ``wdport verify --json`` writes: all results. Numbers that are not finite are written as
    the strings ``inf``, ``-inf`` and ``nan``."""

    gates: Annotated[tuple[GateFacts, ...], about("Every gate, in the order of the report.")]
    assuming: Annotated[dict[str, object], about("The assumed values on which the outcome depends.")]
    faults: Annotated[tuple[Fault, ...], about(
        "Every place that differs from the reference when tested on its own, in order of computation.")]  # fmt: skip


class ComparisonResult:
    """The result of comparing two models, or two files of one; true if every gate is complete and passes."""

    gates: tuple[Gate, ...]

    def __bool__(self) -> bool:
        return self.complete and all(gate.passed for gate in self.gates)

    @property
    def complete(self) -> bool:
        """Whether everything that had to be compared was compared."""
        return bool(self.gates) and all(gate.complete for gate in self.gates)

    @property
    def exit_code(self) -> Literal[0, 1, 6]:
        """0 if the result is true; 1 if the models differ, or if only the policy, the baseline or the known-fault
        check fails; 6 if not everything was compared.

        A difference takes precedence over a missing comparison, which takes precedence over an unmet policy or
        baseline.
        """
        if self:
            return 0
        differs = any(gate.differs for gate in self.gates if gate.name not in TERMS)
        return 1 if self.complete or differs else 6


@dataclass(frozen=True, repr=False)
class Verdict(VerdictFacts, ComparisonResult):
    """The result of :func:`wdport.verify`; true if everything that had to be compared was compared and agrees, and
    every other requirement, such as a policy, is met.

    :class:`wdport.parity.verdict_api.Verdict` adds the methods that render it.
    """

    gates: tuple[Gate, ...]

    @property
    def unmet(self) -> tuple[Gate, ...]:
        """The failed gates, if only those of the policy, the baseline and the known faults failed: the two models
        compute the same results, but another requirement is not met."""
        failed = tuple(gate for gate in self.gates if not gate.passed)
        return failed if all(gate.name in TERMS for gate in failed) else ()

    @property
    def assuming(self) -> dict[str, object]:
        """The assumed configuration values that this outcome depends on.

        Values that define the network are not included if your own model computes the same results.
        """
        run = {gate.name for gate in self.gates}
        confirmed = bool(self.reference) and (bool(self) or bool(self.unmet))
        return {name: value for name, value in self.assumed.items() if value is not None
                and (not run.isdisjoint(self.rests_on[name]) if name in self.rests_on else not confirmed)}  # fmt: skip

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every place that differs from the reference when tested on its own, by more than the bounds in force, in
        order of computation; each is probably one bug.

        If a layer receives wrong inputs, the fault is attributed to the innermost tapped layer that calls it.
        """
        return locate(self.taps, self.bound("logic"), self.bound("numerics"))

    def bound(self, name: str) -> float:
        """The bound in force under this name: the one in the policy, or the default."""
        return self.bounds[name] if name in self.bounds else bounds()[name]

    def document(self) -> VerdictDocument:
        """Return all results as a document."""
        facts = {part.name: getattr(self, part.name) for part in fields(VerdictFacts) if part.name != "gates"}
        return VerdictDocument(
            schema=4,
            kind="verdict",
            passed=bool(self),
            complete=self.complete,
            exit_code=self.exit_code,
            gates=tuple(gate.document() for gate in self.gates),
            assuming=self.assuming,
            faults=self.faults,
            **facts,
        )

    def to_json(self) -> dict[str, Any]:
        """All results as plain JSON values, as ``wdport verify --json`` writes them.

        Infinities are strings, since JSON has none.
        """
        return json_document.document(KIND, self.document())
