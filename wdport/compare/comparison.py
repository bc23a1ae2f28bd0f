"""What a comparison measured: errors of every layer and of parts of the output, rounding errors, findings, and the
wall time of each gate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wdport.compare.alignment import Alignment
from wdport.compare.calls import Call, Case, ExpectedCall, Outputs
from wdport.compare.candidate import Candidate, PortSide
from wdport.compare.findings import Finding, Gate, fact
from wdport.compare.gate_bounds import NUMERICS, UNIT_ROUNDOFF
from wdport.compare.layer_errors import fed, made, outputs_in_port
from wdport.compare.measure import ErrorPair, relative_l2
from wdport.compare.programs import trim_memory
from wdport.compare.reference import Reference
from wdport.compare.results import Evidence, Overlay, PartResult, TapResult, locate
from wdport.compare.taps import Tap
from wdport.models.interface import Array, Port, Signature
from wdport.recorder import Conditioning, Observation

if TYPE_CHECKING:
    import torch


class Clock:
    """Seconds of wall time by gate: computing for a gate, or waiting for it.

    What every gate needs, namely reading the files, building the models and running the reference, counts as preflight
    (0).
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, letter: str, seconds: float) -> None:
        self.seconds[letter] = self.seconds.get(letter, 0.0) + seconds

    @contextmanager
    def gate(self, letter: str) -> Iterator[None]:
        """Count the time of the block for a gate."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.add(letter, time.monotonic() - begun)

    def timed(self, gates: Iterable[Gate]) -> list[Gate]:
        """The gates with their seconds; ``None`` where nothing was counted."""
        return [replace(gate, seconds=self.seconds.get(gate.name)) for gate in gates]


class OutputParts:
    """Accumulated errors of an output that is divided as ``port`` specifies."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.overlays: tuple[Overlay, ...] = ()
        self.decoded_error: float | None = None
        self._logic: dict[str, list[float]] = {}
        self._decoded: dict[str, list[float]] = {}
        self._energy: dict[str, float] = {}

    def add(self, candidate: Array, reference: Array) -> None:
        """Add float64 outputs of both sides, of one shape."""
        for name, part in self.port.parts.items():
            self._logic.setdefault(name, []).append(relative_l2(candidate[:, part], reference[:, part]))
            decoded = [self._decode_part(side, part) for side in (candidate, reference)]
            if decoded[0] is not None and decoded[1] is not None:
                self._energy[name] = self._energy.get(name, 0.0) + float(np.sum(decoded[1] ** 2))
                self._decoded.setdefault(name, []).append(relative_l2(decoded[0], decoded[1]))
        if self.port.decode:
            error = relative_l2(self.port.decode(candidate), self.port.decode(reference))
            self.decoded_error = max(self.decoded_error or 0.0, error)

    def add_single(self, candidate: Array, truth: Array) -> None:
        """Add float32 outputs of the port and the truth; the first ones are kept for plots."""
        self.overlays = self.overlays or self._overlays(truth, candidate)

    def results(self, single: Mapping[Case, RoundingErrors]) -> tuple[PartResult, ...]:
        """The parts, with their float32 errors."""
        part_results = []
        total = sum(self._energy.values())
        pairs = [item for errors in single.values() for item in errors.parts.items()]
        for name in self.port.parts:
            ratios = [pair.rms_ratio for (part_name, _), pair in pairs if part_name == name]
            decoded = self._decoded.get(name)
            logic = max(self._logic.get(name, [inf]))
            energy = self._energy[name] / total if total else None
            decoded_error = max(decoded) if decoded else None
            part_results.append(PartResult(name, logic, decoded_error, max(ratios, default=inf), energy))
        return tuple(part_results)

    def _decode_part(self, output: Array, part: slice) -> Array | None:
        """The decoded output with only this part; ``None`` if unknown."""
        if self.port.decode is None:
            return None
        # The other parts are zero: what remains is the effect of this part on the decoded series.
        masked = np.zeros_like(output)
        masked[:, part] = output[:, part]
        return self.port.decode(masked)

    def _overlays(self, truth: Array, output: Array) -> tuple[Overlay, ...]:
        """The first sample's first channel, part by part."""
        overlays = []
        for name, part in self.port.parts.items():
            decoded = [self._decode_part(side[:1], part) for side in (truth, output)]
            drawn = [tuple(float(value) for value in array[0, :, 0]) for array in decoded if array is not None]
            if len(drawn) == 2:
                overlays.append(Overlay(name, drawn[0], drawn[1]))
        return tuple(overlays)


