"""Gate bfloat16 (B'): compare the port under Keras's mixed bfloat16 policy with PyTorch under autocast.

As in float32 (B), every layer is fed the reference's inputs, here rounded to bfloat16, and both sides' errors are
relative to float64. The port's error may be a fixed multiple of the reference's, which counts as at least the rounding
error of bfloat16.

A softmax computed in bfloat16 moves results by less than that, and XLA may compute it in float32 on one device and not
on another. In a family's own port, it is found in the traced program: autocast computes it in float32. A user's port
may have Keras's own softmax, which computes in the policy's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import ml_dtypes
import numpy as np

from wdport.compare.calls import Calls, Case, Outputs, answers_of, cast, layer_of
from wdport.compare.comparison import Comparison
from wdport.compare.findings import GATES, Gate, Measure, fact, notice
from wdport.compare.gate_bounds import NUMERICS, UNIT_ROUNDOFF_16
from wdport.compare.layer_errors import InPort
from wdport.compare.measure import ErrorPair
from wdport.compare.probe import Probe, stateless_call, tensors
from wdport.compare.programs import TRACING, narrow_softmaxes
from wdport.compare.rounding_errors import RoundingErrors
from wdport.conversion.prepare import Prepared
from wdport.families.roles import KeptByKeras
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_runtime import variable_values
from wdport.parity.gates_of_uses import NetworkInUse, use_gates
from wdport.recording.errors import one_line
from wdport.recording.float64 import lifted
from wdport.recording.observation import changed_tokens
from wdport.recording.runs import isolate, record, run

Ran = tuple[Outputs, Calls]
"""The outputs of a run of the reference, and every call in it."""

POLICY = "mixed_bfloat16"


def bfloat16_gate(
    prepared: Prepared, comparison: Comparison, cases: Sequence[Case], in_use: bool = False
) -> tuple[Gate, dict[str, float]]:
    """Run cases with the current weights; return the gate and the largest ratios by the reference's names. If there is
    a network ``in_use``, it is compared as a whole, in the first case."""
    taps, model = comparison.alignment.always, _model(prepared, comparison)
    probe = Probe(model, {layer_of(tap.candidate) for tap in taps})
    ratios: dict[tuple[str, str], float] = {}
    for case in cases:
        try:
            errors = _errors(comparison, probe, case)
        except _NotRun as error:
            return GATES["B'"].gate(0, 0, (), (notice(str(error)),)), {}
        for part, pairs in (("", errors.alone), (" inputs", errors.inputs)):
            for name, pair in pairs.items():
                ratios[name, part] = max(pair.ratio, ratios.get((name, part), 0.0))
    network = use_gates().network(prepared.family, prepared.config, {POLICY: model}, full=False) if in_use else None
    if network is not None:
        ratios[network.name, ""] = _whole(comparison, network, cases[0]).ratio
    largest: dict[str, float] = {}
    for (name, _), ratio in ratios.items():
        largest[name] = max(ratio, largest.get(name, 0.0))
    inputs = comparison.signature.in_port(cast(comparison.reference.inputs(cases[0]), np.float32))
    narrow = [] if isinstance(prepared.family, KeptByKeras) else narrow_layers(model, inputs)
    return _gate(ratios, len(taps) + len(comparison.outputs) + in_use, narrow), largest


def narrow_layers(model: KerasModel, inputs: tuple[Array, ...]) -> list[str]:
    """The paths of the layers of a model that compute a softmax in 16 bits."""

    def call(trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Array, ...]) -> list[jax.Array]:
        return tensors(stateless_call(model, trainable, fixed, inputs)[0])

    with TRACING:
        return narrow_softmaxes(jax.make_jaxpr(call)(*variable_values(model), inputs).jaxpr)


class _NotRun(Exception):
    """The user's reference does not run under autocast."""


def _gate(ratios: Mapping[tuple[str, str], float], expected: int, narrow: Sequence[str]) -> Gate:
    """The gate for the ratios of layers and of their inputs, by name and part, and the paths of layers with a
    ``narrow`` softmax."""
    facts = tuple(fact(f"{path or 'the model'} computes a softmax in bfloat16, and PyTorch in float32; cast its input",
                       path) for path in narrow)  # fmt: skip
    # A separate bound: a policy's bound on float32 does not apply to bfloat16.
    measures = tuple(Measure(name, "bfloat16", ratio, "bfloat16", NUMERICS, part)
                     for (name, part), ratio in ratios.items())  # fmt: skip
    return GATES["B'"].gate(len({name for name, _ in ratios}), expected, measures, facts)


