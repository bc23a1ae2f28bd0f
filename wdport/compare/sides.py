"""The two sides of a comparison, aligned, and the reference's results in one case in the port's layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from wdport.compare.alignment import Alignment
from wdport.compare.calls import Calls, Case, ExpectedCall, Outputs, answers_of
from wdport.compare.candidate import Candidate, PortSide
from wdport.compare.findings import Finding, fact
from wdport.compare.layer_errors import InPort, outputs_in_port
from wdport.compare.programs import trim_memory
from wdport.compare.reference import Reference
from wdport.compare.taps import Tap
from wdport.models.interface import Array, Signature
from wdport.recording.conditioning import Conditioning
from wdport.recording.observation import Observation

if TYPE_CHECKING:
    import torch


@dataclass
class ComparedSides:
    """A reference and a port.

    Attributes:
        alignment: the layers that are compared.
        port: the port's models, probed.
        outputs: the names of the network's outputs, once the first case ran.
        findings: what is wrong with the comparison itself.
    """

    reference: Reference
    candidate: Candidate
    alignment: Alignment
    port: PortSide
    outputs: tuple[str, ...] = field(default=(), init=False)
    findings: dict[Finding, None] = field(default_factory=dict, init=False)

    @property
    def signature(self) -> Signature:
        return self.candidate.signature

    @property
    def modules(self) -> Mapping[str, torch.nn.Module]:
        """The reference's modules by dtype; empty if it is a recording."""
        return self.reference.modules

    @property
    def precision(self) -> tuple[str, str]:
        """Precision of float32 matrix products, on the reference's and on the port's side."""
        return self.reference.environment.get("torch_matmul", ""), self.port.precision

    def use(self, random_biases: bool) -> None:
        """Use the converted weights, or those with random biases, on both sides from now on."""
        self.reference.use(random_biases)
        self.candidate.use(random_biases)

    def find(self, text: str, subject: str = "", kind: str = "fact") -> None:
        """Record a finding against the comparison, once."""
        self.findings[fact(text, subject, kind)] = None

    def observe(self, case: Case) -> Observation:
        """The reference's results in a case."""
        observation = self.reference.observe(case, self.alignment.observed)
        for text in self.reference.findings:
            self.find(text)
        trim_memory()
        return observation

    def conditioning(self, case: Case, dtype: str) -> Conditioning:
        """The reference's conditioning in ``case``, with the modules isolated that :meth:`observe` isolates."""
        return self.reference.conditioning(case, dtype, self.alignment.observed)

    def outputs_in_port(self, outputs: Outputs, names: Sequence[str], shapes: Sequence[Any]) -> Outputs:
        """The reference's outputs in the port's layout; empty, with a finding, if they do not fit."""
        try:
            return outputs_in_port(outputs, names, shapes, self.port.output_names, self.signature)
        except ValueError as error:
            self.find(f"the network's output: {error}")
            return ()

    def observe_again(self, case: Case) -> Expected:
        """The reference's results in a case that was compared."""
        observation = self.observe(case)
        inputs = self.signature.in_port(observation.inputs)
        return self.expected(case, observation, inputs, *self.port.shapes(inputs))

    def expected(
        self, case: Case, observation: Observation, inputs: tuple[Array, ...], outputs: Sequence[Any], calls: Calls,
    ) -> Expected:  # fmt: skip
        """The reference's results in the port's layout; ``outputs`` and ``calls`` are the port's, for their shapes."""
        taps = self.alignment.of(observation.calls, calls, len(observation.inputs) < len(self.signature.inputs))
        into = InPort(taps, calls)
        in_port = self.outputs_in_port(observation.outputs, observation.names, outputs)
        return Expected(self, case, observation, inputs, taps, into, in_port, into(observation.calls))


class Companion(Protocol):
    """Another network of the port that runs on the same inputs, such as the one that samplers run; ``letter`` is its
    gate's."""

    @property
    def letter(self) -> str: ...

    def dtypes(self, case: Case) -> Sequence[str]:
        """The dtypes in which it runs in a case, only float64 in those without numerics."""

    def predict(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        """Its output."""

    def compare(self, case: str, output: Array, truth: Array) -> None:
        """Add a float64 output and the reference's."""

    def compare_single(self, output: Array, reference: Array, truth: Array) -> None:
        """Add a float32 output, the reference's and the truth."""


@dataclass
class Expected:
    """The reference's results in one case, and in the port's layout.

    Attributes:
        observation: the reference's results in its own layout.
        inputs: the port's inputs in float64.
        taps: the layers of this case.
        into: converts the reference's calls to the port's layout.
        outputs: the network's outputs; empty if they do not fit the port's.
        calls: the calls by the port's names.
    """

    sides: ComparedSides
    case: Case
    observation: Observation
    inputs: tuple[Array, ...]
    taps: Sequence[Tap]
    into: InPort
    outputs: Outputs
    calls: Mapping[str, ExpectedCall]

    @cached_property
    def single_inputs(self) -> tuple[Array, ...]:
        """The port's inputs in float32."""
        assert self.observation.single is not None
        return self.sides.signature.in_port(self.observation.single.inputs)

    @property
    def doubtful(self) -> set[str]:
        """The port's calls whose answers have other shapes."""
        return {tap.candidate for tap in self.taps if tap.reference in self.into.misfits}

    @cached_property
    def conditioning(self) -> Conditioning:
        """The reference's, in float64."""
        return self.sides.conditioning(self.case, "float64")

    def in_port(self, outputs: Outputs, shapes: Sequence[Any]) -> Outputs:
        """Outputs of the reference in the port's layout; empty, with a finding, if they do not fit."""
        return self.sides.outputs_in_port(outputs, self.observation.names, shapes)

    @property
    def single_isolation(self) -> tuple[str, tuple[Array, ...], Mapping[str, ExpectedCall], Collection[str]]:
        """The arguments of :meth:`~wdport.compare.candidate.PortSide.isolate` for float32."""
        answers = self.into(answers_of(self.case, self.observation.calls))
        return "float32", self.single_inputs, answers, self.doubtful
