"""Compare both sides' results of one case in float64, layer by layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import keras
import numpy as np

from wdport.compare.calls import Call, Calls, ExpectedCall, Outputs
from wdport.compare.candidate import Ran
from wdport.compare.differing_cases import SAMPLES
from wdport.compare.explained import (
    KERAS_MASK,
    NOTHING,
    Explained,
    Loose,
    beyond_rounding,
    counted,
    explained,
    hidden_scores_win,
    undetermined,
)
from wdport.compare.findings import OUTPUT, fact
from wdport.compare.gate_bounds import FLOAT32_SHARE
from wdport.compare.layer_errors import (
    InPort,
    floors_of,
    narrowed,
    norms,
    output_errors,
    rearranged,
    tap_errors,
    without,
    wrong_samples_of,
)
from wdport.compare.measure import float32_share, wrong_samples
from wdport.compare.results import CaseErrors, Evidence, LayerErrors
from wdport.compare.sides import Expected
from wdport.compare.taps import Tap
from wdport.models.interface import Array

Errors = dict[str, tuple[float, float] | None]
"""Errors of inputs and of outputs by the reference's names; infinite where the arrays cannot be compared, and ``None``
where one side did not run the layer."""


@dataclass(frozen=True)
class Ordinary:
    """The calls and outputs of ordinary inputs without a batch axis, which extreme values fill as a whole; empty for
    inputs with one."""

    calls: Mapping[str, ExpectedCall] = field(default_factory=dict)
    outputs: Outputs = ()


@dataclass
class _Isolation:
    """The port's results with every layer isolated, and what is expected of them."""

    errors: Errors
    outputs: Outputs
    calls: Calls
    expected: Mapping[str, ExpectedCall]
    into: InPort


def case_errors(expected: Expected, port: Ran, ordinary: Ordinary, logic: float) -> CaseErrors:
    """Isolated and cumulative float64 errors of every layer.

    If every layer gets the reference's inputs in the running network, that run already isolates all layers. Otherwise
    an isolated run locates the fault. ``port`` are its results in the running network, and ``logic`` is the bound of
    float64 errors.
    """
    return _Comparing(expected, port, ordinary, logic).errors()


