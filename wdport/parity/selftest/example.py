"""A correct pair of small models of one configuration: what a run of the port shows at every tap.

The reference runs once per case and dtype; the port runs eagerly, so that its code may change between runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import jax
import numpy as np

from wdport.errors import InternalError
from wdport.model import Array, Family
from wdport.parity.battery import CASES, Case
from wdport.parity.calls import Call, Calls, cast, leaves
from wdport.parity.compare import comparable, tap_errors
from wdport.parity.diagnose import Evidence
from wdport.parity.keras_probe import Probe, layers_by_path
from wdport.parity.measure import ErrorPair, like, relative_l2, ulps
from wdport.parity.selftest.weights import Weights
from wdport.parity.taps import Tap, align
from wdport.parity.verdict import TapResult
from wdport.recorder import Observation, highest_precision, run

OUTPUT = "output"


@dataclass(frozen=True)
class How:
    """How the port is run."""

    eager: bool = True
    precision: str = "highest"


EAGER = How()


@dataclass(frozen=True)
class Seen:
    """What one run shows: a result per tap and the output, the port's paths that could not be compared, and the
    evidence for a diagnosis (float64 only)."""

    results: tuple[TapResult, ...]
    missing: tuple[str, ...]
    evidence: Evidence | None = None

    @property
    def logic(self) -> float:
        """The largest float64 error."""
        return max((max(each.isolated, each.inputs) for each in self.results), default=inf)

    @property
    def ratio(self) -> float:
        """The largest float32 error as a multiple of the reference's."""
        return max((max(each.rms_ratio, each.max_ratio, each.inputs_ratio) for each in self.results), default=inf)


