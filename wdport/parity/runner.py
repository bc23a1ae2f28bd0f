"""Runs the battery: every case through both sides, every tap compared, results gathered per tap.

The reference runs here, one module at a time; Keras's programs are compiled and run by two threads beside it,
since compiling is nearly all of a run. Results are taken in case by case, so a run repeats itself.
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

from wdport.compile_cache import FAST_COMPILE
from wdport.conversion.prepare import Prepared
from wdport.model import Array
from wdport.parity.battery import Case
from wdport.parity.bounds import LOGIC, NUMERICS
from wdport.parity.calls import Call, Calls, cast, leaves
from wdport.parity.compare import comparable, rearranged, tap_errors
from wdport.parity.diagnose import Evidence
from wdport.parity.explained import NOTHING, Explained, beyond, explained
from wdport.parity.keras_probe import Probe, layers_by_path
from wdport.parity.measure import ErrorPair, float32_share, is_constant, like, relative_l2
from wdport.parity.output_levels import OutputLevels
from wdport.parity.programs import TRACING, Program
from wdport.parity.sampling_network import SamplingNetwork
from wdport.parity.sides import DTYPES, Sides
from wdport.parity.taps import Tap, align, left_out, nearest
from wdport.parity.verdict import TapResult
from wdport.recorder import Observation, Single, scalar_fed

OUTPUT = "output"
EAGER = "output, eager"


@dataclass
class Tally:
    """Single comparisons of one gate: those that had to be made, and those that were."""

    expected: int = 0
    compared: int = 0


@dataclass(frozen=True)
class _Started:
    """What the reference computes in one case, and what the port's threads will bring."""

    case: Case
    seen: Observation
    port: Future[tuple[Array, dict[str, Call]]]
    whole: Future[Array] | None = None
    isolated: Future[tuple[Array, dict[str, Call]]] | None = None
    sampled: Mapping[str, Future[Array]] = field(default_factory=dict)


