"""Compare a reference with a port, layer by layer: the one engine behind every verdict.

Three steps, with data between them: both sides run on a case (:mod:`~wdport.compare.case_runs`), their results are
compared (:mod:`~wdport.compare.float64_errors` in float64, :mod:`~wdport.compare.float32_errors` in float32), and the
errors are added to a :class:`~wdport.compare.comparison.Comparison`, case by case, so a run is deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby

from wdport.compare.activities import Clock, Say, spent_on
from wdport.compare.alignment import Alignment
from wdport.compare.as_stated import use_as_stated
from wdport.compare.calls import Case, Outputs
from wdport.compare.candidate import Candidate, PortSide
from wdport.compare.case_runs import CaseRun, CaseRuns
from wdport.compare.comparison import Comparison
from wdport.compare.differing_cases import Sightings
from wdport.compare.float32_errors import add_single, not_finite
from wdport.compare.float64_errors import Ordinary, case_errors
from wdport.compare.gate_bounds import bounds as default_bounds
from wdport.compare.layer_errors import output_errors
from wdport.compare.measure import ErrorPair
from wdport.compare.output_parts import OutputParts
from wdport.compare.reference import Reference
from wdport.compare.rounding_errors import RoundingErrors
from wdport.compare.sides import Companion
from wdport.compare.taps import Tap
from wdport.models.interface import Array


def compare(
    reference: Reference, candidate: Candidate, probes: Sequence[Case], bounds: Mapping[str, float] | None = None, *,
    companion: Companion | None = None, clock: Clock | None = None, brief: bool = False, say: Say = lambda _: None,
) -> Comparison:  # fmt: skip
    """Run both sides on the same inputs and compare every layer, in float64 and in float32.

    Args:
        reference: the PyTorch side, live or recorded.
        candidate: the Keras side.
        probes: the cases to run, in order; those with random biases come last.
        bounds: bounds by name; the default ones if ``None``.
        companion: another network of the port that runs on the same inputs.
        clock: counts the seconds of each gate.
        brief: stop after the first case that shows a fault.
        say: called with a short message at every step.

    Raises:
        WdportError: the two cannot be compared at all.
    """
    parts = None if candidate.signature.divided is None else OutputParts(candidate.signature.divided)
    alignment, clock = Alignment(reference, candidate), clock or Clock()
    port = PortSide(candidate, alignment.watched)
    probes = tuple(reference.cases(probes))
    sightings = Sightings(probes[0])
    result = Comparison(reference, candidate, alignment, port, bounds or default_bounds(), clock, parts, sightings)
    runs, adding = CaseRuns(result, companion, clock, brief), _Adding(result, companion, brief)
    with alignment.settings_in_errors():
        for index, (random_biases, group) in enumerate(groupby(probes, key=lambda case: case.random_biases)):
            with clock.gate("0"):
                result.use(random_biases)
            say(f"comparing with {'random biases' if random_biases else 'converted weights'}")
            with closing(runs.of(list(group))) as group_runs:
                for run in group_runs:
                    adding.add(run)
                    del run  # its arrays, before the next case runs
                    if adding.enough:
                        return result
            with clock.gate("B"):
                _repeat(result, random_biases, brief)
            # Once, with the converted weights, which are the first group.
            if not index:
                _sweep(result)
        for name in result.ranges.constant:
            result.leave_out(name, f"{name} is constant, so nothing can be seen there")
        with clock.gate("A"):
            if runs.plain is not None:
                candidate.use(False)  # the weights of the first inputs
                result.findings |= dict.fromkeys(runs.plain.differing(adding.first))
            if probes[0] in result.single:
                result.as_stated = use_as_stated(result, probes[0], result.taps, result.logic)
            result.use(probes[-1].random_biases)
    return result


@dataclass
class _Adding:
    """Compares the results of cases and adds up their errors; if ``brief``, only until there are enough."""

    result: Comparison
    companion: Companion | None
    brief: bool
    first: Outputs | None = None  # the port's on the first inputs
    ordinary: Ordinary = field(default_factory=Ordinary)

    @property
    def enough(self) -> bool:
        return self.brief and self.result.faulty

    def add(self, run: CaseRun) -> None:
        """Wait for the port's results of one case and compare them."""
        result, clock, expected = self.result, self.result.clock, run.expected
        result.include(run.taps)
        with clock.gate("A"), spent_on("comparing"):
            port = run.recorded
            if self.first is None:
                self.first = port[0]
            if not run.case.batched and not self.ordinary.calls:
                self.ordinary = Ordinary(expected.calls, expected.outputs)
            result.add(expected, port[0], case_errors(expected, port, self.ordinary, result.logic))
        if not self.enough:
            with clock.gate("B"), spent_on("comparing"):
                self._add_single(run)
        if self.companion is not None and expected.outputs and not self.enough:
            with clock.gate(self.companion.letter):
                _accompany(self.companion, run)
        result.probes.append(run.case)

    def _add_single(self, run: CaseRun) -> None:
        """Add the float32 errors of every isolated layer and of the outputs."""
        result, expected, running, isolated = self.result, run.expected, run.running, run.isolated
        if running is None:
            return
        if isolated is None:
            result.findings |= dict.fromkeys(not_finite(expected, running))
            return
        errors = result.single.setdefault(run.case, RoundingErrors())
        result.float32.expected += len(result.outputs) + len(expected.taps)
        port = (running, *isolated)
        result.float32.compared += add_single(errors, expected, port, result.divided, bool(result.arranged))
        single = expected.observation.single
        if result.parts is not None and single and (truth := expected.in_port(single.outputs[1], running)):
            result.parts.add_single(running[0], truth[0])


