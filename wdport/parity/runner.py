"""Runs the battery: every case through both sides, every tap compared, results gathered per tap."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from typing import Any

import jax
import numpy as np

from wdport.models.family import Array
from wdport.parity.battery import Case
from wdport.parity.keras_probe import Probe, layers_by_path
from wdport.parity.measure import ErrorPair, float32_share, is_constant, like, relative_l2
from wdport.parity.sides import Sides
from wdport.parity.taps import Tap, align
from wdport.parity.torch_probe import Call, highest_precision, record, run
from wdport.parity.verdict import LevelResult, TapResult
from wdport.prepare import Prepared

OUTPUT = "output"


@dataclass
class Tally:
    """Single comparisons of one gate: those that had to be made, and those that were."""

    expected: int = 0
    compared: int = 0


class Runner:
    """Compares the sides case by case; float64 logic and float32 numerics side by side."""

    def __init__(self, prepared: Prepared, sides: Sides) -> None:
        self.sides = sides
        self.config, self.family = prepared.config, prepared.family
        modules = [name for name, _ in sides.references["float64"].named_modules() if name]
        features = prepared.family.features(prepared.config)
        self.aligned = align(prepared.table, modules, layers_by_path(sides.candidates["float64"]), features)
        paths = [tap.candidate for tap in self.aligned]
        exact = Probe(sides.candidates["float64"], paths)
        # Float32 knows its layers' shapes from float64, whose record comes first.
        self.probes = {"float64": exact, "float32": Probe(sides.candidates["float32"], paths, shapes=exact.shapes)}
        self.taps: dict[str, TapResult] = {}
        self.errors: dict[str, ErrorPair] = {}
        self.level_errors: dict[tuple[int, int], ErrorPair] = {}
        self.level_logic: dict[int, list[float]] = {}
        self.level_series: dict[int, list[float]] = {}
        self.series_error: float | None = None
        self.findings: list[str] = []
        self.logic, self.numerics = Tally(), Tally()
        self.cases = 0
        self.torch_precision = self.jax_precision = ""
        self._shape = self.family.levels(self.config)

    def compare(self, case: Case) -> None:
        """Run one case through everything."""
        inputs = self.family.make_inputs(self.config, case.seed, case.batch, case.scale)
        with highest_precision() as self.torch_precision, ThreadPoolExecutor(1) as pool:
            calls, reference = self._reference(inputs)
            with jax.default_matmul_precision("highest"), jax.enable_x64(True):
                output, through = self.probes["float64"].record(inputs)
                # Most of the time goes into compiling, which one thread does not fill two cores with.
                numerics = pool.submit(self._numerics, inputs, calls) if case.isolated else None
                self._logic(case, calls, through)
                self._output_logic(output, reference)
            if numerics is not None:
                numerics.result()
        self.cases += 1

    def _reference(self, inputs: tuple[Array, ...]) -> tuple[dict[str, Call], Array]:
        """The float64 reference's calls, in order, and its output; it must repeat itself bit for bit."""
        module = self.sides.references["float64"]
        output, calls = record(module, inputs)
        if self.cases == 0 and not np.array_equal(output, run(module, inputs)[0]):
            self.findings.append("the reference does not repeat itself bit for bit")
        order = {name: position for position, name in enumerate(calls)}
        self.aligned.sort(key=lambda tap: order.get(tap.reference, len(order)))
        return calls, output

    def _logic(self, case: Case, calls: dict[str, Call], through: dict[str, list[Array]]) -> None:
        """Gate A: float64, isolated and cumulative, at every tap, in the order of the computation."""
        alone = self.probes["float64"].replay(self._inputs(calls)) if case.isolated else {}
        for tap in self.aligned:
            self.logic.expected += 1
            call = calls.get(tap.reference)
            if call is None or tap.candidate not in through or (case.isolated and tap.candidate not in alone):
                self.findings.append(f"{tap.reference} did not run on both sides")
                continue
            result = self.taps.setdefault(tap.reference, TapResult(tap.reference, tap.candidate, tap.level))
            result.cumulative = max(result.cumulative, self._distance(tap, through[tap.candidate], call))
            if case.isolated:
                result.isolated = max(result.isolated, self._distance(tap, alone[tap.candidate], call))
            shares = [max(map(float32_share, side)) for side in (call.outputs, through[tap.candidate])]
            result.share32 = (max(result.share32[0], shares[0]), max(result.share32[1], shares[1]))
            if any(is_constant(part) for part in call.outputs):
                self.findings.append(f"{tap.reference} is constant, so nothing can be seen there")
            self.logic.compared += 1

    def _inputs(self, calls: dict[str, Call]) -> dict[str, tuple[Any, ...]]:
        """The reference's own inputs of every tapped layer that runs on both sides, by the candidate's path."""
        ran = self.probes["float64"].shapes
        both = [tap for tap in self.aligned if tap.reference in calls and tap.candidate in ran]
        return {tap.candidate: calls[tap.reference].inputs for tap in both}

    def _distance(self, tap: Tap, candidate: list[Array], call: Call) -> float:
        """The worst relative error over a tap's outputs; infinite where shapes or counts differ."""
        if len(candidate) != len(call.outputs):
            self.findings.append(f"{tap.reference} gives {len(call.outputs)} tensors, the port {len(candidate)}")
            return inf
        try:
            return max(relative_l2(like(c, r), r) for c, r in zip(candidate, call.outputs, strict=True))
        except ValueError as error:
            self.findings.append(f"{tap.reference}: {error}")
            return inf

    def _output_logic(self, candidate: Array, reference: Array) -> None:
        """The network's output, level by level, as coefficients and as series."""
        result = self.taps.setdefault(OUTPUT, TapResult(OUTPUT, OUTPUT, None))
        self.logic.expected += 1
        error = relative_l2(candidate, reference) if candidate.shape == reference.shape else inf
        result.isolated = result.cumulative = max(result.cumulative, error)
        result.share32 = (float32_share(reference), float32_share(candidate))
        self.logic.compared += 1
        if candidate.shape != reference.shape:
            return
        shape = self._shape
        for level, part in enumerate(shape.slices):
            self.level_logic.setdefault(level, []).append(relative_l2(candidate[:, part], reference[:, part]))
            if shape.reconstruct:
                masked = [np.zeros_like(candidate), np.zeros_like(reference)]
                masked[0][:, part], masked[1][:, part] = candidate[:, part], reference[:, part]
                series = [shape.reconstruct(each) for each in masked]
                self.level_series.setdefault(level, []).append(relative_l2(*series))
        if shape.reconstruct:
            whole = relative_l2(shape.reconstruct(candidate), shape.reconstruct(reference))
            self.series_error = max(self.series_error or 0.0, whole)

    def _numerics(self, inputs: tuple[Array, ...], calls: dict[str, Call]) -> None:
        """Gate B: float32 on both sides against float64, every layer alone, and the output."""
        with jax.default_matmul_precision("highest"), jax.enable_x64(False):
            self.jax_precision = str(getattr(jax.config, "jax_default_matmul_precision"))
            rounded = _cast(inputs, np.float32)
            output = self.probes["float32"].whole(tuple(rounded))
            self._layer_numerics(calls)
        truth = run(self.sides.references["float64"], _cast(rounded, np.float64))[0]
        reference = run(self.sides.references["float32"], rounded)[0]
        self.numerics.expected += 1
        if output.shape != truth.shape:
            return
        self.errors.setdefault(OUTPUT, ErrorPair()).add(output, reference, truth)
        self.numerics.compared += 1
        for level, part in enumerate(self._shape.slices):
            for channel in range(truth.shape[-1]):
                at = (slice(None), part, channel)
                self.level_errors.setdefault((level, channel), ErrorPair()).add(output[at], reference[at], truth[at])

    def _layer_numerics(self, calls: dict[str, Call]) -> None:
        """Every layer on both sides fed the float64 reference's inputs rounded to float32."""
        exact, single = (dict(self.sides.references[dtype].named_modules()) for dtype in ("float64", "float32"))
        rounded = {path: _cast(values, np.float32) for path, values in self._inputs(calls).items()}
        candidates = self.probes["float32"].replay(rounded)
        for tap in self.aligned:
            self.numerics.expected += 1
            if tap.candidate not in candidates:
                continue
            values = rounded[tap.candidate]
            truth, reference = run(exact[tap.reference], _cast(values, np.float64)), run(single[tap.reference], values)
            pair = self.errors.setdefault(tap.reference, ErrorPair())
            try:
                for c, r, t in zip(candidates[tap.candidate], reference, truth, strict=True):
                    pair.add(like(c, t), r, t)
            except ValueError:
                continue
            self.numerics.compared += 1

    def levels(self) -> tuple[LevelResult, ...]:
        """The results per wavelet level."""
        found = []
        for level, name in enumerate(self._shape.names):
            ratios = [pair.rms_ratio for (own, _), pair in self.level_errors.items() if own == level]
            series = self.level_series.get(level)
            logic = max(self.level_logic.get(level, [inf]))
            found.append(LevelResult(name, logic, max(series) if series else None, max(ratios, default=inf)))
        return tuple(found)


def _cast(value: Any, dtype: Any) -> Any:
    return value.astype(dtype) if isinstance(value, np.ndarray) else [_cast(item, dtype) for item in value]
