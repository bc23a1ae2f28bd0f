"""Probable causes: find what explains a faulty layer from its inputs and outputs and the reference's.

If variables of the file at that place are not those that the checkpoint gives, the fault is in the file's weights, and
it is stated how they differ. If they are, the fault is in the code, and the values are analysed (see
:mod:`wdport.compare.recognize` and :mod:`wdport.compare.relations`). Every statement holds to the logic bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from wdport.compare.activations import other_activation
from wdport.compare.calls import layer_of, leaves
from wdport.compare.comparison import Comparison
from wdport.compare.flatten_order import flatten_order
from wdport.compare.gate_bounds import FLOAT32_SHARE, LEAK, LOGIC, NUMERICS
from wdport.compare.measure import float32_share
from wdport.compare.probe import Probe
from wdport.compare.recognize import attention_difference, difference
from wdport.compare.relations import added_relations, numbers, relations, same, variable_relations
from wdport.compare.results import Evidence, Fault
from wdport.compare.taps import Tap
from wdport.compare.trials import Trial
from wdport.conversion.prepare import Prepared
from wdport.families.roles import KeptByKeras
from wdport.models.interface import Array
from wdport.models.keras_runtime import frozen_weights, variables_by_path
from wdport.parity.model_pair import Weights, correct_port

if TYPE_CHECKING:
    from wdport.porting.torch_run import TorchRun

MOST_PARTS = 6
"""Layers inside a faulty one that are searched for its queries, keys and values."""


def tapped(path: str, taps: Collection[str]) -> str:
    """The innermost of ``taps`` at or above a layer; "" if there is none."""
    while path and path not in taps:
        path = path.rpartition("/")[0]
    return path


MOST_TRIALS = 5
"""Number of faults, the first ones, whose causes are looked for by running a model again."""

FLOAT32 = ("computes in float32, whatever the dtype of its input; where PyTorch's code has `.float()`, cast to "
           "`keras.backend.result_type(x.dtype, 'float32')`")  # fmt: skip

AS_STATED = "the port's code states float32 where PyTorch's states float64; state no dtype there"

MOST_VARIABLES = 4
"""Variables of a layer whose wrong values are described."""


def probable_causes(
    prepared: Prepared, comparison: Comparison, weights: Weights, faults: Sequence[Fault]
) -> dict[str, tuple[str, ...]]:
    """Probable causes of faults, by the faulty layer's path: settings that differ, or else what the values show."""
    # With the checkpoint's weights, so that a fault in the converted file is not taken for one in the code.
    probe = Probe(correct_port(prepared, weights), comparison.alignment.watched, eager=True)
    names = {tap.candidate: tap.reference for tap in comparison.alignment.taps}
    after = {tap.candidate: tap.layout.after for tap in comparison.alignment.taps if tap.layout.after}
    run = cache(partial(_reference_run, comparison))
    custom = isinstance(prepared.family, KeptByKeras)
    right = {path: np.asarray(variable.value) for path, variable in variables_by_path(probe.model).items()}
    causes, stated = {}, stated_float32(comparison, faults)
    for index, fault in enumerate(faults):
        tried = index < MOST_TRIALS
        # From the most certain to the least: a stated setting, a change that makes the layer agree, then relations of
        # values, and a change of the reference that makes it compute what the port does.
        words = [stated[fault]] if fault in stated else []
        words = words or _settings_that_differ(comparison, fault)
        words = words or (_by_trial(comparison, probe, fault, custom) if tried else [])
        if not words and comparison.evidence is not None:
            words = wrong_variables(fault.candidate, names, weights.variables, right)
            words = words or told_by_values(fault, comparison.evidence, names, after)
        if not words and tried and LOGIC < fault.logic <= LEAK and fault.ratio <= NUMERICS:
            words = [FLOAT32] if _rounds(comparison, probe, fault, names) else []
        if not words and tried and comparison.evidence is not None and not fault.logic <= LOGIC:
            words = _by_change(run, fault, comparison.evidence, names)
        frozen = [] if fault.candidate else frozen_weights(probe.model)
        causes[fault.candidate] = (*frozen, *words)
    return causes


