"""Probable causes: find what explains a faulty layer from its inputs and outputs and the reference's.

The port is rebuilt with the checkpoint's weights. If the rebuilt port computes something else at that place, the fault
is in the file's weights, and the known bug that reproduces the observed values is named. If it computes the same, the
fault is in the code, and no bug injected into faulty code explains it. In that case the values are analysed (see
:mod:`wdport.compare.recognize` and :mod:`wdport.compare.relations`): every statement holds to the logic bound.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from wdport.compare.activations import other_activation
from wdport.compare.bounds import LOGIC
from wdport.compare.calls import Call, Calls, layer_of, leaves
from wdport.compare.comparison import Comparison
from wdport.compare.measure import relative_l2
from wdport.compare.orders import flatten_order
from wdport.compare.probe import Probe
from wdport.compare.recognize import attention_difference, difference
from wdport.compare.relations import added_relations, relations, same
from wdport.compare.results import Evidence, Fault
from wdport.compare.trials import Trial
from wdport.conversion.prepare import Prepared
from wdport.errors import IncompleteError
from wdport.families.mutants import Mutant
from wdport.keras_runtime import layers_by_path
from wdport.model import Array
from wdport.parity.sides import Weights, correct_port

MOST_PARTS = 6
"""Layers inside a faulty one that are searched for its queries, keys and values."""

LOGIC_GATES = ("0", "A")
"""The gates whose faults a float64 run can show."""


def tapped(path: str, taps: Collection[str]) -> str:
    """The innermost of ``taps`` at or above a layer; "" if there is none."""
    while path and path not in taps:
        path = path.rpartition("/")[0]
    return path


MAX_CAUSES = 5
"""Number of faults to diagnose: each is compared with every known bug of its place."""


def probable_causes(
    prepared: Prepared, comparison: Comparison, weights: Weights, faults: Sequence[Fault]
) -> dict[str, tuple[str, ...]]:
    """Probable causes of the first faults, by the faulty layer's path: settings that differ, or else what the values
    show."""
    probe = Probe(correct_port(prepared, weights), comparison.alignment.watched, eager=True)
    names = {tap.candidate: tap.reference for tap in comparison.alignment.taps}
    known = prepared.family.mutants(prepared.config)
    found = {}
    for fault in faults[:MAX_CAUSES]:
        words = _settings_that_differ(comparison, fault) or _by_trial(comparison, probe, fault, bool(known))
        if not words and comparison.evidence is not None:
            words = causes(probe, known, fault, comparison.evidence, names)
        found[fault.candidate] = tuple(words)
    return found


def _settings_that_differ(comparison: Comparison, fault: Fault) -> list[str]:
    """The hyper-parameters that differ at a faulty layer, if the reference runs here."""
    tap = next((tap for tap in comparison.alignment.taps if tap.reference == fault.reference and not fault.feeds), None)
    if tap is None or not tap.kind:
        return []
    return [each.text for each in comparison.alignment.settings.at(layer_of(tap.reference))]


def _by_trial(comparison: Comparison, probe: Probe, fault: Fault, has_bugs: bool) -> list[str]:
    """Changes that make a faulty layer agree: another order of a flattened input, an activation, a setting, an
    order of gates. If the family ``has_bugs``, activations are among its known bugs."""
    tap = next((tap for tap in comparison.alignment.taps if tap.reference == (fault.feeds or fault.reference)), None)
    if tap is None or (seen := comparison.evidence) is None or tap.candidate not in seen.port:
        return []
    own, expected = seen.port[tap.candidate], seen.answers.get(tap.candidate)
    if fault.feeds or expected is None:
        return flatten_order(tap, own, seen.answers, comparison.alignment.taps)
    trial = Trial(probe, tap, seen.inputs, seen.port, seen.answers)
    return ([] if has_bugs else other_activation(tap, own, expected)) or trial.told(
        comparison.alignment.modules.get(layer_of(tap.reference))
    )


def causes(
    probe: Probe, mutants: Sequence[Mutant], fault: Fault, evidence: Evidence, names: Mapping[str, str]
) -> list[str]:
    """The probable causes of ``fault``; empty if none is found.

    ``probe`` is an eager probe of the rebuilt port, float64, with the checkpoint's weights; ``mutants`` are known
    bugs of its family; ``names`` are the reference's names by the candidate's paths.
    """
    return known_bugs(probe, mutants, fault, evidence) or told_by_values(fault, evidence, names)


def told_by_values(fault: Fault, evidence: Evidence, names: Mapping[str, str]) -> list[str]:
    """Causes found from the values at the faulty place only; needs no model."""
    wrong, right, subject = _faulty_array(fault, evidence, names)
    if wrong is None or right is None:
        return []
    called = [path for path, call in evidence.port.items() if path and call.caller == fault.candidate]
    answers = [evidence.answers[path] for path in called if path in evidence.answers]
    parts = [np.asarray(call.outputs[0]) for call in answers if call.outputs]
    site = evidence.answers.get(fault.candidate)  # the reference may not have run it
    inputs = site.given if site is not None and fault.candidate else []
    given = [*inputs, *parts] if fault.feeds else inputs
    found = next((text for each in given if (text := difference(np.asarray(each), right, wrong))), [])
    if not found and right.ndim >= 3 and 3 <= len(parts) <= MOST_PARTS:
        found = attention_difference(parts, right, wrong)
    if not found:
        found = [f"{subject} {text}" for text in relations(wrong, right, _known(evidence, names, fault, right))]
    own = {"its input": np.asarray(inputs[0])} if inputs else {}
    return found or [f"it {text}" for text in added_relations(wrong, right, own)]


def _faulty_array(fault: Fault, evidence: Evidence, names: Mapping[str, str]) -> tuple[Array | None, Array | None, str]:
    """The first wrong array, the right one, and its description; no arrays if shapes differ."""
    path = next((path for path, name in names.items() if name == fault.feeds), "") if fault.feeds else fault.candidate
    if path not in evidence.port or path not in evidence.answers:
        return None, None, ""
    own, expected = evidence.port[path], evidence.answers[path]
    given = leaves(list(own.inputs))
    pairs = [(given[at], right) for at, right in expected.inputs.items() if at < len(given)]
    for c, r in pairs if fault.feeds else zip(*map(expected.cropped, (own.outputs, expected.outputs)), strict=False):
        wrong, right = np.asarray(c), np.asarray(r)
        if wrong.shape != right.shape:
            return None, None, ""
        if not same(wrong, right):
            return wrong, right, f"what {fault.feeds} is fed" if fault.feeds else "its output"
    return None, None, ""


def _known(evidence: Evidence, names: Mapping[str, str], fault: Fault, right: Array) -> dict[str, Array]:
    """Every input and output of the reference of this size, reshaped, by description; those nearest to the fault
    first."""
    found: dict[str, Array] = {}
    near = {path for path, call in evidence.port.items() if call.caller == fault.candidate} | {fault.candidate}
    ordered = sorted(evidence.answers.items(), key=lambda item: item[0] not in near)
    for what in ("output", "input"):
        for path, call in ((path, call) for path, call in ordered if not path or path in names):
            for leaf in call.outputs if what == "output" else call.given:
                array = np.asarray(leaf)
                if array.size == right.size and array.shape[:1] == right.shape[:1]:
                    found.setdefault(f"the {what} of {names.get(path, 'the network')}", array.reshape(right.shape))
    return found


def known_bugs(probe: Probe, mutants: Sequence[Mutant], fault: Fault, evidence: Evidence) -> list[str]:
    """Names of the mutants that explain ``fault``, if the rebuilt port does not have it."""
    port, layers = evidence.port, layers_by_path(probe.model)
    concerned = [path for path, call in port.items() if path == fault.candidate or _fed_by(path, call, fault)]

    def reproduced() -> bool:
        made = _run(probe, fault.candidate, evidence)
        return made is not None and bool(concerned) and all(_same(made.get(path), port[path]) for path in concerned)

    with jax.enable_x64(True):
        if reproduced():
            return []
    found = []
    for mutant in mutants:
        if mutant.equivalent or mutant.gate not in LOGIC_GATES:
            continue
        for place in mutant.places(layers):
            if not _explains(mutant, tapped(place, probe.layers), fault.candidate):
                continue
            layer = layers[place] if place else probe.model
            with jax.enable_x64(True), mutant.change(layer, probe.model), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="You are using a softmax over axis")
                if reproduced():
                    found.append(mutant.name)
                    break
    return found


def _run(probe: Probe, path: str, evidence: Evidence) -> Calls | None:
    try:
        if path:
            return probe.isolate_layer(path, evidence.port[path], evidence.answers)
        output, calls = probe.isolate(evidence.inputs, evidence.answers)
        return {**calls, "": Call((), output)}
    except (IncompleteError, ValueError, TypeError, RuntimeError, KeyError):
        return None


def _explains(mutant: Mutant, place: str, site: str) -> bool:
    """Whether a mutant at ``place`` can explain a fault at ``site``."""
    return place == site or (mutant.shares and (not place or site.startswith(f"{place}/")))


def _fed_by(path: str, call: Call, fault: Fault) -> bool:
    """Whether the faulty layer feeds this layer, so that its call shows the fault."""
    return bool(path) and call.caller == fault.candidate


def _same(made: Call | None, seen: Call) -> bool:
    if made is None:
        return False
    ours, theirs = (leaves([*call.inputs, *call.outputs]) for call in (made, seen))
    return len(ours) == len(theirs) and all(_close(a, b) for a, b in zip(ours, theirs, strict=True))


def _close(made: Any, seen: Any) -> bool:
    made, seen = np.asarray(made), np.asarray(seen)
    return made.shape == seen.shape and relative_l2(made, seen) <= LOGIC