FED_INPUTS, WHOLE, PARTS = " inputs", ", whole network", " parts"
"""Groups of float32 errors besides those of isolated layers and outputs."""


class RoundingErrors:
    """Error pairs of one case by the reference's names: ``alone`` of every isolated tap and output, ``inputs`` of the
    taps' inputs, ``whole`` of the outputs of the running network, and ``parts`` of those by part and channel.
    ``unit`` is the dtype's rounding error.

    Cases are not added up: in the one with the largest values, absolute errors are the largest too, and would hide
    what only the others show.
    """

    def __init__(self, unit: float = UNIT_ROUNDOFF) -> None:
        self._unit = unit
        self.alone: dict[str, ErrorPair] = {}
        self.inputs: dict[str, ErrorPair] = {}
        self.whole: dict[str, ErrorPair] = {}
        self.parts: dict[tuple[str, int], ErrorPair] = {}

    def add_outputs(self, names: Sequence[str], running: Sequence[Outputs], isolated: Sequence[Outputs] | None) -> None:
        """Add the network's outputs, running and, if given, isolated: of the port, the reference and the truth."""
        kinds = [(self.whole, running), *([] if isolated is None else [(self.alone, isolated)])]
        for index, name in enumerate(names):
            for errors, (port, reference, truth) in kinds:
                if port[index].shape == truth[index].shape:  # float64 (A) has found others
                    self._pair(errors, name).add(port[index], reference[index], truth[index])

    def add_isolated(self, name: str, port: Array, reference: Array, truth: Array) -> None:
        """Add an output of the network with every tap isolated."""
        self._pair(self.alone, name).add(port, reference, truth)

    def add_tap(self, tap: Tap, port_call: Call, reference: ExpectedCall, truth: ExpectedCall, arranged: bool) -> bool:
        """Add one tap; returns whether it could be compared. Inputs of a reordered (``arranged``) tap are ignored."""
        inputs, outputs = fed(port_call, truth), made(tap, port_call, truth)
        if arranged:
            inputs = []
        if outputs is None or inputs is None or any(c.shape != r.shape for c, r in (*inputs, *outputs)):
            return False
        theirs = made(tap, Call((), reference.outputs), truth) or []
        pair = self._pair(self.alone, tap.reference)
        for (c, t), (r, _) in zip(outputs, theirs, strict=True):
            pair.add(c, r, t)
        # Not strict: the inputs of a reordered tap are left out.
        for (c, t), r in zip(inputs, reference.inputs.values(), strict=False):
            self._pair(self.inputs, tap.reference).add(c, r, t)
        return True

    def _pair(self, errors: dict[str, ErrorPair], name: str) -> ErrorPair:
        return errors.setdefault(name, ErrorPair(unit=self._unit))

    def add_parts(self, port: Port, candidate: Array, reference: Array, truth: Array) -> None:
        """Add the parts of an output that is divided as ``port`` specifies."""
        for name, part in port.parts.items():
            for channel in range(truth.shape[-1]):
                index = (slice(None), part, channel)
                pair = self.parts.setdefault((name, channel), ErrorPair(unit=self._unit))
                pair.add(candidate[index], reference[index], truth[index])

    @property
    def groups(self) -> Mapping[str, Mapping[Any, ErrorPair]]:
        """All error pairs, by what a report appends to a name."""
        return {"": self.alone, FED_INPUTS: self.inputs, WHOLE: self.whole, PARTS: self.parts}

    def exceeding(self) -> list[tuple[str, Any]]:
        """The group and the name of every error beyond the bound."""
        # Negated, so that NaN exceeds it.
        return [(group, name) for group, pairs in self.groups.items() for name, pair in pairs.items()
                if not pair.ratio <= NUMERICS]  # fmt: skip

    def allow(self, errors: Conditioning, outputs: Sequence[str], parts: OutputParts | None) -> None:
        """Compare the errors with these of the reference as well; ``outputs`` are the names of the network's, the
        first of which is divided into ``parts``, if given."""
        for name, spread in errors.taps.items():
            for pairs, (square, largest) in ((self.alone, spread.made), (self.inputs, spread.fed)):
                if name in pairs:
                    pairs[name].allow(square, largest)
        for name, moves in zip(outputs, errors.outputs, strict=True):
            if name in self.whole:
                self.whole[name].allow_values(moves)
        if parts is not None:
            for (name, channel), pair in self.parts.items():
                pair.allow_values(errors.outputs[0][:, parts.port.parts[name], channel])


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
class Tally:
    """Counts of one gate's comparisons: those that had to be made, and those that were."""

    expected: int = 0
    compared: int = 0


