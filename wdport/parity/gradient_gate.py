"""Gate gradients (C): compare one float64 backward pass of both sides from one random cotangent, by tap, part and
variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import jax
import numpy as np

from wdport.compare.calls import Call, Case, ExpectedCall, layer_of
from wdport.compare.findings import GATES, Gate, fact, measure, notice
from wdport.compare.layer_errors import InPort
from wdport.compare.layouts import axes, output_laid_out, stated_rules
from wdport.compare.measure import ScaledErrors, relative_l2
from wdport.compare.reference import Reference
from wdport.compare.taps import Tap
from wdport.conversion.prepare import Prepared
from wdport.mapping.moves import Move
from wdport.mapping.rearrange import apply_rule
from wdport.models.interface import Array
from wdport.models.keras_runtime import variables_by_path
from wdport.parity.keras_gradients import GradientProbe
from wdport.recording.runs import run


@dataclass(frozen=True)
class GradientErrors:
    """Relative float64 errors: by tap (the reference's name), by part of the first input, by variable."""

    taps: dict[str, float]
    parts: list[float]
    variables: dict[str, float]
    gate: Gate


def gradient_gate(
    prepared: Prepared, reference: Reference, probe: GradientProbe, taps: Sequence[Tap], seed: int, batch: int
) -> GradientErrors:
    """Compare the gradients of both sides, in float64, with their current weights."""
    from wdport.parity.torch_gradients import torch_gradients  # torch may be absent where a recording is replayed

    signature, module = prepared.family.signature(prepared.config), reference.modules["float64"]
    inputs = reference.inputs(Case(seed, batch, 1.0))
    port_inputs = signature.in_port(inputs)
    names = {name for name, _ in module.named_modules()}
    # If an activation follows the module, the gradient by the port's output is that after the activation.
    compared = [tap for tap in taps if layer_of(tap.reference) in names and not tap.layout.after]
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        slopes = probe.cotangents(port_inputs, seed)
        _, by_input, by_tap, by_weight = probe(port_inputs, slopes)
    rules = [axes(text).inverse() for text in signature.axes]
    output_names: list[str] = []
    outputs = run(module, inputs, output_names)
    if probe.output_names and sorted(probe.output_names) == sorted(output_names):
        slopes = [slopes[probe.output_names.index(name)] for name in output_names]
    # The same random cotangent on both sides: the port's, moved to the reference's layout.
    try:
        stated = [rule and rule.inverse() for rule in stated_rules(signature, len(outputs))]
        back = [output_laid_out(slope, output.shape, rules, rule)
                for slope, output, rule in zip(slopes, outputs, stated, strict=True)]  # fmt: skip
    except ValueError as error:
        unlike = fact(f"not compared, since the network's outputs differ: {error}", kind="missing")
        return GradientErrors({}, [], {}, GATES["C"].gate(0, 1, (), (unlike,)))
    theirs = torch_gradients(module, inputs, back, {layer_of(tap.reference) for tap in compared})
    ported = {name: variable for name, variable in variables_by_path(probe.model).items() if variable.trainable}
    place = {id(variable): index for index, variable in enumerate(probe.model.trainable_variables)}
    ours = {name: by_weight[place[id(variable)]] for name, variable in ported.items()}
    into = InPort(compared, {call: Call((), tuple(gradients)) for call, gradients in by_tap.items()})(theirs.taps)
    moved = [
        None if slope is None else signature.one_in_port(index, slope) for index, slope in enumerate(theirs.inputs)
    ]
    tap_errors = {t.reference: _tap(by_tap.get(t.candidate, []), into.get(t.candidate)) for t in compared}
    # By part of the first input, if it is divided as the output is.
    port, first, their_first, part_errors = signature.divided, by_input[0], theirs.inputs[0], dict[str, float]()
    if port is not None and first is not None and their_first is not None:
        part_errors = {name: relative_l2(first[:, part], their_first[:, part]) for name, part in port.parts.items()}
    input_pairs = ((a, b) for a, b in zip(by_input, moved, strict=True) if a is not None and b is not None)
    by_variable = variable_errors(ours, moved_gradients(prepared, theirs.parameters))
    errors = {f"input {index}": relative_l2(a, b) for index, (a, b) in enumerate(input_pairs)}
    errors |= {f"input of {name}": error for name, error in part_errors.items()}
    errors |= by_variable
    # What weight_norm makes has no gradient to compare with.
    weight_normed = {name for move in prepared.plan.moves if move.combine == "weight_norm" for name in move.targets}
    filled = {fill.target for fill in prepared.plan.fills}
    missing = [name for name in ours if name not in weight_normed | filled and name not in by_variable]
    facts = [fact(f"the gradient by {name} was not compared", name, "missing") for name in missing]
    why = "is made by weight_norm, so its gradient has no counterpart"
    facts += [notice(f"{name} {why}", name) for name in sorted(weight_normed)]
    facts += [notice(f"PyTorch has no tensor for {name}, so its gradient has no counterpart", name)
              for name in sorted(filled)]  # fmt: skip
    measures = [measure(name, "gradient", error, "gradient") for name, error in errors.items()]
    by_layer = [measure(name, "gradient", error, "gradient") for name, error in tap_errors.items()]
    if measures and not weight_normed and not any(measured.beyond for measured in measures):
        # An output that is returned twice, or `stop_gradient` in place of a gradient that is not used.
        others = [measured for measured in by_layer if measured.beyond]
        text = "the gradient by {} differs by {:.1e}, and those by variables and inputs agree"
        facts += [notice(text.format(other.subject, other.value), other.subject) for other in others]
        by_layer = [measured for measured in by_layer if not measured.beyond]
    measures = [*by_layer, *measures]
    errors = tap_errors | errors
    gate = GATES["C"].gate(len(errors), len(errors) + len(missing), tuple(measures), tuple(facts))
    return GradientErrors(tap_errors, list(part_errors.values()), by_variable, gate)


def moved_gradients(prepared: Prepared, gradients: Mapping[str, Array]) -> dict[str, Array]:
    """The reference's gradients, which are by parameter, by variable of the port; copies, since torch clips in
    place."""
    arrays = dict[str, Array]()
    for move in prepared.plan.moves:
        if all(name in gradients for name in move.sources):
            moved = _moved(move, [gradients[name] for name in move.sources])
            arrays |= {name: np.array(array, order="C") for name, array in zip(move.targets, moved, strict=False)}
    return arrays


def variable_errors(ours: Mapping[str, Any], theirs: Mapping[str, Array]) -> dict[str, float]:
    """Gradient errors by variable of the port."""
    errors = ScaledErrors()
    for name, array in theirs.items():
        if name in ours:
            errors.add(name, np.asarray(ours[name]), array)
    return errors.relative()


def _moved(move: Move, slopes: Sequence[Array]) -> list[Array]:
    """Convert gradients by a move's tensors to gradients by its variables: for a sum, that of either term; a product
    has none."""
    if move.combine == "sum":
        # d(a + b)/da = d(a + b)/db, so either term's gradient is that of the sum.
        return apply_rule(move.rule, slopes[:1], dict(move.sizes))
    return move.apply(slopes) if move.exact else []


def _tap(ours: Sequence[Array], theirs: ExpectedCall | None) -> float:
    """The largest error over a tap's outputs; infinite if count or shapes differ."""
    if theirs is None or len(ours) != len(theirs.outputs):
        return inf
    return max((relative_l2(a, b) for a, b in zip(ours, theirs.outputs, strict=True)), default=0.0)
