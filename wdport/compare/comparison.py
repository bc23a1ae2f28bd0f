"""What a comparison measured: the errors of all cases, added up, and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wdport.compare.activities import Clock
from wdport.compare.calls import Case, Outputs
from wdport.compare.differing_cases import Sightings, other_sizes
from wdport.compare.measure import ErrorPair, Ranges
from wdport.compare.output_parts import OutputParts
from wdport.compare.results import CaseErrors, Evidence, LayerErrors, TapResult, locate
from wdport.compare.rounding_errors import RoundingErrors
from wdport.compare.sides import ComparedSides, Expected
from wdport.models.interface import Port


@dataclass
class Tally:
    """Counts of one gate's comparisons: those that had to be made, and those that were."""

    expected: int = 0
    compared: int = 0


@dataclass
class Comparison(ComparedSides):
    """What :func:`wdport.compare.engine.compare` measured of these sides.

    Attributes:
        probes: the cases that were compared.
        taps: the errors of every layer and output by the reference's name.
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
        float64, float32: the counts of the comparisons.
        runs: in how many cases each layer was compared.
        ranges: the least and the largest outputs of the reference's layers.
    """

    bounds: Mapping[str, float]
    clock: Clock
    parts: OutputParts | None
    sightings: Sightings
    probes: list[Case] = field(default_factory=list)
    taps: dict[str, TapResult] = field(default_factory=dict)
    arranged: dict[str, str] = field(default_factory=dict)
    undetermined: dict[str, dict[str, None]] = field(default_factory=dict)
    single: dict[Case, RoundingErrors] = field(default_factory=dict)
    pairwise: dict[Case, RoundingErrors] = field(default_factory=dict)
    times: dict[str, ErrorPair] = field(default_factory=dict)
    evidence: Evidence | None = None
    as_stated: set[str] = field(default_factory=set)
    float64: Tally = field(default_factory=Tally)
    float32: Tally = field(default_factory=Tally)
    runs: Counter[str] = field(default_factory=Counter)
    ranges: Ranges = field(default_factory=Ranges)

    @property
    def divided(self) -> Port | None:
        """The output that is divided into parts, if there is one."""
        return None if self.parts is None else self.parts.port

    @property
    def logic(self) -> float:
        """The bound of float64 errors."""
        return self.bounds["logic"]

    @property
    def faulty(self) -> bool:
        """Whether any layer is beyond the bounds so far."""
        return bool(locate(self.taps.values(), self.logic, self.bounds["numerics"]))

    def float32_errors(self) -> Iterator[tuple[str, Any, ErrorPair, ErrorPair]]:
        """The group and name of every float32 error, as measured, and as it is judged: the one with pairwise sums if
        it is within the bound, and the measured one is not."""
        for case, errors in self.single.items():
            again = self.pairwise.get(case, errors)
            ordered = set(errors.exceeding()).difference(again.exceeding())
            for group, pairs in errors.groups.items():
                for name, pair in pairs.items():
                    yield group, name, pair, again.groups[group].get(name, pair) if (group, name) in ordered else pair

    def include(self, taps: Mapping[str, TapResult]) -> None:
        """Include layers that no case called before."""
        self.taps |= taps
        self.runs.update(dict.fromkeys(taps, len(self.probes)))

    def leave_out(self, name: str, why: str) -> None:
        """Count a layer as not compared."""
        self.find(why, name, "silent")
        self.float64.compared -= self.runs[name]
        self.runs[name] = 0

    def add(self, expected: Expected, outputs: Outputs, errors: CaseErrors) -> None:
        """Add what a case shows in float64; ``outputs`` are the port's."""
        self.arranged |= errors.arranged
        for name, kinds in errors.left_out.items():
            self.undetermined.setdefault(name, {}).update(kinds)
        self.findings |= dict.fromkeys(errors.findings)
        if not self.arranged:
            for name, text in errors.misfits.items():
                self.find(f"{name}: {text}", name)
        self.evidence = self.evidence or errors.evidence
        for name, output in errors.outputs.items():
            self.taps.setdefault(name, TapResult(name, "", None))
            self._add(name, output, expected)
        if self.parts is not None and expected.outputs and not expected.case.extremes:
            self.parts.add(outputs[0], expected.outputs[0])
        for tap in self.alignment.taps:
            name = tap.reference
            if name not in errors.layers:  # neither side calls it in this case
                self.runs[name] += 1
            elif (layer := errors.layers[name]) is None:
                self.float64.expected += 1
                self.find(f"{name} did not run on both sides with inputs that can be compared", name, "silent")
            else:
                self._add(name, layer, expected)
                self.ranges.add(name, expected.observation.calls[name].outputs)

    def _add(self, name: str, errors: LayerErrors, expected: Expected) -> None:
        measured = self.taps[name]
        measured.add(errors)
        if errors.wrong is not None:
            sizes = other_sizes(self.signature.inputs, [array.shape for array in expected.inputs])
            self.sightings.add(name, expected.case, sizes, errors.wrong)
            measured.only = self.sightings.only(name)
        self.float64.expected += 1
        self.float64.compared += 1
        self.runs[name] += 1