def stated_float32(comparison: Comparison, faults: Sequence[Fault]) -> dict[Fault, str]:
    """The faults that are a float32 that the port's code states, with the cause."""
    return {fault: AS_STATED for fault in faults if (fault.feeds or fault.reference) in comparison.as_stated}


def _settings_that_differ(comparison: Comparison, fault: Fault) -> list[str]:
    """The hyper-parameters that differ at a faulty layer, if the reference runs here."""
    tap = next((tap for tap in comparison.alignment.taps if tap.reference == fault.reference and not fault.feeds), None)
    if tap is None or not tap.kind:
        return []
    return [setting.text for setting in comparison.alignment.settings.at(layer_of(tap.reference))]


def _by_trial(comparison: Comparison, probe: Probe, fault: Fault, custom: bool) -> list[str]:
    """Changes that make a faulty layer agree: another order of a flattened input, an activation, a setting, an
    order of gates. Activations are tried in a user's own model (``custom``); in others the values show them."""
    tap = _tap(comparison, fault)
    if tap is None or (evidence := comparison.evidence) is None or tap.candidate not in evidence.port:
        return []
    call, expected = evidence.port[tap.candidate], evidence.answers.get(tap.candidate)
    if fault.feeds or expected is None:
        return flatten_order(tap, call, evidence.answers, comparison.alignment.taps)
    trial = Trial(probe, tap, evidence.inputs, evidence.port, evidence.answers)
    return (other_activation(tap, call, expected) if custom else []) or trial.told(
        comparison.alignment.modules.get(layer_of(tap.reference))
    )


def _tap(comparison: Comparison, fault: Fault) -> Tap | None:
    """The faulty tap, or the one that is fed wrongly."""
    return next((tap for tap in comparison.alignment.taps if tap.reference == (fault.feeds or fault.reference)), None)


def _rounds(comparison: Comparison, probe: Probe, fault: Fault, names: Mapping[str, str]) -> bool:
    """Whether what is wrong holds float32 values where the reference's are wider, or a layer rounds to them inside."""
    tap, evidence = _tap(comparison, fault), comparison.evidence
    if evidence is None:
        return False
    wrong, right, _ = _faulty_array(fault, evidence, names)
    if wrong is not None and right is not None and float32_share(wrong) > FLOAT32_SHARE >= float32_share(right):
        return True
    if tap is None or fault.feeds or tap.candidate not in evidence.port:
        return False
    return Trial(probe, tap, evidence.inputs, evidence.port, evidence.answers).rounds()


def _reference_run(comparison: Comparison) -> TorchRun | None:
    """A run of the reference on the inputs of the evidence, with its graph; ``None`` if it does not run here."""
    reference, evidence = comparison.reference, comparison.evidence
    if evidence is None or not reference.modules:
        return None
    from wdport.porting.torch_run import run_torch

    reference.use(evidence.random_biases)
    # A model that runs may still have no graph, such as one of scripted code.
    with suppress(Exception):
        return run_torch(reference.code, reference.modules["float64"], evidence.torch_inputs)
    return None


def _by_change(
    traced: Callable[[], TorchRun | None], fault: Fault, evidence: Evidence, names: Mapping[str, str]
) -> list[str]:
    """One change of the reference's code around the layers that agree, with which it computes the port's value."""
    wrong, right, _ = _faulty_array(fault, evidence, names)
    if wrong is None or right is None or (run := traced()) is None:
        return []
    from wdport.porting.counterfactuals import mends, values_between

    site = evidence.answers.get(fault.candidate)
    inputs = site.given if site is not None and not fault.feeds else []
    others = [call.outputs for path, call in evidence.answers.items() if path not in ("", fault.candidate)]
    starts = [*inputs, *(array for outputs in others for array in outputs)]
    return mends(run, wrong, values_between(run, starts, right))


def wrong_variables(
    site: str, taps: Collection[str], held: Mapping[str, Array], right: Mapping[str, Array]
) -> list[str]:
    """How the variables of a faulty layer differ from those that the checkpoint gives, one sentence each.

    ``site`` is the layer's path, ``taps`` are those of all layers that are compared, ``held`` the file's variables by
    path, and ``right`` those of the rebuilt port.
    """
    paths = (path for path in right if path in held and tapped(path.rpartition("/")[0], taps) == site)
    pairs = ((path, held[path], right[path].astype(held[path].dtype)) for path in paths)
    wrong = [(path, array, value) for path, array, value in pairs if not np.array_equal(array, value)]
    sentences = []
    for path, array, value in wrong[:MOST_VARIABLES]:
        others = {f"the value of {name}": other for name, other in right.items() if name != path}
        sentences += [f"{path} {text}" for text in variable_relations(array, value, others)]
    return sentences


