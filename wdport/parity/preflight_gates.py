"""Gates preflight and constants: what a comparison of two files needs besides the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from wdport.compare.comparison import Comparison
from wdport.compare.findings import GATES, Finding, Gate, fact, measure, notice
from wdport.compare.measure import ulps
from wdport.conversion.prepare import Prepared
from wdport.families.roles import KeptByKeras, Referenced, Trained
from wdport.mapping.moves import Plan
from wdport.models.keras_runtime import variables_by_path
from wdport.parity.gates_of_uses import use_gates
from wdport.parity.model_pair import Weights
from wdport.parity.reports.phrases import at_layers


def preflight_gate(prepared: Prepared, comparison: Comparison, unequal: Sequence[Finding]) -> Gate:
    """Gate preflight (0): everything accounted for, both sides sound, nothing left uncompared.

    ``unequal`` are findings on variables of the converted file that have wrong values.
    """
    plan, tensors = prepared.plan, prepared.checkpoint.tensors
    # Counted again from the plan, which already refuses what is left over: the gate does not rely on it.
    settled = {name for move in plan.moves for name in move.sources} | {*plan.checks, *plan.drops, *plan.ties}
    lost = [fact(f"{name} is not accounted for", name, "missing") for name in tensors if name not in settled]
    variables = list(variables_by_path(comparison.candidate.models["float32"]))
    if sorted(variables) != sorted(plan.targets):
        lost.append(fact("the plan does not fill every variable exactly once"))
    tallies = (comparison.float64, comparison.float32)
    expected = len(tensors) + len(variables) + sum(tally.expected for tally in tallies)
    compared = len(settled & set(tensors)) + len(set(plan.targets)) + sum(tally.compared for tally in tallies)
    parts = (_notes(prepared, comparison), _filled(plan), _conditioned(comparison), _left_out(comparison),
             _arranged(comparison), _undetermined(comparison), comparison.reference.notes)  # fmt: skip
    notes = [*prepared.notes, *(note for part in parts for note in part)]
    facts = (*comparison.findings, *unequal, *lost, *_unfit(prepared, comparison), *map(notice, notes))
    return GATES["0"].gate(compared, expected, facts=facts)


def _unfit(prepared: Prepared, comparison: Comparison) -> list[Finding]:
    """Reasons why the two sides cannot be compared, or are not those of the same configuration."""
    findings: list[Finding] = []
    reference, family = comparison.reference, prepared.family
    if isinstance(family, Referenced) and prepared.stated and not reference.code:
        module = comparison.modules["float32"]
        findings += [fact(text, kind="unequal") for text in family.misread(prepared.config, prepared.stated, module)]
    if not reference.evaluating:
        findings.append(fact("the reference is not in evaluation mode"))
    if comparison.precision != ("highest", "highest"):
        findings.append(fact("matrix products do not run at the highest precision on both sides"))
    models = comparison.candidate.models.values()
    if reference.framework != "torch" or not all(isinstance(model, keras.Model) for model in models):
        findings.append(fact("reference and candidate are not models of two frameworks"))
    return findings


def _notes(prepared: Prepared, comparison: Comparison) -> list[str]:
    """Notes on what is compared, at which sizes, and which gates are absent."""
    family, notes = prepared.family, list(comparison.signature.notes)
    if isinstance(family, Referenced) and not comparison.reference.code and comparison.modules:
        notes.append(f"the reference is {family.library_of(prepared.config)}")
    if not isinstance(family, KeptByKeras):
        there = {"A'": bool(prepared.constants), **dict.fromkeys(use_gates().lacking(family), False),
                 "D": isinstance(family, Trained)}  # fmt: skip
        if lacking := [str(GATES[letter]) for letter, has in there.items() if not has]:
            notes.append(f"gates that {family.name} does not have: {', '.join(lacking)}")
    return notes


def _filled(plan: Plan) -> list[str]:
    """Notes on the variables that no tensor fills, one for each constant."""
    variables = _by_reason({fill.target: fill.fill for fill in plan.fills})
    return [
        f"filled with {constant}, since PyTorch has no tensor for it: {names}" for constant, names in variables.items()
    ]


def _conditioned(comparison: Comparison) -> list[str]:
    """The layers whose float64 errors one rounding explains."""
    errors = {tap.reference: tap.conditioned for tap in comparison.taps.values() if tap.conditioned}
    if not errors:
        return []
    largest = max(errors.values())
    return [f"ill-conditioned here: {at_layers(list(errors))}, off by up to {largest:.1e}, as after one rounding"]


def _left_out(comparison: Comparison) -> list[str]:
    """Notes on the layers that are compared only by their parts, or only by what follows them, one for each reason, and
    on those that the port lacks."""
    reasons, uses = ({tap.reference: why for tap, why in taps.items()}
                     for taps in (comparison.alignment.left_out, comparison.alignment.reused))  # fmt: skip
    absent = {name: f"no tensors, and no {path} in Keras" for name, path in comparison.alignment.unconverted.items()}
    absent |= dict.fromkeys(comparison.alignment.without_module, "the reference has no such module")
    outputs = ["only the outputs are compared: the table has no row of a layer"] * comparison.alignment.outputs_alone
    return [*outputs,
            *(f"compared by parts alone: {names} ({why})" for why, names in _by_reason(reasons).items()),
            *(f"compared where its outputs are used: {names} ({why})" for why, names in _by_reason(uses).items()),
            *(f"not compared: {name} ({why})" for name, why in absent.items())]  # fmt: skip


def _arranged(comparison: Comparison) -> list[str]:
    """Notes on layers whose values are in another order while everything after them agrees."""
    layers = _by_reason(comparison.arranged)
    return [f"differs inside, outputs equal: {names} ({order})" for order, names in layers.items()]


def _undetermined(comparison: Comparison) -> list[str]:
    """Notes on the samples that are left out of a layer."""
    layers = _by_reason({name: ", ".join(kinds) for name, kinds in comparison.undetermined.items()})
    return [f"left out of {names}: samples of {kinds}, where one rounding decides the result, as among equal numbers"
            for kinds, names in layers.items()]  # fmt: skip


def _by_reason(reasons: Mapping[str, str]) -> dict[str, str]:
    """The names, abbreviated, by reason."""
    names = {why: [name for name in reasons if reasons[name] == why] for why in dict.fromkeys(reasons.values())}
    return {why: at_layers(group) for why, group in names.items()}


def constants_gate(prepared: Prepared, candidate: Any, weights: Weights) -> Gate:
    """Gate constants (A'): every constant of the family is a table of the port, compared with its float64 formula, or
    an unchanged tensor of the file."""
    constants = {name: constant for name, constant in prepared.constants.items() if constant.held}
    tables = prepared.family.port_tables(candidate)
    distances = {name: ulps(np.asarray(tables[name]), constants[name].values) for name in tables if name in constants}
    extra = [name for name in tables if name not in constants]
    facts = [fact(f"{name} of the port is not a constant of its family", name) for name in extra]
    carried = {}
    for move in prepared.plan.moves:
        if move.source in prepared.plan.checks:
            target, carried[prepared.plan.checks[move.source]] = move.targets[0], move
            tensor = weights.tensors.get(move.source)
            if tensor is not None and not np.array_equal(tensor, weights.variables[target]):
                facts.append(fact(f"{target} is not the file's {move.source}", target, "unequal"))
    missing = [name for name in constants if name not in distances and name not in carried]
    facts += [fact(f"{name} is in no table of the port", name, "missing") for name in missing]
    measures = tuple(measure(name, "ulp", distance, "table_ulp") for name, distance in distances.items())
    return GATES["A'"].gate(len(constants) - len(missing), len(constants), measures, tuple(facts))