def _whole(comparison: Comparison, network: NetworkInUse, case: Case) -> ErrorPair:
    """The errors of the network in use and of the whole reference."""
    import torch

    modules = comparison.modules
    inputs = cast(comparison.reference.inputs(case), np.float32)
    narrow = comparison.signature.in_port(inputs)
    with torch.autocast("cpu", torch.bfloat16):
        low = run(modules["float32"], inputs)
    with lifted():
        high = run(modules["float64"], cast(inputs, np.float64))
    with jax.default_matmul_precision("highest"):
        output = np.asarray(network.predict(POLICY, narrow)).astype(np.float32)
    sides = [comparison.outputs_in_port(side, [""] * len(low), [output]) for side in (low, high)]
    pair = ErrorPair(unit=UNIT_ROUNDOFF_16)
    pair.add(output, sides[0][0], sides[1][0])
    return pair


def _errors(comparison: Comparison, probe: Probe, case: Case) -> RoundingErrors:
    """The errors of one case, of the isolated layers and of what they are fed."""
    taps = comparison.alignment.always
    inputs = comparison.reference.inputs(case)
    single, (reference, truth), names, answers = _reference_calls(comparison, case, inputs)
    narrow = comparison.signature.in_port(single)
    with jax.default_matmul_precision("highest"):
        output_shapes, shapes = probe.shapes(narrow)
        into = InPort(taps, shapes)
        outputs, port = probe.isolate(narrow, into(answers))
    errors = RoundingErrors(UNIT_ROUNDOFF_16)
    sides = [comparison.outputs_in_port(side[0], names, output_shapes) for side in (reference, truth)]
    for index, name in enumerate(comparison.outputs if all(sides) else ()):
        errors.add_isolated(name, np.asarray(outputs[index]), sides[0][index], sides[1][index])
    theirs, exact = (into(calls) for _, calls in (reference, truth))
    for tap in taps:
        if all(tap.candidate in side for side in (port, theirs, exact)):
            calls = (port[tap.candidate], theirs[tap.candidate], exact[tap.candidate])
            errors.add_tap(tap, *calls, tap.reference in comparison.arranged)
    return errors


def _reference_calls(
    comparison: Comparison, case: Case, inputs: tuple[Array, ...]
) -> tuple[tuple[Array, ...], tuple[Ran, Ran], list[str], Calls]:
    """The inputs in float32, the reference's outputs and isolated calls in bfloat16 and in float64, the names of the
    outputs, and the answers."""
    import torch

    modules = comparison.modules
    names = [tap.reference for tap in comparison.alignment.always]
    output_names: list[str] = []
    with lifted():
        _, calls = record(modules["float64"], inputs, output_names=output_names)
    answers = answers_of(case, {name: calls[name] for name in names if name in calls})
    answers = changed_tokens(answers, _as_bfloat16)
    single = cast(inputs, np.float32)
    # Like Keras's policy, autocast keeps the weights in float32.
    try:
        with torch.autocast("cpu", torch.bfloat16):
            low = isolate(modules["float32"], single, answers)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        # One of a reference that comes with wdport is a bug, and keeps its traceback.
        if not comparison.reference.code:
            raise
        text = f"not compared: the reference does not run under torch.autocast: {one_line(error)}"
        raise _NotRun(text) from error
    with lifted():
        wide = {name: cast(call, np.float64) for name, call in answers.items()}
        high = isolate(modules["float64"], cast(single, np.float64), wide)
    return single, (low, high), output_names, answers


def _as_bfloat16(array: Array) -> Array:
    """The nearest values that bfloat16 represents.

    Keras rounds what enters a layer, and autocast only what enters some operations, not softmax or norms: rounded large
    logits move softmax by more than the layer's own rounding.
    """
    return array.astype(ml_dtypes.bfloat16).astype(array.dtype)


def _model(prepared: Prepared, comparison: Comparison) -> KerasModel:
    """The port under the policy, with the float32 port's weights, which stay in float32."""
    model = prepared.family.build(prepared.config, POLICY)
    for mine, theirs in zip(model.weights, comparison.candidate.models["float32"].weights, strict=True):
        mine.assign(theirs.value)
    return model