def told_by_values(
    fault: Fault, evidence: Evidence, names: Mapping[str, str], after: Mapping[str, str]
) -> list[str]:  # fmt: skip
    """Causes found from the values at the faulty place only; needs no model. ``after`` are the functions that layers
    of the port compute on their outputs, by path."""
    wrong, right, subject = _faulty_array(fault, evidence, names)
    if wrong is None or right is None:
        return []
    called = [path for path, call in evidence.port.items() if path and call.caller == fault.candidate]
    answers = [evidence.answers[path] for path in called if path in evidence.answers]
    parts = [np.asarray(call.outputs[0]) for call in answers if call.outputs]
    site = evidence.answers.get(fault.candidate)  # the reference may not have run it
    inputs = site.given if site is not None and fault.candidate else []
    candidates = [*inputs, *parts] if fault.feeds or not fault.candidate else inputs
    causes = next((text for array in candidates if (text := difference(numbers(np.asarray(array)), right, wrong))), [])
    if not causes and right.ndim >= 3 and 3 <= len(parts) <= MOST_PARTS:
        causes = attention_difference(parts, right, wrong)
    if not causes:
        values = _reference_values(evidence, names, fault, right, after)
        causes = [f"{subject} {text}" for text in relations(wrong, right, values)]
    input_values = {"its input": np.asarray(inputs[0])} if inputs else {}
    return causes or [f"it {text}" for text in added_relations(wrong, right, input_values)]


def _faulty_array(fault: Fault, evidence: Evidence, names: Mapping[str, str]) -> tuple[Array | None, Array | None, str]:
    """The first wrong array, the right one, and its description; no arrays if shapes differ."""
    path = next((path for path, name in names.items() if name == fault.feeds), "") if fault.feeds else fault.candidate
    if path not in evidence.port or path not in evidence.answers:
        return None, None, ""
    call, expected = evidence.port[path], evidence.answers[path]
    inputs = leaves(list(call.inputs))
    pairs = [(inputs[index], right) for index, right in expected.inputs.items() if index < len(inputs)]
    outputs = zip(*map(expected.cropped, (call.outputs, expected.outputs)), strict=False)
    for index, (c, r) in enumerate(pairs if fault.feeds else outputs):
        wrong, right = numbers(np.asarray(c)), numbers(np.asarray(r))
        if wrong.shape != right.shape:
            return None, None, ""
        if not same(wrong, right):
            output = "its output" if path or len(call.outputs) == 1 else f"its output {index}"
            return wrong, right, f"what {fault.feeds} is fed" if fault.feeds else output
    return None, None, ""


def _reference_values(
    evidence: Evidence, names: Mapping[str, str], fault: Fault, right: Array, after: Mapping[str, str]
) -> dict[str, Array]:  # fmt: skip
    """Every input and output of the reference of this size, reshaped, by description; those nearest to the fault
    first."""
    arrays: dict[str, Array] = {}
    # Nearest first: many arrays may fit a relation, and a neighbour is the most likely cause.
    near = {path for path, call in evidence.port.items() if call.caller == fault.candidate} | {fault.candidate}
    ordered = sorted(evidence.answers.items(), key=lambda item: item[0] not in near)
    for what in ("output", "input"):
        for path, call in ((path, call) for path, call in ordered if not path or path in names):
            values = call.outputs if what == "output" else call.given
            for index, leaf in enumerate(values):
                array, number = np.asarray(leaf), "" if path or len(values) == 1 else f" {index}"
                if array.size == right.size and array.shape[:1] == right.shape[:1]:
                    name = f"the {what}{number} of {names.get(path, 'the network')}"
                    # The table states it, and the reference may compute another.
                    name += f", with {after[path]} after it" if what == "output" and path in after else ""
                    arrays.setdefault(name, array.reshape(right.shape))
    return arrays