def _accompany(companion: Companion, run: CaseRun) -> None:
    """Compare the companion's outputs with the reference's."""
    expected, outputs = run.expected, run.companion
    if "float64" in outputs:
        companion.compare(run.case.describe(), outputs["float64"], expected.outputs[0])
    if (single := expected.observation.single) is None or "float32" not in outputs:
        return
    reference, truth = (expected.in_port(side, expected.outputs) for side in single.outputs)
    if reference and truth:
        companion.compare_single(outputs["float32"], reference[0], truth[0])


def _repeat(result: Comparison, random_biases: bool, brief: bool) -> None:
    """Where a float32 error with these weights exceeds the bound, compare it with the reference's errors in further
    runs, since that of a single run may be small by chance; if it still exceeds it, run the port with its sums computed
    pairwise, to find the cause."""
    pairwise = None
    for case, errors in result.single.items():
        if case.random_biases != random_biases or not errors.exceeding():
            continue
        reference_errors = result.conditioning(case, "float32")
        errors.allow(reference_errors, result.outputs, result.divided)
        # The code of an eager port changes between comparisons, so that tracing it again would take longer than it.
        if not errors.exceeding() or result.candidate.eager or brief:
            continue
        pairwise = pairwise or PortSide(result.candidate, result.alignment.watched, pairwise=True)
        expected, again = result.observe_again(case), RoundingErrors()
        if expected.observation.single is not None:
            running = pairwise.run("float32", "whole", expected.single_inputs)
            port = (running, *pairwise.isolate(*expected.single_isolation))
            add_single(again, expected, port, result.divided, bool(result.arranged))
        again.allow(reference_errors, result.outputs, result.divided)
        result.pairwise[case] = again


def _sweep(result: Comparison) -> None:
    """Compare at every value of scalar inputs with few possible values: the layers whose only input is such a
    scalar."""
    timed = result.alignment.timed
    for tap in [tap for tap in result.alignment.taps if tap.reference in timed]:
        values = result.signature.inputs[timed[tap.reference]].every
        if values is not None:
            with result.clock.gate("A"):
                _sweep_layer(result, tap, values)


def _sweep_layer(result: Comparison, tap: Tap, values: Array) -> None:
    """One layer at every value of its input."""
    recording = result.reference.sweep([tap.reference], values).get(tap.reference)
    result.float64.expected += 1
    if recording is None:
        result.find(f"{tap.reference} was not run at every value of its input by the reference", tap.reference)
        return
    port = {dtype: result.port.at_values(dtype, tap.candidate, values) for dtype in result.candidate.models}
    result.float64.compared += 1
    if not result.taps[tap.reference].cumulative <= result.logic:
        return  # it is off, or a layer inside it is, at the battery's values already
    errors = output_errors(tuple(port["float64"]), tuple(recording.exact))
    result.taps[tap.reference].isolated = max(result.taps[tap.reference].isolated, *errors)
    inside = (result.taps[name].candidate for errors in result.single.values()
              for group, name in errors.exceeding() if not group)  # fmt: skip
    if any(path.startswith(f"{tap.candidate}/") for path in inside):
        return  # its layers run in it here, so their error in float32 would count as its own
    if port["float32"].shape == recording.truth.shape:
        pair = result.times.setdefault(tap.reference, ErrorPair())
        pair.add(port["float32"], recording.single, recording.truth)