class Runner:
    """Compares the sides case by case; float64 logic and float32 numerics side by side."""

    def __init__(self, prepared: Prepared, sides: Sides, full: bool = False) -> None:
        self.sides = sides
        self.config, self.family = prepared.config, prepared.family
        features = prepared.family.features(prepared.config)
        names = sides.reference.names
        self.aligned = align(prepared.table, names, layers_by_path(sides.candidates["float64"]), features)
        paths = [tap.candidate for tap in self.aligned]
        self.probes = {dtype: Probe(sides.candidates[dtype], paths) for dtype in DTYPES}
        self.left_out: dict[Tap, str] = {}
        self.timed: frozenset[str] = frozenset()
        self.arranged: dict[str, str] = {}
        self.runs: Counter[str] = Counter()
        self.taps: dict[str, TapResult] = {}
        self.sampling = SamplingNetwork(prepared.family, sides.candidates, full)
        self.time_errors: dict[str, ErrorPair] = {}
        self.whole_errors = ErrorPair()
        self.errors: dict[str, ErrorPair] = {}
        self.input_errors: dict[str, ErrorPair] = {}
        self.levels = OutputLevels(self.family.levels(self.config))
        self.evidence: Evidence | None = None
        self.findings: list[str] = []
        self.logic, self.numerics = Tally(), Tally()
        self.cases = 0
        self.jax_precision = ""

    def compare(self, cases: Sequence[Case]) -> None:
        """Run these cases, all with the weights that the sides hold now, through everything."""
        with ThreadPoolExecutor(2) as pool:
            observed = [(case, self._observe(case)) for case in cases]
            if not self.taps and observed:
                self._settle(observed[0][1])
            for started in [self._start(pool, case, seen) for case, seen in observed]:
                self._logic(started)
                if started.seen.single is not None:
                    self._numerics(started, started.seen.single)
                    self._sampling(started, started.seen.single)
                self.cases += 1
        self._condition([case for case in cases if case.numerics])

    def compare_times(self) -> None:
        """Gates A, B and E at every time: layers that are fed the time alone, and the sampling network's tables."""
        times = self.family.times(self.config)
        if times is None:
            return
        for tap in [tap for tap in self.aligned if tap.reference in self.timed]:
            told = self.sides.reference.sweep([tap.reference], times).get(tap.reference)
            self.logic.expected += 1
            if told is None:
                self.findings.append(f"{tap.reference} was not run at every time by the reference")
                continue
            port = {dtype: self._at_times(dtype, tap.candidate, times) for dtype in DTYPES}
            self.logic.compared += 1
            if not self.taps[tap.reference].cumulative <= LOGIC:
                continue  # it is off, or a layer inside it is, at the battery's times already
            errors = [relative_l2(ours, theirs) for ours, theirs in zip(port["float64"], told.exact, strict=True)]
            self.taps[tap.reference].isolated = max(self.taps[tap.reference].isolated, *errors)
            self.time_errors.setdefault(tap.reference, ErrorPair()).add(port["float32"], told.single, told.truth)
        self.sampling.compare_times(times)

    def _at_times(self, dtype: str, path: str, times: Array) -> Array:
        """One layer of the port, fed times alone."""
        layer = self.probes[dtype].layers[path]
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            return np.asarray(Program(layer, FAST_COMPILE)(times.astype(dtype)))

    def compare_eagerly(self, case: Case) -> None:
        """Gate A once more for the output alone, the port run step by step: compiling may change what is computed."""
        seen = self._observe(case)
        with jax.default_matmul_precision("highest"), jax.enable_x64(True), TRACING:
            output = Probe(self.sides.candidates["float64"], (), eager=True).whole(seen.inputs)
        error = relative_l2(output, seen.output) if output.shape == seen.output.shape else inf
        share = (float32_share(seen.output), float32_share(output))
        self.taps[EAGER] = TapResult(EAGER, "", None, isolated=error, cumulative=error, share32=share)
        self.logic.expected += 1
        self.logic.compared += 1

    def drop_single_precision(self) -> None:
        """Let go of the float32 models of both sides."""
        for models in (self.probes, self.sides.candidates, self.sides.references):
            if isinstance(models, dict):
                models.pop("float32", None)

    def _observe(self, case: Case) -> Observation:
        """The reference's side of one case."""
        seen = self.sides.reference.observe(case, [tap.reference for tap in (*self.aligned, *self.left_out)])
        self.findings += [text for text in self.sides.reference.findings if text not in self.findings]
        return seen

    def _settle(self, seen: Observation) -> None:
        """Which taps are compared, their order and who calls them, from the calls that both sides make."""
        theirs = {name: call.caller for name, call in seen.calls.items()}
        ours = self._port("float64", "callers", seen.inputs)
        self.left_out = left_out(self.aligned, theirs, ours)
        self.timed = frozenset(scalar_fed(seen.inputs, seen.calls))
        order = {name: position for position, name in enumerate(seen.calls)}
        self.aligned = [tap for tap in self.aligned if tap not in self.left_out]
        self.aligned.sort(key=lambda tap: order.get(tap.reference, len(order)))
        known = {tap.candidate: tap.reference for tap in self.aligned}
        callers = [known.get(nearest(tap.candidate, ours, known), "") for tap in self.aligned]
        self.taps = {tap.reference: TapResult(tap.reference, tap.candidate, tap.level, caller=caller)
                     for tap, caller in zip(self.aligned, callers, strict=True)}  # fmt: skip

    def _start(self, pool: ThreadPoolExecutor, case: Case, seen: Observation) -> _Started:
        """Set everything of Keras's for one case on its way."""
        port, single = pool.submit(self._port, "float64", "record", seen.inputs), seen.single
        if single is None:
            return _Started(case, seen, port)
        answers = {path: cast(call, np.float32) for path, call in self._by_candidate(seen.calls).items()}
        whole = pool.submit(self._port, "float32", "whole", single.inputs)
        isolated = pool.submit(self._port, "float32", "isolate", single.inputs, answers)
        pairs = {"float64": seen.inputs, "float32": single.inputs}
        sampled = {dtype: pool.submit(self._sample, dtype, pairs[dtype]) for dtype in self.sampling.dtypes}
        return _Started(case, seen, port, whole, isolated, sampled)

    def _sample(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            return self.sampling.predict(dtype, inputs)

    @property
    def torch_precision(self) -> str:
        """Precision of the reference's float32 matrix products."""
        return self.sides.reference.environment.get("torch_matmul", "")

    def _port(self, dtype: str, what: str, *arguments: Any) -> Any:
        """One of the probes' programs, under the settings that its dtype and the comparison need."""
        with jax.default_matmul_precision("highest"), jax.enable_x64(dtype == "float64"):
            self.jax_precision = str(getattr(jax.config, "jax_default_matmul_precision"))
            return getattr(self.probes[dtype], what)(*arguments)

    def _by_candidate(self, calls: Calls) -> dict[str, Call]:
        return {tap.candidate: calls[tap.reference] for tap in self.aligned if tap.reference in calls}

    def _logic(self, started: _Started) -> None:
        """Gate A: float64, isolated and cumulative, at every tap, in the order of the computation.

        A layer that got the reference's inputs within the running network is isolated as it is. Only where
        some layer did not are all of them answered for, to tell where the fault is.
        """
        exact, (output, through) = started.seen, started.port.result()
        notes: list[str] = []
        own = {tap.reference: tap_errors(tap, through, exact.calls, notes.append) for tap in self.aligned}
        own |= self._arranged(own, through, started.seen, output)
        if not self.arranged:
            self.findings += notes
        alone, alone_output = own, output
        if any(error is not None and not max(error) <= LOGIC for error in own.values()):
            answers = self._by_candidate(exact.calls)
            alone_output, answered = self._port("float64", "isolate", exact.inputs, answers)
            port = {**answered, "": Call((), (alone_output,))}
            whole = {**answers, "": Call((), (exact.output,))}
            self.evidence = self.evidence or Evidence(exact.inputs, port, whole)
            alone = {t.reference: tap_errors(t, answered, exact.calls, self.findings.append) for t in self.aligned}
        explained = self._explained(started, own, alone)
        self._output_logic(output, alone_output, exact.output, explained.get(OUTPUT, NOTHING))
        for tap in self.aligned:
            self.logic.expected += 1
            cumulative, isolated = own[tap.reference], alone[tap.reference]
            if cumulative is None or isolated is None:
                self.findings.append(f"{tap.reference} did not run on both sides with inputs that can be compared")
                continue
            result, call = self.taps[tap.reference], exact.calls[tap.reference]
            spread = explained.get(tap.reference, NOTHING)
            result.cumulative = max(result.cumulative, beyond(result, cumulative[1], spread.running))
            result.inputs = max(result.inputs, beyond(result, isolated[0], spread.fed))
            result.isolated = max(result.isolated, beyond(result, isolated[1], spread.made))
            shares = [max(map(float32_share, side)) for side in (call.outputs, through[tap.candidate].outputs)]
            result.share32 = (max(result.share32[0], shares[0]), max(result.share32[1], shares[1]))
            if any(is_constant(part) for part in call.outputs):
                self.findings.append(f"{tap.reference} is constant, so nothing can be seen there")
            self.logic.compared += 1
            self.runs[tap.reference] += 1

    def _arranged(
        self, errors: Mapping[str, tuple[float, float] | None], through: Calls, seen: Observation, output: Array
    ) -> dict[str, tuple[float, float]]:
        """No error for layers that hold the reference's values in another arrangement, if the output agrees and all
        that differ are such layers: mathematics leaves the order of keys, say, open."""
        off = [tap for tap in self.aligned if (each := errors[tap.reference]) is not None and not max(each) <= LOGIC]
        if not off or output.shape != seen.output.shape or not relative_l2(output, seen.output) <= LOGIC:
            return {}
        told = {tap.reference: rearranged(tap, through, seen.calls) for tap in off}
        if not all(told.values()):
            return {}
        self.arranged |= {name: how for name, how in told.items() if how}
        return dict.fromkeys(told, (0.0, 0.0))

    def _explained(self, started: _Started, *errors: Mapping[str, tuple[float, float] | None]) -> dict[str, Explained]:
        """What one rounding explains of relative errors, by tap; measured only where an error is beyond the bound."""
        off = [error for each in errors for error in each.values() if error is not None and not max(error) <= LOGIC]
        if not off:
            return {}
        found, whole = explained(self.sides.reference.conditioning(started.case, "float64"), started.seen)
        return {**found, OUTPUT: whole}

    def _condition(self, cases: Sequence[Case]) -> None:
        """Where a float32 error is beyond the bound, let it be held against what one rounding does as well."""
        pairs = [*self.errors.values(), *self.input_errors.values(), *self.levels.errors.values(), self.whole_errors]
        if all(max(pair.rms_ratio, pair.max_ratio) <= NUMERICS for pair in pairs):
            return
        for case in cases:
            told = self.sides.reference.conditioning(case, "float32")
            for name, spread in told.taps.items():
                for known, pair in ((self.errors, spread.made), (self.input_errors, spread.fed)):
                    if name in known:
                        known[name].allow(*pair)
            self.whole_errors.allow(float(np.sum(told.output**2)), float(np.max(told.output)))
            self.levels.allow(told.output)

    def _output_logic(self, candidate: Array, alone: Array, reference: Array, spread: Explained) -> None:
        """The network's output, as a whole and level by level."""
        result = self.taps.setdefault(OUTPUT, TapResult(OUTPUT, "", None))
        self.logic.expected += 1
        errors = [relative_l2(each, reference) if each.shape == reference.shape else inf for each in (candidate, alone)]
        result.cumulative = max(result.cumulative, beyond(result, errors[0], spread.running))
        result.isolated = max(result.isolated, beyond(result, errors[1], spread.made))
        shares = (float32_share(reference), float32_share(candidate))
        result.share32 = (max(result.share32[0], shares[0]), max(result.share32[1], shares[1]))
        self.runs[OUTPUT] += 1
        self.logic.compared += 1
        if candidate.shape == reference.shape:
            self.levels.add(candidate, reference)

    def _numerics(self, started: _Started, single: Single) -> None:
        """Gate B: float32 on both sides against float64, every layer alone, and the output."""
        if started.whole is None or started.isolated is None:
            return
        (reference, truth), output = single.outputs, started.whole.result()
        (own, port), sides = started.isolated.result(), single.isolated
        self.numerics.expected += 1
        if output.shape == truth.shape == own.shape:
            self.whole_errors.add(output, reference, truth)
            self.levels.add_single(output, reference, truth)
            self.errors.setdefault(OUTPUT, ErrorPair()).add(own, sides[0][0], sides[1][0])
            self.numerics.compared += 1
        references, truths = sides[0][1], sides[1][1]
        for tap in self.aligned:
            self.numerics.expected += 1
            if tap.candidate not in port or tap.reference not in truths:
                continue
            calls = (port[tap.candidate], references[tap.reference], truths[tap.reference])
            try:
                _add(self.errors.setdefault(tap.reference, ErrorPair()), *(comparable(tap, c.outputs) for c in calls))
                if tap.reference not in self.arranged:
                    _add(self.input_errors.setdefault(tap.reference, ErrorPair()), *(call.inputs for call in calls))
            except ValueError:
                continue
            self.numerics.compared += 1

    def _sampling(self, started: _Started, single: Single) -> None:
        """Gates E and E': the network that samplers run, every sample at its own time."""
        found = {dtype: future.result() for dtype, future in started.sampled.items()}
        if "float64" in found:
            self.sampling.compare(started.case.describe(), found["float64"], started.seen.output)
        self.sampling.compare_single(found["float32"], *single.outputs)


def _add(pair: ErrorPair, candidate: Any, reference: Any, truth: Any) -> None:
    """Every tensor of a tap's inputs or outputs; raises ``ValueError`` where count or shapes differ."""
    for c, r, t in zip(leaves(list(candidate)), leaves(list(reference)), leaves(list(truth)), strict=True):
        pair.add(like(c, t), r, t)
