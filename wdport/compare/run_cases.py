"""Compare a reference with a port, layer by layer: the one engine behind every verdict.

The reference runs in this thread, one module at a time. Two further threads compile and run Keras's programs, one case
behind, since compiling takes most of a run. The reference's results are converted to the port's layout immediately, so
that all later code compares arrays of one layout. Results are added case by case, so a run is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from typing import Any

import jax
import keras
import numpy as np

from wdport.base.errors import WdportError
from wdport.compare.activities import Say, spent_on
from wdport.compare.alignment import Alignment
from wdport.compare.calls import Call, Calls, Case, ExpectedCall, Outputs, answers_of, layer_of, leaves
from wdport.compare.candidate import Candidate, PlainUse, PortSide
from wdport.compare.comparison import Clock, Companion, Comparison, OutputParts, RoundingErrors
from wdport.compare.differing_cases import SAMPLES, Sightings, other_sizes
from wdport.compare.findings import OUTPUT
from wdport.compare.gate_bounds import FLOAT32_SHARE
from wdport.compare.gate_bounds import bounds as default_bounds
from wdport.compare.gates import (
    KERAS_MASK,
    NOTHING,
    Explained,
    Loose,
    beyond,
    beyond_rounding,
    explained,
    hidden_scores_win,
    undetermined,
)
from wdport.compare.layer_errors import (
    InPort,
    floors_of,
    narrowed,
    norms,
    output_errors,
    output_names,
    rearranged,
    tap_errors,
    without,
    wrong_samples_of,
)
from wdport.compare.measure import ErrorPair, Ranges, float32_share, wrong_samples
from wdport.compare.programs import Deferred, Pending, trim_memory
from wdport.compare.reference import Reference, translated
from wdport.compare.results import Evidence, TapResult
from wdport.compare.taps import Tap
from wdport.models.interface import Array
from wdport.recorder import Conditioning, Observation, Single, by_sample, cast, one_line, run_as_stated, stated_float64

CASES_AT_ONCE = 1
"""Cases that the port computes while the reference runs the next: each holds several copies of every layer's arrays."""

LARGE = 1 << 27
"""Recorded bytes of a case from which it is compared before the next one runs."""


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
    alignment = Alignment(reference, candidate)
    port = PortSide(candidate, alignment.watched)
    probes = tuple(reference.cases(probes))
    bounds = bounds or default_bounds()
    result = Comparison(probes, reference, candidate, alignment, bounds, port, clock or Clock(), parts)
    engine = _Engine(result, companion, brief)
    with alignment.settings_in_errors():
        for index, (random_biases, group) in enumerate(groupby(probes, key=lambda case: case.random_biases)):
            with result.clock.gate("0"):
                reference.use(random_biases)
                candidate.use(random_biases)
            say(f"comparing with {'random biases' if random_biases else 'converted weights'}")
            engine.run(list(group))
            if brief and result.faulty:
                break
            # Once, with the converted weights, which are the first group.
            if not index:
                engine.sweep()
        else:
            engine.require_variation()
            engine.use_plainly()
            engine.use_as_stated()
    return result


@dataclass(frozen=True)
class _Started:
    """The reference's results in one case, in its own layout and in the port's, and the port's pending results."""

    case: Case
    observation: Observation
    outputs: Outputs
    calls: Mapping[str, ExpectedCall]
    into: InPort
    taps: Sequence[Tap]
    inputs: tuple[Array, ...]
    port: Pending
    running: Pending | None = None
    isolated: Pending | None = None
    companion: Mapping[str, Pending] = field(default_factory=dict)


