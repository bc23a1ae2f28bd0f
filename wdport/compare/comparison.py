"""What a comparison measured: the errors of every layer, the counts of both dtypes, and findings on the comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from wdport.compare.alignment import Alignment
from wdport.compare.calls import Case, Outputs
from wdport.compare.candidate import Candidate, PortSide
from wdport.compare.clock import Clock
from wdport.compare.errors import outputs_in_port
from wdport.compare.findings import Finding, fact
from wdport.compare.layouts import axes
from wdport.compare.memory import trim_memory
from wdport.compare.output_parts import OutputParts
from wdport.compare.reference import Reference
from wdport.compare.results import Evidence, TapResult, locate
from wdport.compare.rounding_errors import RoundingErrors
from wdport.model import Array, Signature
from wdport.recorder import Observation

if TYPE_CHECKING:
    import torch


class Companion(Protocol):
    """Another network of the port that runs on the same inputs, such as the one that samplers run; ``letter`` is its
    gate's."""

    @property
    def letter(self) -> str: ...

    def dtypes(self, case: Case) -> Sequence[str]:
        """The dtypes in which it runs in a case, only float64 in those without numerics."""
        ...

    def predict(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        """Its output."""
        ...

    def compare(self, case: str, output: Array, truth: Array) -> None:
        """Add a float64 output and the reference's."""
        ...

    def compare_single(self, output: Array, reference: Array, truth: Array) -> None:
        """Add a float32 output, the reference's and the truth."""
        ...

    def compare_times(self, times: Array) -> None:
        """Compare what depends only on the time at ``times`` (S,)."""
        ...


@dataclass
class Tally:
    """Counts of one gate's comparisons: those that had to be made, and those that were."""

    expected: int = 0
    compared: int = 0


@dataclass
class Comparison:
    """What :func:`wdport.compare.engine.compare` measured.

    Attributes:
        probes: the cases to run.
        alignment: the layers that were compared.
        taps: the errors of every layer and output by the reference's name.
        outputs: the names of the network's outputs among ``taps``.
        arranged: layers whose values are in another order while everything after them agrees, with the order.
        parts: the errors of the parts of a divided output, if it has any.
        single: float32 errors.
        evidence: one faulty case in float64, if there is one.
        findings: what is wrong with the comparison itself.
        float64, float32: the counts of the comparisons.
        cases: the number of cases that ran; ``runs`` counts those of each layer.
        precision: precision of matrix products, on the reference's and on the port's side.
    """

    probes: Sequence[Case]
    reference: Reference
    candidate: Candidate
    alignment: Alignment
    bounds: Mapping[str, float]
    port: PortSide
    clock: Clock
    parts: OutputParts | None
    taps: dict[str, TapResult] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    arranged: dict[str, str] = field(default_factory=dict)
    single: RoundingErrors = field(default_factory=RoundingErrors)
    evidence: Evidence | None = None
    findings: dict[Finding, None] = field(default_factory=dict)
    float64: Tally = field(default_factory=Tally)
    float32: Tally = field(default_factory=Tally)
    cases: int = 0
    runs: Counter[str] = field(default_factory=Counter)

    @property
    def signature(self) -> Signature:
        """The port's inputs and outputs."""
        return self.candidate.signature

    @property
    def modules(self) -> Mapping[str, torch.nn.Module]:
        """The reference's modules by dtype; empty if it is a recording."""
        return getattr(self.reference, "modules", {})

    @property
    def precision(self) -> tuple[str, str]:
        """Precision of float32 matrix products on either side."""
        return self.reference.environment.get("torch_matmul", ""), self.port.precision

    @property
    def faulty(self) -> bool:
        """Whether any layer is beyond the bounds so far."""
        return bool(locate(self.taps.values(), self.bounds["logic"], self.bounds["numerics"]))

    def find(self, text: str, subject: str = "", kind: str = "fact") -> None:
        """Record a finding against the comparison, once."""
        self.findings[fact(text, subject, kind)] = None

    def observe(self, case: Case) -> Observation:
        """Run the reference on one case."""
        observation = self.reference.observe(case, self.alignment.observed)
        for text in self.reference.findings:
            self.find(text)
        trim_memory()
        return observation

    def outputs_in_port(self, outputs: Outputs, names: Sequence[str], shapes: Sequence[Any]) -> Outputs:
        """The reference's outputs in the port's layout; empty, with a finding, if they do not fit."""
        try:
            rules = [axes(text) for text in self.signature.axes]
            return outputs_in_port(outputs, names, shapes, self.port.output_names, rules)
        except ValueError as error:
            self.find(f"the network's output: {error}")
            return ()
