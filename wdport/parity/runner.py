"""Run the battery: run every case on both sides, compare every tap, collect results per tap.

The reference runs in this thread, one module at a time. Two further threads compile and run Keras's programs, one case
behind, since compiling takes most of a run. The reference's results are converted to the port's layout immediately, so
that all later code compares arrays of one layout. Results are added case by case, so a run is deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from typing import Any

import jax
import numpy as np

from wdport.compare.aligned import compare_settings
from wdport.compare.bounds import FLOAT32_SHARE, LOGIC
from wdport.compare.calls import Call, Calls, Case, Expected, Outputs, cast, leaves
from wdport.compare.errors import InPort, rearranged, tap_errors
from wdport.compare.errors import outputs_in_port as in_order
from wdport.compare.findings import OUTPUT, Finding, fact
from wdport.compare.layouts import axes
from wdport.compare.measure import float32_share, is_constant, relative_l2
from wdport.compare.memory import trim_memory
from wdport.compare.setting import SettingsReport
from wdport.compare.taps import (
    Tap,
    align,
    every_call,
    left_out,
    nearest,
    padded_by,
    unconverted,
    watched,
    without_module,
)
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Sampled
from wdport.keras_runtime import layers_by_path
from wdport.model import Array
from wdport.parity.clock import Clock
from wdport.parity.diagnose import Evidence
from wdport.parity.explained import NOTHING, Explained, beyond, explained
from wdport.parity.output_parts import OutputParts
from wdport.parity.port_side import PortSide, Ran
from wdport.parity.sampling_network import SamplingNetwork
from wdport.parity.sides import DTYPES, Sides
from wdport.parity.single import SingleErrors
from wdport.parity.verdict import TapResult
from wdport.recorder import Observation, Single, scalar_fed

EAGER = "output, eager"

CASES_AT_ONCE = 1
"""Cases that the port computes while the reference runs the next: each holds several copies of every layer's arrays."""


@dataclass
class Tally:
    """Counts of one gate's comparisons: those that had to be made, and those that were."""

    expected: int = 0
    compared: int = 0


@dataclass(frozen=True)
class _Started:
    """The reference's results in one case, in its own layout and in the port's, and the port's pending results."""

    case: Case
    seen: Observation
    outputs: Outputs
    calls: Mapping[str, Expected]
    into: InPort
    port: Future[Ran]
    whole: Future[Outputs] | None = None
    isolated: Future[Ran] | None = None
    sampled: Mapping[str, Future[Array]] = field(default_factory=dict)