class Example:
    """The port and its reference with equal random weights; :meth:`use` says which case they run on.

    ``cases`` are the battery's, but for a batch of one: run eagerly, other shapes are other programs.
    """

    def __init__(self, name: str, family: Family, config: Any, seed: int = 0) -> None:
        self.name, self.family, self.config = name, family, config
        self.cases = tuple(case for case in CASES if case.batch > 1)
        self.case = self.cases[0]
        self.weights = Weights(family, config, seed)
        self._seen: dict[Case, Observation] = {}
        self._outputs: dict[tuple[Case, bool], Array] = {}
        self._layers: dict[str, dict[str, Any]] = {}
        self._probes: dict[tuple[str, How], Probe] = {}
        names = self.weights.reference.names
        self.taps: list[Tap] = align(self.weights.table, names, self.layers(), family.features(config))
        order = {name: at for at, name in enumerate(self._observed().calls)}
        self.taps.sort(key=lambda tap: order.get(tap.reference, len(order)))
        self.paths = [tap.candidate for tap in self.taps]
        self.names = {tap.candidate: tap.reference for tap in self.taps}

    def port(self, dtype: str = "float64") -> Any:
        """The Keras model, with the weights of the case in use."""
        return self.weights.port(dtype)

    def layers(self, dtype: str = "float64") -> dict[str, Any]:
        """The port's layers by structural path."""
        if dtype not in self._layers:
            self._layers[dtype] = layers_by_path(self.port(dtype))
        return self._layers[dtype]

    def use(self, case: Case) -> None:
        """Run on this case from now on."""
        self.case = case
        self.weights.use(case.random_biases)

    def forget(self) -> None:
        """Let the reference run anew when it is next needed."""
        self._seen.clear()
        self._outputs.clear()

    def probe(self, dtype: str = "float64", how: How = EAGER) -> Probe:
        """A probe of the port at every tap; one for every way to run it, since it keeps what it has compiled."""
        if (dtype, how) not in self._probes:
            self._probes[dtype, how] = Probe(self.port(dtype), self.paths, how.eager)
        return self._probes[dtype, how]

    def logic(self, how: How = EAGER) -> Seen:
        """The float64 port, every layer answered for: relative errors per tap."""
        truth = self._observed()
        answers = self._by_candidate(truth.calls)
        output, calls = self._run("float64", how, "isolate", truth.inputs, answers)
        port = {**calls, "": Call((), (output,))}
        results, missing = [], []
        for tap in self.taps:
            errors = tap_errors(tap, port, truth.calls, lambda _: None)
            if errors is None:
                missing.append(tap.candidate)
                continue
            results.append(TapResult(tap.reference, tap.candidate, tap.level, isolated=errors[1], inputs=errors[0],
                                     caller=self._caller(calls[tap.candidate])))  # fmt: skip
        error = relative_l2(output, truth.output) if output.shape == truth.output.shape else inf
        results.append(TapResult(OUTPUT, "", None, isolated=error))
        whole = {**answers, "": Call((), (truth.output,))}
        return Seen(tuple(results), tuple(missing), Evidence(truth.inputs, port, whole))

    def numerics(self, how: How = EAGER, only: str = "") -> Seen:
        """The float32 port, every layer answered for: errors per tap as multiples of the reference's own.

        ``only`` runs one layer, with those below it.
        """
        seen = self._observed()
        if seen.single is None:
            raise InternalError(self.name, f"has no float32 run of {self.case.describe()}", "take another case")
        inputs, ((output, reference), (exact, truth)) = seen.single.inputs, seen.single.isolated
        answers = self._by_candidate({name: cast(call, np.float32) for name, call in seen.calls.items()})
        results, missing = [], []
        if only:
            calls = self._run("float32", how, "isolate_layer", only, answers[only], answers)
        else:
            made, calls = self._run("float32", how, "isolate", inputs, answers)
            rms, largest = _ratios([made], [output], [exact])
            results.append(TapResult(OUTPUT, "", None, rms_ratio=rms, max_ratio=largest))
        for tap in self.taps:
            if only and tap.candidate != only and not tap.candidate.startswith(f"{only}/"):
                continue
            if tap.candidate not in calls or tap.reference not in truth:
                missing.append(tap.candidate)
                continue
            sides = (calls[tap.candidate], reference[tap.reference], truth[tap.reference])
            rms, largest = _ratios(*(comparable(tap, call.outputs) for call in sides))
            fed = max(_ratios(*(call.inputs for call in sides)))
            results.append(TapResult(tap.reference, tap.candidate, tap.level, rms_ratio=rms, max_ratio=largest,
                                     inputs_ratio=fed, caller=self._caller(calls[tap.candidate])))  # fmt: skip
        return Seen(tuple(results), tuple(missing))

    def outputs(self, ones: bool = False, how: How = EAGER) -> tuple[Array, Array]:
        """The whole float32 port's output and the whole float32 reference's, on the case or on inputs of ones."""
        inputs = tuple(cast(self._observed().inputs, np.float32))
        if ones:
            inputs = tuple(np.ones_like(array) for array in inputs)
        if (self.case, ones) not in self._outputs:
            with highest_precision():
                self._outputs[self.case, ones] = run(self.weights.reference.modules["float32"], inputs)[0]
        return self._run("float32", how, "whole", inputs), self._outputs[self.case, ones]

    def table_distances(self) -> dict[str, float]:
        """How far every table of the float32 port is from its formula, in units in the last place."""
        tables, constants = self.family.port_tables(self.port("float32")), self.family.constants(self.config)
        return {name: ulps(np.asarray(tables[name]), constants[name].values) for name in tables}

    def _run(self, dtype: str, how: How, what: str, *arguments: Any) -> Any:
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision(how.precision):
            return getattr(self.probe(dtype, how), what)(*arguments)

    def _observed(self) -> Observation:
        """The reference on the case in use."""
        if self.case not in self._seen:
            taps = {tap.reference for tap in self.taps}
            self._seen[self.case] = self.weights.reference.observe(self.case, taps)
        return self._seen[self.case]

    def _caller(self, call: Call) -> str:
        """The reference's name of the layer in whose code the port made a call; "" is the network."""
        return self.names.get(call.caller, "")

    def _by_candidate(self, calls: Calls) -> Calls:
        return {tap.candidate: calls[tap.reference] for tap in self.taps if tap.reference in calls}


def _ratios(candidate: Sequence[Any], reference: Sequence[Any], truth: Sequence[Any]) -> tuple[float, float]:
    """RMS and largest error over the reference's; infinite where counts or shapes differ."""
    pair, sides = ErrorPair(), [leaves(list(side)) for side in (candidate, reference, truth)]
    try:
        for c, r, t in zip(*sides, strict=True):
            pair.add(like(c, t), r, t)
    except ValueError:
        return inf, inf
    return pair.rms_ratio, pair.max_ratio