class _Comparing:
    """One case under comparison."""

    def __init__(self, expected: Expected, port: Ran, ordinary: Ordinary, logic: float) -> None:
        self.expected, self.case, self.ordinary, self.logic = expected, expected.case, ordinary, logic
        self.outputs, self.calls = port
        self.floors = floors_of(self.case)
        self.kinds = self.case.extremes or (f"scale x{self.case.scale:g}",) * self.case.samples
        self.loose = Loose()
        self.hidden: set[int] = set()  # samples in which Keras's own attention sees what a mask hides
        self.result = CaseErrors()

    def errors(self) -> CaseErrors:
        expected, result = self.expected, self.result
        running = self._tap_errors(self.calls, expected.calls, expected.into)
        # Other inputs, such as fewer zeros around them, and equal outputs.
        padded: Errors = {name: (0.0, 0.0) for name in expected.into.misfed
                          if (error := running[name]) and error[1] <= self.logic}  # fmt: skip
        running |= padded
        running |= self._arranged(running)
        differing = self._differing(running)
        # An ordinary sample of scale 1 is to be determined: a layer that is compared nowhere would pass.
        unusual = bool(self.case.extremes) or self.case.scale != 1.0
        if unusual and (differing or self._output_differs()):
            loose = undetermined(expected.conditioning, expected.observation, self.case)
            self.loose = {name: parts for name, parts in loose.items() if name in (*differing, OUTPUT)}
            self._leave_out_hidden()
            determined = self._tap_errors(self.calls, expected.calls, expected.into, "running")
            running |= {name: determined[name] for name in differing}
        isolation = self._isolated(running, padded)
        result.misfits = {name: text for name, text in isolation.into.misfits.items() if name not in padded}
        spreads = self._explained(running, isolation.errors)
        for index, name in enumerate(expected.sides.outputs):
            result.outputs[name] = self._output(index, isolation.outputs, spreads.get(OUTPUT, NOTHING))
        self._bound_left_out()
        if expected.outputs and any(errors.isolated > self.logic for errors in result.outputs.values()):
            self._keep(self.calls, self.outputs, expected.calls)  # of code after the last layer
        for tap in expected.taps:
            result.layers[tap.reference] = self._layer(tap, running, isolation, spreads.get(tap.reference, NOTHING))
        return result

    def _layer(self, tap: Tap, running: Errors, isolation: _Isolation, spread: Explained) -> LayerErrors | None:
        """The errors of one layer."""
        running_errors, isolated_errors = running[tap.reference], isolation.errors[tap.reference]
        if running_errors is None or isolated_errors is None:
            return None
        cumulative, explained_running = counted(running_errors[1], spread.running)
        inputs, explained_inputs = counted(isolated_errors[0], spread.fed)
        isolated, explained_isolated = counted(isolated_errors[1], spread.isolated)
        wrong = None
        if not max(inputs, isolated) <= self.logic:
            wrong = wrong_samples_of(tap, isolation.calls, isolation.expected, self.floors, self.logic)
        # Extreme cases hold zeros and constants, which are exact in float32 and would look like a precision leak.
        sides = (self.expected.observation.calls[tap.reference], self.calls[tap.candidate])
        shares = [0.0 if self.case.extremes else narrowed(side) for side in sides]
        conditioned = max(explained_running, explained_inputs, explained_isolated)
        return LayerErrors(isolated, inputs, cumulative, conditioned, (shares[0], shares[1]), wrong)

    def _isolated(self, running: Errors, padded: Errors) -> _Isolation:
        """The port's isolated results: those of the running network if no layer of it differs."""
        expected = self.expected
        if not self._differing(running):
            return _Isolation(running, self.outputs, self.calls, expected.calls, expected.into)
        port, answers, into, doubtful = expected.sides.port, expected.calls, expected.into, expected.doubtful
        outputs, calls = port.isolate("float64", expected.inputs, answers, doubtful)
        if into.misfits:  # most of them only follow from the first: in isolation, the shapes after it are right
            into = InPort(expected.taps, calls)
            answers = into(expected.observation.calls)
            if _fed_otherwise(answers, expected.calls):  # such as with zeros around, up to a wrong size
                outputs, calls = port.isolate("float64", expected.inputs, answers, doubtful)
                into = InPort(expected.taps, calls)
                answers = into(expected.observation.calls)
        self._keep(calls, outputs, answers)
        errors = self._tap_errors(calls, answers, into, "made")
        errors |= dict.fromkeys(into.misfed, (inf, 0.0))  # of these, the code around the layer is to blame
        return _Isolation(errors | padded, outputs, calls, answers, into)

    def _output(self, index: int, isolated_outputs: Outputs, spread: Explained) -> LayerErrors:
        """The errors of one of the network's outputs."""
        expected, output, isolated_output = self.expected, self.outputs[index], isolated_outputs[index]
        if not expected.outputs:
            # Outputs of another size may be the fault of one layer.
            right = (expected.in_port(expected.observation.outputs, isolated_outputs)
                     if isolated_outputs is not self.outputs else ())  # fmt: skip
            isolated = output_errors((isolated_output,), (right[index],))[0] if right else inf
            return LayerErrors(isolated, 0.0, inf)
        reference, lost = expected.outputs[index], self.loose.get(OUTPUT, {}).get("made", ())
        floors = without(self.floors or (0.0,) * self.case.samples, lost) if lost else self.floors
        sizes = norms(self.ordinary.outputs[index : index + 1])
        errors = [output_errors((side,), (reference,), floors, sizes)[0] for side in (output, isolated_output)]
        cumulative, explained_running = counted(errors[0], spread.running)
        isolated, explained_isolated = counted(errors[1], spread.isolated)
        wrong = None if isolated <= self.logic else wrong_samples(isolated_output, reference, floors, self.logic)
        shares = (0.0, 0.0) if self.case.extremes else (float32_share(reference), float32_share(output))
        if min(shares) > FLOAT32_SHARE and self._are_weights(reference):  # of a lookup
            shares = (0.0, 0.0)
        conditioned = max(explained_running, explained_isolated)
        return LayerErrors(isolated, 0.0, cumulative, conditioned, shares, wrong)

    def _are_weights(self, values: Array) -> bool:
        """Whether all values are among the port's weights, which float32 holds."""
        model = self.expected.sides.candidate.models["float64"]
        variables = [np.asarray(variable.value) for variable in model.variables]
        weights = [array.ravel() for array in variables if array.dtype == values.dtype]
        return bool(weights) and bool(np.isin(values, np.concatenate(weights)).all())

    def _bound_left_out(self) -> None:
        """In samples that are left out, outputs may differ only by what rounding changes."""
        expected = self.expected
        lost = self.loose.get(OUTPUT, {}).get("made", set()) - self.hidden
        if not lost or not expected.outputs:
            return
        moved = expected.in_port(expected.conditioning.outputs, self.outputs)
        for place, error in beyond_rounding(self.outputs, expected.outputs, moved, lost, self.case):
            errors = self.result.outputs[expected.sides.outputs[place]]
            errors.isolated, errors.cumulative = max(errors.isolated, error), max(errors.cumulative, error)

    def _keep(self, calls: Calls, outputs: Outputs, expected: Mapping[str, ExpectedCall]) -> None:
        """Keep the port's calls and outputs, from which causes are found, unless some are already."""
        port = {**calls, "": Call((), outputs)}
        reference = {**expected, "": ExpectedCall({}, 0, self.expected.outputs)}
        torch_inputs = self.expected.observation.inputs
        evidence = Evidence(self.expected.inputs, port, reference, torch_inputs, self.case.random_biases)
        self.result.evidence = self.result.evidence or evidence

    def _tap_errors(self, calls: Calls, expected: Mapping[str, ExpectedCall], into: InPort, part: str = "") -> Errors:
        """Errors by the reference's name. Samples that are loose in this ``part`` of a tap's outputs, or in its inputs,
        are left out."""
        errors: Errors = {}
        for tap in self.expected.taps:
            samples = self.loose.get(tap.reference, {})
            fed, lost = samples.get("fed", ()), samples.get(part, ())
            floors, made_floors = (without(self.floors or (0.0,) * len(self.kinds), samples) if samples else self.floors
                                   for samples in (fed, lost))  # fmt: skip
            errors[tap.reference] = tap_errors(tap, calls, expected, floors, made_floors, self.ordinary.calls)
            self._leave_out(tap.reference, [self.kinds[index] for index in sorted({*fed, *lost} - self.hidden)])
        for name in into.misfits:
            error = errors.get(name)
            errors[name] = (0.0, inf) if error is None else error
        return errors

    def _leave_out(self, name: str, kinds: Sequence[str]) -> None:
        """Note that samples of these kinds are left out of a layer."""
        if kinds:
            names = dict.fromkeys(kind or "ordinary values" for kind in kinds)
            self.result.left_out.setdefault(name, {}).update(names)

    def _leave_out_hidden(self) -> None:
        """Leave out samples in which Keras's own attention sees what a mask hides, in it and in what may follow."""
        layers = self.expected.sides.port.probes["float64"].layers
        for tap in self.expected.taps:
            layer: Any = layers.get(tap.candidate)
            query, key = (self.expected.calls.get(f"{tap.candidate}/{part}") for part in ("query", "key"))
            if type(layer) is not keras.layers.MultiHeadAttention or query is None or key is None:
                continue
            if not layer.get_config()["dropout"]:
                continue  # it calls ops.dot_product_attention, which hides with the lowest number
            if lost := hidden_scores_win(query.outputs[0], key.outputs[0]):
                self.hidden |= lost
                self._leave_out_from(tap.reference, lost)
                words = ", ".join(dict.fromkeys(SAMPLES.get(self.kinds[index], self.kinds[index])
                                                for index in sorted(lost)))  # fmt: skip
                text = (
                    f"samples of {words} are left out from {tap.reference} on: keras.layers.MultiHeadAttention "
                    f"with dropout gives what a mask hides the score {-KERAS_MASK:g}, and others are lower"
                )
                self.result.findings.append(fact(text, tap.reference, "notice"))

    def _leave_out_from(self, attention: str, lost: Collection[int]) -> None:
        # In order of completion: layers before it, and its own projections, are compared.
        before = {f"{attention}.{part}" for part in ("query", "key", "value")}
        names = list(self.loose)
        inside = (name == attention or name.startswith(f"{attention}.") for name in names)
        first = next((index for index, is_in in enumerate(inside) if is_in), len(names) - 1)
        for name in names[first:]:
            if name not in before:
                for part in ("fed", "made", "running"):
                    self.loose[name][part] = self.loose[name].get(part, set()) | {*lost}

    def _differing(self, errors: Errors) -> list[str]:
        """The names with an error beyond the bound; NaN is."""
        return [name for name, error in errors.items() if error is not None and not max(error) <= self.logic]

    def _arranged(self, errors: Errors) -> Errors:
        """Set no error for layers that hold the reference's values in another order, if the output agrees and no other
        layers differ: the order of keys, for example, is mathematically arbitrary."""
        expected, differing = self.expected, self._differing(errors)
        if not differing or not expected.outputs:
            return {}
        if not max(output_errors(self.outputs, expected.outputs)) <= self.logic:
            return {}
        orders = {tap.reference: rearranged(tap, self.calls, expected.calls, expected.observation.calls)
                  for tap in expected.taps if tap.reference in differing}  # fmt: skip
        if not all(orders.values()):
            return {}
        self.result.arranged = {name: order for name, order in orders.items() if order}
        return dict.fromkeys(orders, (0.0, 0.0))

    def _output_differs(self) -> bool:
        """Whether an output alone differs, which no layer's result shows, such as the place of a maximum."""
        right, sizes = self.expected.outputs, norms(self.ordinary.outputs)
        return bool(right) and not max(output_errors(self.outputs, right, self.floors, sizes)) <= self.logic

    def _explained(self, *errors: Errors) -> dict[str, Explained]:
        """The relative errors that one rounding explains, by tap; measured only if an error exceeds the bound."""
        if not any(map(self._differing, errors)):
            return {}
        expected = self.expected
        by_tap, output = explained(expected.conditioning, expected.observation, self.floors)
        return {**by_tap, OUTPUT: output}


def _fed_otherwise(calls: Mapping[str, ExpectedCall], earlier: Mapping[str, ExpectedCall]) -> bool:
    """Whether an input has another size than the one that was expected earlier."""
    return any(np.shape(array) != np.shape(earlier[name].inputs[index]) for name, call in calls.items()
               if name in earlier for index, array in call.inputs.items() if index in earlier[name].inputs)  # fmt: skip