@dataclass
class Comparison:
    """What :func:`wdport.compare.run_cases.compare` measured.

    Attributes:
        probes: the cases to run.
        alignment: the layers that were compared.
        taps: the errors of every layer and output by the reference's name.
        outputs: the names of the network's outputs among ``taps``.
        arranged: layers whose values are in another order while everything after them agrees, with the order.
        undetermined: layers whose result in some samples one rounding decides, with the kinds of the samples.
        parts: the errors of the parts of a divided output, if it has any.
        single: float32 errors by case.
        pairwise: the same with the port's sums computed pairwise, of cases in which an error in ``single`` exceeds the
            bound.
        times: float32 errors of layers at every value of their input.
        evidence: one faulty case in float64, if there is one.
        as_stated: layers and outputs that are off by a float32 that the port's code states where the reference's
            states float64.
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
    undetermined: dict[str, dict[str, None]] = field(default_factory=dict)
    single: dict[Case, RoundingErrors] = field(default_factory=dict)
    pairwise: dict[Case, RoundingErrors] = field(default_factory=dict)
    times: dict[str, ErrorPair] = field(default_factory=dict)
    evidence: Evidence | None = None
    as_stated: set[str] = field(default_factory=set)
    findings: dict[Finding, None] = field(default_factory=dict)
    float64: Tally = field(default_factory=Tally)
    float32: Tally = field(default_factory=Tally)
    cases: int = 0
    runs: Counter[str] = field(default_factory=Counter)

    @property
    def signature(self) -> Signature:
        return self.candidate.signature

    @property
    def modules(self) -> Mapping[str, torch.nn.Module]:
        """The reference's modules by dtype; empty if it is a recording."""
        return self.reference.modules

    @property
    def precision(self) -> tuple[str, str]:
        """Precision of float32 matrix products on either side."""
        return self.reference.environment.get("torch_matmul", ""), self.port.precision

    @property
    def faulty(self) -> bool:
        """Whether any layer is beyond the bounds so far."""
        return bool(locate(self.taps.values(), self.bounds["logic"], self.bounds["numerics"]))

    def float32_errors(self) -> Iterator[tuple[str, Any, ErrorPair, ErrorPair]]:
        """The group and name of every float32 error, as measured, and as it is judged: the one with pairwise sums if
        it is within the bound, and the measured one is not."""
        for case, errors in self.single.items():
            again = self.pairwise.get(case, errors)
            ordered = set(errors.exceeding()).difference(again.exceeding())
            for group, pairs in errors.groups.items():
                for name, pair in pairs.items():
                    yield group, name, pair, again.groups[group].get(name, pair) if (group, name) in ordered else pair

    def find(self, text: str, subject: str = "", kind: str = "fact") -> None:
        """Record a finding against the comparison, once."""
        self.findings[fact(text, subject, kind)] = None

    def observe(self, case: Case) -> Observation:
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