class _Engine:
    """Runs the cases and adds what they show to a comparison."""

    def __init__(self, result: Comparison, companion: Companion | None, brief: bool) -> None:
        self.result, self.companion, self.brief = result, companion, brief
        self.alignment, self.port, self.clock = result.alignment, result.port, result.clock
        self.signature, self.logic = result.signature, result.bounds["logic"]
        self.ranges = Ranges()
        self.sightings = Sightings(result.probes[0])
        self.plain: PlainUse | None = None
        # The most values in the inputs of a case so far: before a larger one, the arrays of others are released.
        self.largest = 0
        self.first: Outputs | None = None  # the port's on the first inputs
        # Of inputs without a batch axis, which extreme values fill as a whole: the calls and outputs of ordinary ones.
        self.ordinary: tuple[Mapping[str, ExpectedCall], Outputs] = ({}, ())
        # Samples of the case under way in which Keras's own attention sees what a mask hides.
        self.hidden: set[int] = set()
        self.own_values = False  # whether isolated sides get other values, such as an input of another size

    def run(self, cases: Sequence[Case]) -> None:
        """Run and compare these cases with the current weights."""
        with ThreadPoolExecutor(2) as pool:
            under_way: list[_Started] = []
            for case in cases:
                # The peak of memory is one large case, not a large one and the one before it.
                if under_way and _values(self.result.reference.inputs(case)) > self.largest:
                    self._finish(under_way)
                with self.clock.gate("0"):
                    if self.own_values and case.gain != 1.0:
                        # Values that only the port has, such as zeros around an input, do not grow with the gain, so
                        # the sides would differ.
                        plain = replace(case, gain=1.0)
                        self.result.probes = tuple(plain if probe == case else probe for probe in self.result.probes)
                        case = plain
                    observation = self.result.observe(case)
                    self.largest = max(self.largest, _values(observation.inputs))
                    if not self.result.taps:
                        self._settle(observation)
                    # An eager port's code may be patched during its run, which no other thread may see.
                    submit = Deferred if self.result.candidate.eager else pool.submit
                    under_way += self._started(submit, case, observation)
                ahead = 0 if self.brief or _size(observation) > LARGE else CASES_AT_ONCE
                del observation  # what is under way holds it
                # The port's threads work on the newest case while this thread runs the reference on the next one.
                self._finish(under_way, ahead)
                if self.brief and self.result.faulty:
                    return
            self._finish(under_way)
        with self.clock.gate("B"):
            self._repeat(cases[0].random_biases)

    def sweep(self) -> None:
        """Compare at every value of scalar inputs with few possible values: the layers whose only input is such a
        scalar."""
        for tap in [tap for tap in self.alignment.taps if tap.reference in self.alignment.timed]:
            values = self.signature.inputs[self.alignment.timed[tap.reference]].every
            if values is not None:
                with self.clock.gate("A"):
                    self._sweep(tap, values)

    def require_variation(self) -> None:
        """Count layers that compute one number in all cases as not compared."""
        for name in self.ranges.constant:
            self.result.find(f"{name} is constant, so nothing can be seen there", name, "silent")
            self.result.float64.compared -= self.result.runs[name]
            self.result.runs[name] = 0

    def _settle(self, observation: Observation) -> None:
        """Determine which calls are compared, before the port computes anything."""
        # Before the port runs: the error of a port that cannot run then names the settings that differ.
        self.alignment.compare_settings(observation, {})
        outputs, shapes = self.port.shapes(self.signature.in_port(observation.inputs))
        stated = [port.name for port in self.signature.outputs]
        self.result.outputs = output_names((self.port.output_names, observation.names, stated), len(outputs))
        self.result.taps, findings = self.alignment.settle(observation, shapes)
        self.result.findings |= dict.fromkeys(findings)
        # The reference isolates a module that is compared only by its parts, and the port does not: with a gain, the
        # first of the parts would get values of another size.
        self.own_values = any(tap.reference in observation.calls for tap in self.alignment.left_out)
        self.plain = PlainUse(self.result.candidate.models["float64"], self.signature.in_port(observation.inputs))
        self.result.reference.include(self.plain.numbers)

    def use_plainly(self) -> None:
        """Compare the model called as users call it, after all other calls."""
        if self.plain is not None:
            with self.clock.gate("A"):
                last = self.result.probes[-1].random_biases
                self.result.candidate.use(False)  # the weights of the first inputs
                self.result.findings |= dict.fromkeys(self.plain.differing(self.first))
                self.result.candidate.use(last)

    def use_as_stated(self) -> None:
        """Where the reference's code states float64, find what the port's code states to be float32: both are float64
        in the float64 comparison."""
        case, result = self.result.probes[0], self.result
        # Where float32 is not compared, there may be no reference in float32.
        if not (modules := result.reference.modules) or case not in result.single:
            return
        with self.clock.gate("A"):
            single = cast(result.reference.inputs(case), np.float32)
            with translated(), spent_on("running PyTorch"):
                stated = stated_float64(modules["float32"], single, {layer_of(tap) for tap in result.taps})
            if not stated:
                return
            result.candidate.use(case.random_biases)
            observation, taps, into = self._again(case)  # its weights are those of the case
            port = PortSide(result.candidate, self.alignment.watched, as_stated=True)
            inputs, calls = self.signature.in_port(observation.inputs), into(observation.calls)
            outputs, computed = port.isolate("float64", inputs, calls, self._doubtful(taps, into))
            errors = {(tap.reference, part): error for tap in taps if (pair := tap_errors(tap, computed, calls))
                      for part, error in zip(("fed", "made"), pair, strict=True)}  # fmt: skip
            running = port.run("float64", "whole", inputs)
            with translated(), spent_on("running PyTorch"):
                rounded = run_as_stated(modules, observation.inputs)
            mirrored = result.outputs_in_port(rounded, observation.names, running)
            right = result.outputs_in_port(observation.outputs, observation.names, outputs)
            if mirrored and max(output_errors(running, mirrored), default=0.0) <= self.logic:
                stated = {}  # the port rounds to float32 where the reference does
            if right:
                output = zip(result.outputs, output_errors(outputs, right), strict=True)
                errors |= {(name, "made"): error for name, error in output}
            for (name, part), both in stated.items():
                for subject in [name] if name else result.outputs:
                    self._add_stated(subject, part, errors.get((subject, part), 0.0), both)
            if result.as_stated and right:
                for name, error in zip(result.outputs, output_errors(running, right), strict=True):
                    result.taps[name].cumulative = max(result.taps[name].cumulative, error)
            result.reference.use(result.probes[-1].random_biases)
            result.candidate.use(result.probes[-1].random_biases)

    def _add_stated(self, name: str, part: str, error: float, both: bool) -> None:
        """Add what a layer, or its input, is off by where the port's code states float32 and the reference's float64;
        if that states float32 as well, ``both``, this may be what the port's is."""
        measured = self.result.taps.get(name)
        if measured is None or error <= self.logic or not max(measured.inputs, measured.isolated) <= self.logic:
            return
        if both:
            what = f"what {name} is fed" if part == "fed" else name
            text = f"{what} is off by {error:.1e} in float64 by a float32 that the port's code states; the reference's"
            self.result.find(f"{text} states float64 and float32 there", name, "notice")
            return
        self.result.as_stated.add(name)
        if part == "fed":
            measured.inputs = error
        else:
            measured.isolated = measured.cumulative = error

    def _again(self, case: Case) -> tuple[Observation, Sequence[Tap], InPort]:
        """The reference's results in a case that was compared, and what converts them to the port's layout."""
        observation = self.result.observe(case)
        _, shapes = self.port.shapes(self.signature.in_port(observation.inputs))
        taps = self.alignment.of(observation.calls, shapes, len(observation.inputs) < len(self.signature.inputs))
        return observation, taps, InPort(taps, shapes)

    def _extend(self, observation: Observation, shapes: Calls) -> None:
        """Compare the calls too that no case before this one makes."""
        results, findings = self.alignment.extend(observation, shapes)
        self.result.taps |= results
        self.result.findings |= dict.fromkeys(findings)
        self.result.runs.update(dict.fromkeys(results, self.result.cases))

    def _started(self, submit: Callable[..., Pending], case: Case, observation: Observation) -> list[_Started]:
        """Start one case; nothing, with a finding, if the port does not accept its inputs."""
        try:
            return [self._start(submit, case, observation)]
        except WdportError:
            raise
        except Exception as error:  # of the user's code
            shapes = ", ".join(str(array.shape) for array in observation.inputs)
            text = f"the port raises {one_line(error)} on inputs of {shapes}, which the reference accepts"
            self.result.find(text)
            return []

    def _start(self, submit: Callable[..., Pending], case: Case, observation: Observation) -> _Started:
        """Start all of Keras's programs for one case."""
        inputs = self.signature.in_port(observation.inputs)
        output_shapes, shapes = self.port.shapes(inputs)
        self._extend(observation, shapes)
        taps = self.alignment.of(observation.calls, shapes, len(observation.inputs) < len(self.signature.inputs))
        into = InPort(taps, shapes)
        outputs = self.result.outputs_in_port(observation.outputs, observation.names, output_shapes)
        calls = into(observation.calls)
        self.own_values |= bool(into.misfits) or _keeps_own_values(calls, shapes, 3 if case.batched else 2)
        # A call that only one side makes, or that a recording lacks, is not isolated on the other side.
        self.own_values |= any((tap.reference in observation.calls) != (tap.candidate in shapes) for tap in taps)
        port, single = submit(self.port.record, inputs), observation.single
        dtypes = self.companion.dtypes(case) if self.companion is not None else ()
        running, isolated, by_dtype = None, None, {"float64": inputs}
        if single is not None:
            narrow = by_dtype["float32"] = self.signature.in_port(single.inputs)
            running = submit(self.port.run, "float32", "whole", narrow)
            if single.isolated is not None:
                answers = into(answers_of(case, observation.calls))
                isolated = submit(self.port.isolate, "float32", narrow, answers, self._doubtful(taps, into))
        companion = {dtype: submit(self._accompany, dtype, by_dtype[dtype]) for dtype in dtypes if dtype in by_dtype}
        return _Started(case, observation, outputs, calls, into, taps, inputs, port, running, isolated, companion)

    def _finish(self, under_way: list[_Started], ahead: int = 0) -> None:
        """Compare the cases under way, the first ones first, and release their arrays, but for ``ahead`` of them."""
        while len(under_way) > ahead:
            self._compare(under_way.pop(0))
            trim_memory()

    def _compare(self, started: _Started) -> None:
        """Wait for the port's results of one case and compare them."""
        with self.clock.gate("A"), spent_on("comparing"):
            self._float64(started)
        if started.observation.single is not None and not (self.brief and self.result.faulty):
            with self.clock.gate("B"), spent_on("comparing"):
                self._float32(started)
        if self.companion is not None and not (self.brief and self.result.faulty):
            with self.clock.gate(self.companion.letter):
                self._accompanied(started, self.companion)
        self.result.cases += 1

    def _sweep(self, tap: Tap, values: Array) -> None:
        """One layer at every value of its input."""
        result = self.result
        recording = result.reference.sweep([tap.reference], values).get(tap.reference)
        result.float64.expected += 1
        if recording is None:
            text = f"{tap.reference} was not run at every value of its input by the reference"
            result.find(text, tap.reference)
            return
        port = {dtype: self.port.at_values(dtype, tap.candidate, values) for dtype in result.candidate.models}
        result.float64.compared += 1
        if not result.taps[tap.reference].cumulative <= self.logic:
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

    def _accompany(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        assert self.companion is not None
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            return self.companion.predict(dtype, inputs)

    def _doubtful(self, taps: Sequence[Tap], into: InPort) -> set[str]:
        """The port's calls whose answers have other shapes."""
        return {tap.candidate for tap in taps if tap.reference in into.misfits}

    def _float64(self, started: _Started) -> None:
        """Isolated and cumulative float64 errors at every tap, in the order of the computation.

        If every layer gets the reference's inputs in the running network, that run already isolates all layers.
        Otherwise an isolated run locates the fault.
        """
        result, (outputs, through) = self.result, _awaited(started.port)
        self.first = outputs if self.first is None else self.first
        if not started.case.batched and not self.ordinary[0]:
            self.ordinary = started.calls, started.outputs
        running = self._tap_errors(through, started, started.calls, started.into)
        # Other inputs, such as fewer zeros around them, and equal outputs.
        padded = {name for name in started.into.misfed if (error := running[name]) and error[1] <= self.logic}
        running |= dict.fromkeys(padded, (0.0, 0.0))
        running |= self._arranged(running, through, started, outputs)
        loose, conditioning, differing = Loose(), None, self._differing(running)
        # An ordinary sample of scale 1 is to be determined: a layer that is compared nowhere would pass.
        unusual = bool(started.case.extremes) or started.case.scale != 1.0
        if unusual and (differing or self._output_differs(started, outputs)):
            conditioning = result.conditioning(started.case, "float64")
            loose = undetermined(conditioning, started.observation, started.case)
            loose = {name: parts for name, parts in loose.items() if name in (*differing, OUTPUT)}
            self._leave_out_hidden(started, loose)
            determined = self._tap_errors(through, started, started.calls, started.into, loose, "running")
            running |= {name: determined[name] for name in differing}
        isolated, isolated_outputs, into = running, outputs, started.into
        isolated_calls, expected = through, started.calls
        if self._differing(running):
            doubtful = self._doubtful(started.taps, started.into)
            isolated_outputs, isolated_calls = self.port.isolate("float64", started.inputs, started.calls, doubtful)
            if into.misfits:  # most of them only follow from the first: in isolation, the shapes after it are right
                into = InPort(started.taps, isolated_calls)
                expected = into(started.observation.calls)
                if _fed_otherwise(expected, started.calls):  # such as with zeros around, up to a wrong size
                    isolated_outputs, isolated_calls = self.port.isolate("float64", started.inputs, expected, doubtful)
                    into = InPort(started.taps, isolated_calls)
                    expected = into(started.observation.calls)
            self._keep(started, isolated_calls, isolated_outputs, expected)
            isolated = self._tap_errors(isolated_calls, started, expected, into, loose, "made")
            isolated |= dict.fromkeys(into.misfed, (inf, 0.0))  # of these, the code around the layer is to blame
            isolated |= dict.fromkeys(padded, (0.0, 0.0))
        if not result.arranged:
            for name, text in into.misfits.items():
                if name not in padded:
                    result.find(f"{name}: {text}", name)
        explanations = self._explained(started, conditioning, running, isolated)
        self._output_errors(started, outputs, isolated_outputs, explanations.get(OUTPUT, NOTHING), loose)
        if conditioning is not None and started.outputs:
            lost = loose.get(OUTPUT, {}).get("made", set()) - self.hidden
            moved = result.outputs_in_port(conditioning.outputs, started.observation.names, outputs)
            for place, output_error in beyond_rounding(outputs, started.outputs, moved, lost, started.case):
                output_result = result.taps[result.outputs[place]]
                output_result.isolated = max(output_result.isolated, output_error)
                output_result.cumulative = max(output_result.cumulative, output_error)
        if started.outputs and any(result.taps[name].isolated > self.logic for name in result.outputs):
            self._keep(started, through, outputs, started.calls)  # of code after the last layer
        called = {tap.reference for tap in started.taps}
        for tap in self.alignment.taps:
            if tap.reference not in called:  # neither side calls it in this case
                result.runs[tap.reference] += 1
                continue
            result.float64.expected += 1
            running_error, isolated_error = running[tap.reference], isolated[tap.reference]
            if running_error is None or isolated_error is None:
                text = f"{tap.reference} did not run on both sides with inputs that can be compared"
                result.find(text, tap.reference, "silent")
                continue
            measured, call = result.taps[tap.reference], started.observation.calls[tap.reference]
            spread = explanations.get(tap.reference, NOTHING)
            measured.cumulative = max(measured.cumulative, beyond(measured, running_error[1], spread.running))
            fed_error = beyond(measured, isolated_error[0], spread.fed)
            own_error = beyond(measured, isolated_error[1], spread.isolated)
            measured.inputs, measured.isolated = max(measured.inputs, fed_error), max(measured.isolated, own_error)
            if not max(fed_error, own_error) <= self.logic:
                wrong = wrong_samples_of(tap, isolated_calls, expected, floors_of(started.case), self.logic)
                measured.only = self._sighted(started, tap.reference, wrong)
            # Extreme cases hold zeros and constants, which are exact in float32 and would look like a precision leak.
            shares = [0.0 if started.case.extremes else narrowed(side) for side in (call, through[tap.candidate])]
            measured.share32 = (max(measured.share32[0], shares[0]), max(measured.share32[1], shares[1]))
            self.ranges.add(tap.reference, call.outputs)
            result.float64.compared += 1
            result.runs[tap.reference] += 1

    def _sighted(self, started: _Started, name: str, samples: Collection[int]) -> str:
        """Note that a layer or an output differs in this case; returns the only inputs so far with which it does."""
        sizes = other_sizes(self.signature.inputs, [array.shape for array in started.inputs])
        self.sightings.add(name, started.case, sizes, samples)
        return self.sightings.only(name)

    def _keep(
        self, started: _Started, calls: Calls, outputs: Outputs, expected: Mapping[str, ExpectedCall]
    ) -> None:  # fmt: skip
        """Keep the port's calls and outputs of the first faulty case, from which causes are found."""
        port = {**calls, "": Call((), outputs)}
        reference = {**expected, "": ExpectedCall({}, 0, started.outputs)}
        torch_inputs, random_biases = started.observation.inputs, started.case.random_biases
        evidence = Evidence(started.inputs, port, reference, torch_inputs, random_biases)
        self.result.evidence = self.result.evidence or evidence

    def _tap_errors(
        self, calls: Calls, started: _Started, expected: Mapping[str, ExpectedCall], into: InPort,
        loose: Loose | None = None, part: str = "",
    ) -> dict[str, tuple[float, float] | None]:  # fmt: skip
        """Errors by the reference's name; infinite if the arrays cannot be compared. Samples that are ``loose`` in this
        ``part`` of a tap's outputs, or in its inputs, are left out."""
        floors, errors = floors_of(started.case), dict[str, tuple[float, float] | None]()
        kinds = started.case.extremes or (f"scale x{started.case.scale:g}",) * started.case.samples
        for tap in started.taps:
            samples = (loose or {}).get(tap.reference, {})
            fed, lost = samples.get("fed", ()), samples.get(part, ())
            sides = [without(floors or (0.0,) * len(kinds), samples) if samples else floors for samples in (fed, lost)]
            errors[tap.reference] = tap_errors(tap, calls, expected, sides[0], sides[1], self.ordinary[0])
            self._leave_out(tap.reference, [kinds[index] for index in sorted({*fed, *lost} - self.hidden)])
        for name in into.misfits:
            error = errors.get(name)
            errors[name] = (0.0, inf) if error is None else error
        return errors

    def _leave_out_hidden(self, started: _Started, loose: Loose) -> None:
        """Leave out samples in which Keras's own attention sees what a mask hides, in it and in what may follow."""
        layers, self.hidden = self.port.probes["float64"].layers, set()
        for tap in started.taps:
            layer: Any = layers.get(tap.candidate)
            query, key = (started.calls.get(f"{tap.candidate}/{part}") for part in ("query", "key"))
            if type(layer) is not keras.layers.MultiHeadAttention or query is None or key is None:
                continue
            if not layer.get_config()["dropout"]:
                continue  # it calls ops.dot_product_attention, which hides with the lowest number
            if lost := hidden_scores_win(query.outputs[0], key.outputs[0]):
                self.hidden |= lost
                # In order of completion: layers before it, and its own projections, are compared.
                before = {f"{tap.reference}.{part}" for part in ("query", "key", "value")}
                names = list(loose)
                inside = (name == tap.reference or name.startswith(f"{tap.reference}.") for name in names)
                first = next((index for index, is_in in enumerate(inside) if is_in), len(names) - 1)
                for name in [name for name in names[first:] if name not in before]:
                    for part in ("fed", "made", "running"):
                        loose[name][part] = loose[name].get(part, set()) | lost
                kinds = started.case.extremes or (f"scale x{started.case.scale:g}",) * started.case.samples
                words = ", ".join(dict.fromkeys(SAMPLES.get(kinds[index], kinds[index]) for index in sorted(lost)))
                text = (
                    f"samples of {words} are left out from {tap.reference} on: keras.layers.MultiHeadAttention "
                    f"with dropout gives what a mask hides the score {-KERAS_MASK:g}, and others are lower"
                )
                self.result.find(text, tap.reference, "notice")

    def _leave_out(self, name: str, kinds: Sequence[str]) -> None:
        """Note that samples of these kinds are left out of a layer."""
        if kinds:
            names = dict.fromkeys(kind or "ordinary values" for kind in kinds)
            self.result.undetermined.setdefault(name, {}).update(names)

    def _differing(self, errors: Mapping[str, tuple[float, float] | None]) -> list[str]:
        """The names with an error beyond the bound; NaN is."""
        return [name for name, error in errors.items() if error is not None and not max(error) <= self.logic]

    def _arranged(
        self, errors: Mapping[str, tuple[float, float] | None], through: Calls, started: _Started, outputs: Outputs
    ) -> dict[str, tuple[float, float]]:
        """Set no error for layers that hold the reference's values in another order, if the output agrees and no other
        layers differ: the order of keys, for example, is mathematically arbitrary."""
        differing = self._differing(errors)
        if not differing or not started.outputs or not max(output_errors(outputs, started.outputs)) <= self.logic:
            return {}
        orders = {tap.reference: rearranged(tap, through, started.calls, started.observation.calls)
                  for tap in started.taps if tap.reference in differing}  # fmt: skip
        if not all(orders.values()):
            return {}
        self.result.arranged |= {name: order for name, order in orders.items() if order}
        return dict.fromkeys(orders, (0.0, 0.0))

    def _output_differs(self, started: _Started, outputs: Outputs) -> bool:
        """Whether an output alone differs, which no layer's result shows, such as the place of a maximum."""
        floors = floors_of(started.case)
        sizes = norms(self.ordinary[1])
        return bool(started.outputs) and not max(output_errors(outputs, started.outputs, floors, sizes)) <= self.logic

    def _explained(
        self, started: _Started, conditioning: Conditioning | None,
        *errors: Mapping[str, tuple[float, float] | None],
    ) -> dict[str, Explained]:  # fmt: skip
        """The relative errors that one rounding explains, by tap; measured only if an error exceeds the bound."""
        if not any(map(self._differing, errors)):
            return {}
        conditioning = conditioning or self.result.conditioning(started.case, "float64")
        by_tap, output = explained(conditioning, started.observation, floors_of(started.case))
        return {**by_tap, OUTPUT: output}

    def _repeat(self, random_biases: bool) -> None:
        """Where a float32 error with these weights exceeds the bound, compare it with the reference's errors in further
        runs, since that of a single run may be small by chance; if it still exceeds it, run the port with its sums
        computed pairwise, to find the cause."""
        result, pairwise = self.result, None
        for case, errors in result.single.items():
            if case.random_biases != random_biases or not errors.exceeding():
                continue
            reference_errors = result.conditioning(case, "float32")
            errors.allow(reference_errors, result.outputs, result.parts)
            # The code of an eager port changes between comparisons, so that tracing it again would take longer than it.
            if errors.exceeding() and not result.candidate.eager and not self.brief:
                pairwise = pairwise or PortSide(result.candidate, self.alignment.watched, pairwise=True)
                again = result.pairwise[case] = self._summed_pairwise(pairwise, case)
                again.allow(reference_errors, result.outputs, result.parts)

    def _summed_pairwise(self, port: PortSide, case: Case) -> RoundingErrors:
        """The float32 errors of a case with the port's sums computed pairwise."""
        (observation, taps, into), errors = self._again(case), RoundingErrors()
        if (single := observation.single) is None:
            return errors
        answers, narrow = into(answers_of(case, observation.calls)), self.signature.in_port(single.inputs)
        running = port.run("float32", "whole", narrow)
        isolated = port.isolate("float32", narrow, answers, self._doubtful(taps, into))
        self._add_single(errors, case, taps, into, (running, *isolated), observation)
        return errors

    def _add_single(
        self, errors: RoundingErrors, case: Case, taps: Sequence[Tap], into: InPort,
        port: tuple[Outputs, Outputs, Calls], observation: Observation,
    ) -> int:  # fmt: skip
        """Add the float32 errors of the outputs and of every isolated layer; returns how many could be compared.
        ``port`` are its outputs, and its outputs and calls in isolation."""
        result, single, (outputs, isolated_outputs, calls) = self.result, observation.single, port
        assert single is not None
        reference, truth, *isolated_references = (
            result.outputs_in_port(side, observation.names, outputs)
            for side in (*single.outputs, *(isolated[0] for isolated in single.isolated or ()))
        )
        if reference:
            # With a gain, isolated outputs differ if one side computes them by a layer, and the other by a function of
            # an earlier layer's output: only values of three axes grow.
            isolated = (isolated_outputs, *isolated_references) if case.gain == 1.0 else None
            errors.add_outputs(result.outputs, (outputs, reference, truth), isolated)
        if result.parts is not None and reference:
            errors.add_parts(result.parts.port, outputs[0], reference[0], truth[0])
            result.parts.add_single(outputs[0], truth[0])
        return len(result.outputs) * bool(reference) + self._add_taps(errors, taps, into, calls, single)

    def _add_taps(self, errors: RoundingErrors, taps: Sequence[Tap], into: InPort, port: Calls, single: Single) -> int:
        """Add the float32 errors of isolated layers; returns how many could be compared."""
        references, truths = (into(calls) for _, calls in single.isolated or ())
        arranged = bool(self.result.arranged)  # of any layer: those after it get its order
        return sum(
            errors.add_tap(tap, port[path], references[path], truths[path], arranged)
            for tap in taps
            if all((path := tap.candidate) in side for side in (port, references, truths))
        )

    def _output_errors(
        self, started: _Started, outputs: Outputs, isolated_outputs: Outputs, spread: Explained, loose: Loose
    ) -> None:
        """Compare the network's outputs, as a whole and part by part."""
        result, reference, extremes = self.result, started.outputs, bool(started.case.extremes)
        lost = loose.get(OUTPUT, {}).get("made", ())
        isolated = reference
        if not reference and isolated_outputs is not outputs:
            # Outputs of another size may be the fault of one layer.
            isolated = result.outputs_in_port(started.observation.outputs, started.observation.names, isolated_outputs)
        for index, name in enumerate(result.outputs):
            measured = result.taps.setdefault(name, TapResult(name, "", None))
            result.float64.expected += 1
            result.float64.compared += 1
            result.runs[name] += 1
            if not reference:
                measured.cumulative = inf
                error = output_errors((isolated_outputs[index],), (isolated[index],))[0] if isolated else inf
                measured.isolated = max(measured.isolated, error)
                continue
            floors, sides = floors_of(started.case), (outputs, isolated_outputs)
            floors = without(floors or (0.0,) * started.case.samples, lost) if lost else floors
            sizes = norms(self.ordinary[1][index : index + 1])
            errors = [output_errors((side[index],), (reference[index],), floors, sizes)[0] for side in sides]
            measured.cumulative = max(measured.cumulative, beyond(measured, errors[0], spread.running))
            own_error = beyond(measured, errors[1], spread.isolated)
            measured.isolated = max(measured.isolated, own_error)
            if not own_error <= self.logic:
                wrong = wrong_samples(isolated_outputs[index], reference[index], floors, self.logic)
                measured.only = self._sighted(started, name, wrong)
            shares = (0.0, 0.0) if extremes else (float32_share(reference[index]), float32_share(outputs[index]))
            if min(shares) > FLOAT32_SHARE and self._are_weights(reference[index]):  # of a lookup
                shares = (0.0, 0.0)
            measured.share32 = (max(measured.share32[0], shares[0]), max(measured.share32[1], shares[1]))
        if result.parts is not None and reference and not extremes:
            result.parts.add(outputs[0], reference[0])

    def _are_weights(self, values: Array) -> bool:
        """Whether all values are among the port's weights, which float32 holds."""
        variables = [np.asarray(variable.value) for variable in self.result.candidate.models["float64"].variables]
        weights = [array.ravel() for array in variables if array.dtype == values.dtype]
        return bool(weights) and bool(np.isin(values, np.concatenate(weights)).all())

    def _float32(self, started: _Started) -> None:
        """Float32 errors of both sides relative to float64, of every isolated layer and of the outputs."""
        if started.running is None:
            return
        if started.isolated is None:
            self._finite(started, _awaited(started.running))
            return
        errors, tally = self.result.single.setdefault(started.case, RoundingErrors()), self.result.float32
        port = (_awaited(started.running), *_awaited(started.isolated))
        tally.expected += len(self.result.outputs) + len(started.taps)
        tally.compared += self._add_single(errors, started.case, started.taps, started.into, port, started.observation)

    def _finite(self, started: _Started, outputs: Outputs) -> None:
        """Find outputs for extreme values that are finite in float32 in the reference, and not in the port: float32
        cannot hold a number of the port's code, or something that it computes."""
        single, case = started.observation.single, started.case
        assert single is not None
        reference = self.result.outputs_in_port(single.outputs[0], started.observation.names, outputs)
        step_by_step: Outputs | None = None
        for index, (name, ours, theirs) in enumerate(zip(self.result.outputs, outputs, reference, strict=False)):
            lost = np.isfinite(theirs) & ~np.isfinite(ours)
            if lost.any():
                if step_by_step is None:
                    step_by_step = self.port.eagerly(self.signature.in_port(single.inputs), "float32")
                compiled = bool(np.isfinite(step_by_step[index])[np.isfinite(theirs)].all())
                rows = by_sample(lost, case.samples)
                kinds = case.extremes if rows is None else [case.extremes[n] for n, row in enumerate(rows) if row.any()]
                words = ", ".join(dict.fromkeys(SAMPLES[kind] for kind in kinds if kind))
                samples = f"samples of {words}" if words else "an ordinary sample beside extreme ones"
                place = self._first_lost(started)
                text = f"{name} is not finite in float32{place} in {samples}, where the reference's is"
                # Such as in a softmax whose scores XLA computes twice, with other roundings.
                cause = "; the cause is how XLA compiles it: run step by step, it is finite" if compiled else ""
                self.result.find(f"{text}{cause}", name, "notice" if compiled else "fact")

    def _first_lost(self, started: _Started) -> str:
        """The first layer that is fed or returns numbers that are not finite, though it is fed what the reference's is,
        unless the code around it computes something else."""
        answers = started.into(answers_of(started.case, started.observation.calls))
        narrow = cast(started.inputs, np.float32)
        _, calls = self.port.isolate("float32", narrow, answers, self._doubtful(started.taps, started.into))
        for tap in started.taps:
            call = calls[tap.candidate]
            for what, side in (("the input of ", call.inputs), ("", call.outputs)):
                if not all(np.isfinite(leaf).all() for leaf in leaves([*side])):
                    return f", from {what}{tap.candidate} on,"
        return ""

    def _accompanied(self, started: _Started, companion: Companion) -> None:
        """Compare the companion's outputs with the reference's."""
        if not started.outputs:
            return
        outputs = {dtype: future.result() for dtype, future in started.companion.items()}
        if "float64" in outputs:
            companion.compare(started.case.describe(), outputs["float64"], started.outputs[0])
        single = started.observation.single
        if single is None or "float32" not in outputs:
            return
        names, shapes = started.observation.names, started.outputs
        reference, truth = (self.result.outputs_in_port(side, names, shapes) for side in single.outputs)
        if reference and truth:
            companion.compare_single(outputs["float32"], reference[0], truth[0])


def _awaited(pending: Pending) -> Any:
    with spent_on("waiting"):
        return pending.result()


def _values(inputs: Sequence[Array]) -> int:
    return sum(array.size for array in inputs)


def _size(observation: Observation) -> int:
    """The bytes of a case's recorded arrays; calls share some."""
    single = observation.single
    runs = [observation.calls, *(calls for _, calls in (single.isolated or () if single else ()))]
    arrays = (leaf for run in runs for call in run.values() for leaf in leaves([*call.inputs, *call.outputs]))
    # A layer's output is the next one's input: one array, counted once.
    return sum({id(array): array.nbytes for array in arrays}.values())


def _fed_otherwise(calls: Mapping[str, ExpectedCall], earlier: Mapping[str, ExpectedCall]) -> bool:
    """Whether an input has another size than the one that was expected earlier."""
    return any(np.shape(array) != np.shape(earlier[name].inputs[index]) for name, call in calls.items()
               if name in earlier for index, array in call.inputs.items() if index in earlier[name].inputs)  # fmt: skip


def _keeps_own_values(calls: Mapping[str, ExpectedCall], shapes: Calls, axes: int) -> bool:
    """Whether the reference has no counterpart of an input with at least this number of axes, or of a part of an
    output."""
    further = (index not in call.inputs and len(leaf.shape) >= axes
               for name, call in calls.items() if len(call.inputs) < call.count
               for index, leaf in enumerate(leaves(list(shapes[name].inputs))))  # fmt: skip
    return any(call.window for call in calls.values()) or any(further)
