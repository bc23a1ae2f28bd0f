"""A correct pair of small models of one configuration, and the errors of a run of the port at every tap.

The reference runs once per case and dtype; the port runs eagerly, so that its code may change between runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import jax
import numpy as np

from wdport.compare.calls import CASES, Call, Calls, Case, Expected, Outputs, cast, layer_of
from wdport.compare.errors import InPort, fed, made, tap_errors
from wdport.compare.layouts import axes, laid_out
from wdport.compare.measure import ErrorPair, relative_l2, ulps
from wdport.compare.probe import Probe
from wdport.compare.taps import Tap, align, every_call
from wdport.errors import InternalError
from wdport.families.roles import Faulty
from wdport.keras_runtime import layers_by_path
from wdport.model import Array
from wdport.parity.diagnose import Evidence
from wdport.parity.selftest.weights import Weights
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
    """The results of one run: one per tap and for the output, the port's paths that could not be compared, and the
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
    """The port and its reference with equal random weights; :meth:`use` selects the case that they run on.

    ``cases`` are the battery's, except the batch of one: run eagerly, other shapes are other programs.
    """

    def __init__(self, name: str, family: Faulty, config: Any, seed: int = 0) -> None:
        self.name, self.family, self.config = name, family, config
        self.cases = tuple(case for case in CASES if case.batch > 1)
        self.case = self.cases[0]
        self.weights = Weights(family, config, seed)
        self._seen: dict[Case, Observation] = {}
        self._outputs: dict[tuple[Case, bool], Outputs] = {}
        self._layers: dict[str, dict[str, Any]] = {}
        self._probes: dict[tuple[str, How], Probe] = {}
        self._ports: dict[Case, Calls] = {}
        self._output_shapes: dict[Case, list[tuple[int, ...]]] = {}
        self.signature = family.signature(config)
        self._axes = [axes(text) for text in self.signature.axes]
        names, told = self.weights.reference.names, self.signature
        self.taps: list[Tap] = align(
            self.weights.table, names, self.layers(), family.features(config), told.axes, part=told.words.one
        )
        self.paths = [tap.candidate for tap in self.taps]
        self._modules = {tap.reference for tap in self.taps}
        theirs, ours = ({name: call.caller for name, call in calls.items()}
                        for calls in (self._observed().calls, self._shapes()))  # fmt: skip
        self.taps, _ = every_call(self.taps, theirs, ours)
        order = {name: at for at, name in enumerate(theirs)}
        self.taps.sort(key=lambda tap: order.get(tap.reference, len(order)))
        self.names = {tap.candidate: tap.reference for tap in self.taps}

    def port(self, dtype: str = "float64") -> Any:
        """The Keras model, with the weights of the current case."""
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
        self._shapes()  # now, since a fault may be put into the port later

    def forget(self) -> None:
        """Drop the cached runs of the reference."""
        self._seen.clear()
        self._outputs.clear()

    def probe(self, dtype: str = "float64", how: How = EAGER) -> Probe:
        """A probe of the port at every tap; one for every way to run it, since a probe caches compiled programs."""
        if (dtype, how) not in self._probes:
            self._probes[dtype, how] = Probe(self.port(dtype), self.paths, how.eager)
        return self._probes[dtype, how]

    def logic(self, how: How = EAGER) -> Seen:
        """Run the float64 port with every layer isolated: relative errors per tap."""
        truth = self._observed()
        answers = self._into()(truth.calls)
        inputs = self.signature.in_port(truth.inputs)
        outputs, calls = self._run("float64", how, "isolate", inputs, answers)
        port = {**calls, "": Call((), outputs)}
        results, missing = [], []
        for tap in self.taps:
            errors = tap_errors(tap, port, answers)
            if errors is None:
                missing += _not_run(tap)
                continue
            results.append(TapResult(tap.reference, tap.candidate, tap.part, isolated=errors[1], inputs=errors[0],
                                     caller=self._caller(calls[tap.candidate])))  # fmt: skip
        right = self._laid_out(truth.outputs)
        error = max(relative_l2(c, r) if c.shape == r.shape else inf for c, r in zip(outputs, right, strict=True))
        results.append(TapResult(OUTPUT, "", None, isolated=error))
        whole = {**answers, "": Expected({}, 0, right)}
        return Seen(tuple(results), tuple(missing), Evidence(inputs, port, whole))

    def numerics(self, how: How = EAGER, only: str = "") -> Seen:
        """Run the float32 port with every layer isolated: errors per tap as multiples of the reference's own.

        ``only`` runs one layer, with those below it.
        """
        seen = self._observed()
        if seen.single is None:
            raise InternalError(self.name, f"has no float32 run of {self.case.describe()}", "take another case")
        inputs, ((outputs, theirs), (exact, wide)) = seen.single.inputs, seen.single.isolated
        inputs, outputs, exact = self.signature.in_port(inputs), self._laid_out(outputs), self._laid_out(exact)
        into = self._into()
        answers = into({name: cast(call, np.float32) for name, call in seen.calls.items()})
        reference, truth = into(theirs), into(wide)
        results, missing = [], []
        if only:
            calls = self._run("float32", how, "isolate_layer", only, self._shapes()[only], answers)
        else:
            own, calls = self._run("float32", how, "isolate", inputs, answers)
            ratios = [_ratios([each]) for each in zip(own, outputs, exact, strict=True)]
            rms, largest = (max(each) for each in zip(*ratios, strict=True))
            results.append(TapResult(OUTPUT, "", None, rms_ratio=rms, max_ratio=largest))
        for tap in self.taps:
            inside = tap.candidate == only or tap.candidate.startswith(f"{only}/")
            if only and (not inside or tap.candidate != layer_of(tap.candidate)):
                continue
            if tap.candidate not in calls or tap.candidate not in truth:
                missing += _not_run(tap)
                continue
            call, right = calls[tap.candidate], reference[tap.candidate]
            pairs, inputs_fed = made(tap, call, truth[tap.candidate]), fed(call, truth[tap.candidate])
            theirs_made = [r for r, _ in made(tap, Call((), right.outputs), truth[tap.candidate]) or []]
            rms, largest = _ratios(_triples(pairs, theirs_made))
            ratio = max(_ratios(_triples(inputs_fed, right.given)))
            results.append(TapResult(tap.reference, tap.candidate, tap.part, rms_ratio=rms, max_ratio=largest,
                                     inputs_ratio=ratio, caller=self._caller(calls[tap.candidate])))  # fmt: skip
        return Seen(tuple(results), tuple(missing))

    def outputs(self, ones: bool = False, how: How = EAGER) -> tuple[Array, Array]:
        """All outputs, flat, of the float32 port and of the float32 reference, for the case or for inputs of ones."""
        inputs = tuple(cast(self._observed().inputs, np.float32))
        if ones:
            inputs = tuple(np.ones_like(array) for array in inputs)
        if (self.case, ones) not in self._outputs:
            with highest_precision():
                made = run(self.weights.reference.modules["float32"], inputs)
            self._outputs[self.case, ones] = self._laid_out(made)
        own = self._run("float32", how, "whole", self.signature.in_port(inputs))
        return _flat(own), _flat(self._outputs[self.case, ones])

    def table_distances(self) -> dict[str, float]:
        """The distance of every table of the float32 port from its formula, in units in the last place."""
        tables, constants = self.family.port_tables(self.port("float32")), self.family.constants(self.config)
        return {name: ulps(np.asarray(tables[name]), constants[name].values) for name in tables}

    def _run(self, dtype: str, how: How, what: str, *arguments: Any) -> Any:
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision(how.precision):
            return getattr(self.probe(dtype, how), what)(*arguments)

    def _observed(self) -> Observation:
        """The reference's observation of the current case."""
        if self.case not in self._seen:
            self._seen[self.case] = self.weights.reference.observe(self.case, self._modules)
        return self._seen[self.case]

    def _caller(self, call: Call) -> str:
        """The reference's name of the layer in whose code the port made a call; "" is the network."""
        return self.names.get(call.caller, "")

    def _shapes(self) -> Calls:
        """Calls of the correct port in the current case, for the shapes of its layers' inputs and outputs."""
        if self.case not in self._ports:
            inputs = self.signature.in_port(self._observed().inputs)
            outputs, self._ports[self.case] = self._run("float64", EAGER, "record", inputs)
            self._output_shapes[self.case] = [output.shape for output in outputs]
        return self._ports[self.case]

    def _laid_out(self, outputs: Outputs) -> Outputs:
        """The reference's outputs in the port's layout."""
        self._shapes()
        pairs = zip(outputs, self._output_shapes[self.case], strict=True)
        return tuple(laid_out(output, shape, self._axes) for output, shape in pairs)

    def _into(self) -> InPort:
        return InPort(self.taps, self._shapes())


def _not_run(tap: Tap) -> list[str]:
    """The layer, unless it was only called less often: then the layer around it is wrong."""
    return [tap.candidate] if tap.candidate == layer_of(tap.candidate) else []


def _flat(outputs: Outputs) -> Array:
    """One output as it is, several one after another."""
    return outputs[0] if len(outputs) == 1 else np.concatenate([output.ravel() for output in outputs])


Triple = tuple[Array, Array, Array]


def _triples(pairs: Sequence[tuple[Array, Array]] | None, reference: Sequence[Array]) -> list[Triple] | None:
    """Candidate, reference and truth; ``None`` if their numbers differ."""
    if pairs is None or len(pairs) != len(reference):
        return None
    return [(c, r, t) for (c, t), r in zip(pairs, reference, strict=True)]


def _ratios(found: Sequence[Triple] | None) -> tuple[float, float]:
    """RMS and largest error over the reference's; infinite if counts or shapes differ."""
    if found is None or any(c.shape != t.shape for c, _, t in found):
        return inf, inf
    pair = ErrorPair()
    for c, r, t in found:
        pair.add(c, r, t)
    return pair.rms_ratio, pair.max_ratio