class Runner:
    """Compares the sides case by case, in float64 and in float32."""

    def __init__(self, prepared: Prepared, sides: Sides, full: bool = False) -> None:
        self.sides = sides
        self.config, self.family = prepared.config, prepared.family
        self.signature = self.family.signature(self.config)
        features = prepared.family.features(prepared.config)
        layers = layers_by_path(sides.candidates["float64"])
        aligned = align(
            prepared.table, sides.reference.names, layers, features, self.signature.axes, self.signature.words.one
        )
        self.modules = (
            dict(sides.references["float64"].named_modules(remove_duplicate=False)) if sides.references else {}
        )
        """The reference's modules by path; none if it is a recording."""
        self.aligned = padded_by(aligned, self.modules)
        self.unconverted = unconverted(prepared.table, sides.reference.names, layers, features)
        self.without_module = without_module(prepared.table, sides.reference.names, features)
        self.port = PortSide(sides.candidates, watched(self.aligned))
        self.settings = SettingsReport(note="" if self.modules else "the reference is a recording, which states none")
        self.left_out: dict[Tap, str] = {}
        self.timed: dict[str, int] = {}
        self.arranged: dict[str, str] = {}
        self.runs: Counter[str] = Counter()
        self.taps: dict[str, TapResult] = {}
        self.outputs: tuple[str, ...] = ()
        self.sampling: SamplingNetwork | None = None
        if isinstance(self.family, Sampled) and not self.family.unsampled(prepared.config):
            self.sampling = SamplingNetwork(self.family, prepared.config, sides.candidates, full)
        self.single = SingleErrors()
        divided = self.signature.divided
        self.parts = None if divided is None else OutputParts(divided)
        self.evidence: Evidence | None = None
        self.findings: dict[Finding, None] = {}
        self.logic, self.numerics = Tally(), Tally()
        self.cases = 0
        self.clock = Clock()

    def compare(self, cases: Sequence[Case]) -> None:
        """Run and compare these cases with the current weights."""
        with ThreadPoolExecutor(2) as pool:
            under_way: list[_Started] = []
            for case in cases:
                with self.clock.gate("0"):
                    seen = self._observe(case)
                    if not self.taps and case is cases[0]:
                        self._settle(seen)
                    under_way.append(self._start(pool, case, seen))
                if len(under_way) > CASES_AT_ONCE:
                    self._finish(under_way.pop(0))
            while under_way:
                self._finish(under_way.pop(0))
        with self.clock.gate("B"):
            self._condition([case for case in cases if case.numerics])

    def _finish(self, started: _Started) -> None:
        """Wait for the port's results of one case and compare them."""
        with self.clock.gate("A"):
            self._logic(started)
        if started.seen.single is not None:
            with self.clock.gate("B"):
                self._numerics(started, started.seen.single)
            with self.clock.gate("E'"):
                self._sampling(started)
        self.cases += 1
        trim_memory()

    def compare_times(self) -> None:
        """Gates float64, float32 and trajectories at every value of scalar inputs with few possible values: the layers
        whose only input is such a scalar, and the sampling network's use of it."""
        for tap in [tap for tap in self.aligned if tap.reference in self.timed]:
            values = self.signature.inputs[self.timed[tap.reference]].every
            if values is not None:
                with self.clock.gate("A"):
                    self._sweep(tap, values)
        times = next((values for each in self.signature.inputs if (values := each.every) is not None), None)
        if self.sampling is not None and times is not None:
            with self.clock.gate("E'"):
                self.sampling.compare_times(times)

    def _sweep(self, tap: Tap, values: Array) -> None:
        """One layer at every value of its input."""
        told = self.sides.reference.sweep([tap.reference], values).get(tap.reference)
        self.logic.expected += 1
        if told is None:
            self._find(f"{tap.reference} was not run at every value of its input by the reference", tap.reference)
            return
        port = {dtype: self.port.at_values(dtype, tap.candidate, values) for dtype in DTYPES}
        self.logic.compared += 1
        if not self.taps[tap.reference].cumulative <= LOGIC:
            return  # it is off, or a layer inside it is, at the battery's values already
        pairs = zip(port["float64"], told.exact, strict=True)
        errors = [relative_l2(ours, theirs) if ours.shape == theirs.shape else inf for ours, theirs in pairs]
        self.taps[tap.reference].isolated = max(self.taps[tap.reference].isolated, *errors)
        if port["float32"].shape == told.truth.shape:
            self.single.add_time(tap.reference, port["float32"], told.single, told.truth)

    def compare_eagerly(self, case: Case) -> None:
        """Gate float64 (A) again, for the outputs only, with the port run eagerly: compiling may change the results."""
        seen = self._observe(case)
        outputs = self.port.eagerly(self.signature.in_port(seen.inputs))
        right = self.outputs_in_port(seen.outputs, seen.names, outputs)
        error = max(map(relative_l2, outputs, right)) if right else inf
        share = (max(map(float32_share, seen.outputs)), max(map(float32_share, outputs)))
        self.taps[EAGER] = TapResult(EAGER, "", None, isolated=error, cumulative=error, share32=share)
        self.logic.expected += 1
        self.logic.compared += 1

    def drop_single_precision(self) -> None:
        """Drop the float32 models of both sides."""
        for models in (self.port.probes, self.sides.candidates, self.sides.references):
            if isinstance(models, dict):
                models.pop("float32", None)

    def _observe(self, case: Case) -> Observation:
        """Run the reference on one case."""
        names = [tap.reference for tap in (*self.aligned, *self.left_out)]
        seen = self.sides.reference.observe(case, [*names, *self.unconverted])
        for text in self.sides.reference.findings:
            self._find(text)
        trim_memory()
        return seen

    def _settle(self, seen: Observation) -> None:
        """Determine from the calls of both sides which calls are compared, their order and their callers."""
        theirs = {name: call.caller for name, call in seen.calls.items()}
        self._compare_settings(seen, {})  # a port that cannot run on these inputs is told what it has unlike
        outputs, shapes = self.port.run("float64", "shapes", self.signature.in_port(seen.inputs))
        ours = {name: call.caller for name, call in shapes.items()}
        stated = [port.name for port in self.signature.outputs]
        self.outputs = _output_names((self.port.output_names, seen.names, stated), len(outputs))
        self.left_out = left_out(self.aligned, theirs, ours)
        self.timed = scalar_fed(seen.inputs, seen.calls) if len(seen.inputs) == len(self.signature.inputs) else {}
        order = {name: position for position, name in enumerate(seen.calls)}
        self.aligned, faults = every_call([tap for tap in self.aligned if tap not in self.left_out], theirs, ours)
        self.findings |= dict.fromkeys(faults)
        self.aligned.sort(key=lambda tap: order.get(tap.reference, len(order)))
        self._compare_settings(seen, shapes)
        known = {tap.candidate: tap.reference for tap in self.aligned}
        callers = [known.get(nearest(tap.candidate, ours, known), "") for tap in self.aligned]
        self.taps = {tap.reference: TapResult(tap.reference, tap.candidate, tap.part, caller=caller)
                     for tap, caller in zip(self.aligned, callers, strict=True)}  # fmt: skip

    def _compare_settings(self, seen: Observation, shapes: Calls) -> None:
        """Compare the settings of the layers of every tap before the port computes anything."""
        if self.modules:
            layers = layers_by_path(self.sides.candidates["float64"])
            self.settings = compare_settings(self.aligned, self.modules, layers, seen.calls, shapes)

    def _start(self, pool: ThreadPoolExecutor, case: Case, seen: Observation) -> _Started:
        """Start all of Keras's programs for one case."""
        inputs = self.signature.in_port(seen.inputs)
        wanted, shapes = self.port.run("float64", "shapes", inputs)
        into = InPort(self.aligned, shapes)
        outputs = self.outputs_in_port(seen.outputs, seen.names, wanted)
        calls = into(seen.calls)
        port, single = pool.submit(self.port.run, "float64", "record", inputs), seen.single
        if single is None:
            return _Started(case, seen, outputs, calls, into, port)
        answers = into({name: cast(call, np.float32) for name, call in seen.calls.items()})
        narrow = self.signature.in_port(single.inputs)
        whole = pool.submit(self.port.run, "float32", "whole", narrow)
        isolated = pool.submit(self.port.isolate, "float32", narrow, answers, self._doubtful(into))
        pairs = {"float64": inputs, "float32": narrow}
        dtypes = self.sampling.dtypes if self.sampling is not None else ()
        sampled = {dtype: pool.submit(self._sample, dtype, pairs[dtype]) for dtype in dtypes}
        return _Started(case, seen, outputs, calls, into, port, whole, isolated, sampled)

    def outputs_in_port(self, outputs: Outputs, names: Sequence[str], wanted: Sequence[Any]) -> Outputs:
        """The reference's outputs in the port's layout; empty, with a finding, if they do not fit."""
        try:
            rules = [axes(text) for text in self.signature.axes]
            return in_order(outputs, names, wanted, self.port.output_names, rules)
        except ValueError as error:
            self._find(f"the network's output: {error}")
            return ()

    def _find(self, text: str, subject: str = "", kind: str = "fact") -> None:
        """Record a finding against the comparison, once."""
        self.findings[fact(text, subject, kind)] = None

    def _sample(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        assert self.sampling is not None
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            return self.sampling.predict(dtype, inputs)

    @property
    def not_compared(self) -> dict[str, str]:
        """The layers without any measurement, each with the reason."""
        absent = {name: f"no tensors, and no {path} in Keras" for name, path in self.unconverted.items()}
        return {**{tap.reference: why for tap, why in self.left_out.items()}, **absent}

    @property
    def torch_precision(self) -> str:
        """Precision of the reference's float32 matrix products."""
        return self.sides.reference.environment.get("torch_matmul", "")

    def _doubtful(self, into: InPort) -> set[str]:
        """The port's calls whose answers have other shapes."""
        return {tap.candidate for tap in self.aligned if tap.reference in into.misfits}

    def _logic(self, started: _Started) -> None:
        """Gate float64 (A): isolated and cumulative errors at every tap, in the order of the computation.

        If every layer gets the reference's inputs in the running network, that run already isolates all layers.
        Otherwise an isolated run locates the fault.
        """
        expected, (outputs, through) = started.calls, started.port.result()
        own = self._tap_errors(through, started)
        own |= self._arranged(own, through, started, outputs)
        if not self.arranged:
            for name, text in started.into.misfits.items():
                self._find(f"{name}: {text}", name)
        alone, alone_outputs = own, outputs
        if any(error is not None and not max(error) <= LOGIC for error in own.values()):
            inputs = self.signature.in_port(started.seen.inputs)
            alone_outputs, answered = self.port.isolate("float64", inputs, expected, self._doubtful(started.into))
            port = {**answered, "": Call((), alone_outputs)}
            whole = {**expected, "": Expected({}, 0, started.outputs)}
            self.evidence = self.evidence or Evidence(inputs, port, whole)
            alone = self._tap_errors(answered, started)
        explained = self._explained(started, own, alone)
        self._output_logic(outputs, alone_outputs, started.outputs, explained.get(OUTPUT, NOTHING))
        for tap in self.aligned:
            self.logic.expected += 1
            cumulative, isolated = own[tap.reference], alone[tap.reference]
            if cumulative is None or isolated is None:
                told = f"{tap.reference} did not run on both sides with inputs that can be compared"
                self._find(told, tap.reference, "silent")
                continue
            result, call = self.taps[tap.reference], started.seen.calls[tap.reference]
            spread = explained.get(tap.reference, NOTHING)
            result.cumulative = max(result.cumulative, beyond(result, cumulative[1], spread.running))
            result.inputs = max(result.inputs, beyond(result, isolated[0], spread.fed))
            result.isolated = max(result.isolated, beyond(result, isolated[1], spread.made))
            shares = [_narrowed(side) for side in (call, through[tap.candidate])]
            result.share32 = (max(result.share32[0], shares[0]), max(result.share32[1], shares[1]))
            if any(is_constant(part) for part in call.outputs):
                self._find(f"{tap.reference} is constant, so nothing can be seen there", tap.reference)
            self.logic.compared += 1
            self.runs[tap.reference] += 1

    def _tap_errors(self, calls: Calls, started: _Started) -> dict[str, tuple[float, float] | None]:
        """Errors by the reference's name; infinite if the arrays cannot be compared."""
        found = {tap.reference: tap_errors(tap, calls, started.calls) for tap in self.aligned}
        for name in started.into.misfits:
            error = found.get(name)
            found[name] = (0.0, inf) if error is None else error
        return found

    def _arranged(
        self, errors: Mapping[str, tuple[float, float] | None], through: Calls, started: _Started, outputs: Outputs
    ) -> dict[str, tuple[float, float]]:
        """Set no error for layers that hold the reference's values in another order, if the output agrees and no other
        layers differ: the order of keys, for example, is mathematically arbitrary."""
        off = [tap for tap in self.aligned if (each := errors[tap.reference]) is not None and not max(each) <= LOGIC]
        if not off or not started.outputs or not max(_errors(outputs, started.outputs)) <= LOGIC:
            return {}
        told = {tap.reference: rearranged(tap, through, started.calls, started.seen.calls) for tap in off}
        if not all(told.values()):
            return {}
        self.arranged |= {name: how for name, how in told.items() if how}
        return dict.fromkeys(told, (0.0, 0.0))

    def _explained(self, started: _Started, *errors: Mapping[str, tuple[float, float] | None]) -> dict[str, Explained]:
        """The relative errors that one rounding explains, by tap; measured only if an error exceeds the bound."""
        off = [error for each in errors for error in each.values() if error is not None and not max(error) <= LOGIC]
        if not off:
            return {}
        found, whole = explained(self.sides.reference.conditioning(started.case, "float64"), started.seen)
        return {**found, OUTPUT: whole}

    def _condition(self, cases: Sequence[Case]) -> None:
        """If a float32 error exceeds the bound, compare it with the effect of one rounding as well."""
        if not self.single.beyond(self.parts):
            return
        for case in cases:
            told = self.sides.reference.conditioning(case, "float32")
            self.single.allow(told, self.outputs)
            if self.parts is not None:
                self.parts.allow(told.outputs[0])

    def _output_logic(self, outputs: Outputs, alone: Outputs, reference: Outputs, spread: Explained) -> None:
        """Compare the network's outputs, as a whole and part by part."""
        for at, name in enumerate(self.outputs):
            result = self.taps.setdefault(name, TapResult(name, "", None))
            self.logic.expected += 1
            self.logic.compared += 1
            self.runs[name] += 1
            if not reference:
                result.cumulative = result.isolated = inf
                continue
            errors = [_errors((side[at],), (reference[at],))[0] for side in (outputs, alone)]
            result.cumulative = max(result.cumulative, beyond(result, errors[0], spread.running))
            result.isolated = max(result.isolated, beyond(result, errors[1], spread.made))
            shares = (float32_share(reference[at]), float32_share(outputs[at]))
            result.share32 = (max(result.share32[0], shares[0]), max(result.share32[1], shares[1]))
        if self.parts is not None and reference:
            self.parts.add(outputs[0], reference[0])

    def _numerics(self, started: _Started, single: Single) -> None:
        """Gate float32 (B): float32 errors of both sides relative to float64, of every isolated layer and of the
        outputs."""
        if started.whole is None or started.isolated is None:
            return
        outputs, (own, port) = started.whole.result(), started.isolated.result()
        reference, truth, *alone = (
            self.outputs_in_port(each, started.seen.names, outputs)
            for each in (*single.outputs, *(made for made, _ in single.isolated))
        )
        self.numerics.expected += len(self.outputs)
        if reference:
            self.single.add_outputs(self.outputs, (outputs, reference, truth), (own, *alone))
            self.numerics.compared += len(self.outputs)
        if self.parts is not None and reference:
            self.parts.add_single(outputs[0], reference[0], truth[0])
        references, truths = (started.into(calls) for _, calls in single.isolated)
        for tap in self.aligned:
            self.numerics.expected += 1
            if all(tap.candidate in side for side in (port, references, truths)):
                at, arranged = tap.candidate, tap.reference in self.arranged
                compared = self.single.add_tap(tap, port[at], references[at], truths[at], arranged)
                self.numerics.compared += compared

    def _sampling(self, started: _Started) -> None:
        """Gates trajectories and sampling network: the network as samplers run it, every sample at its own time."""
        if self.sampling is None or started.seen.single is None or not started.outputs:
            return
        found = {dtype: future.result() for dtype, future in started.sampled.items()}
        if "float64" in found:
            self.sampling.compare(started.case.describe(), found["float64"], started.outputs[0])
        names, shapes = started.seen.names, started.outputs
        reference, truth = (self.outputs_in_port(each, names, shapes) for each in started.seen.single.outputs)
        if reference and truth:
            self.sampling.compare_single(found["float32"], reference[0], truth[0])


def _narrowed(call: Call) -> float:
    """The share of outputs that float32 holds exactly, if the layer's inputs are wider; an embedding's are its
    weights."""
    given = [leaf for leaf in leaves(list(call.inputs)) if np.asarray(leaf).dtype.kind == "f"]
    if not any(float32_share(np.asarray(leaf)) <= FLOAT32_SHARE for leaf in given):
        return 0.0
    return max(map(float32_share, call.outputs), default=0.0)


def _errors(outputs: Outputs, reference: Outputs) -> list[float]:
    pairs = zip(outputs, reference, strict=True)
    return [relative_l2(c, r) if c.shape == r.shape else inf for c, r in pairs]


def _output_names(known: Sequence[Sequence[str]], count: int) -> tuple[str, ...]:
    """Names of the port's outputs in results: the first of the ``known`` lists that names all of them."""
    if count == 1:
        return (OUTPUT,)
    told = next((names for names in known if len(names) == count and all(names)), range(count))
    return tuple(f"{OUTPUT}.{name}" for name in told)
