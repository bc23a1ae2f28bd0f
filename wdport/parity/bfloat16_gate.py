"""Gate bfloat16 (B'): compare the port under Keras's mixed bfloat16 policy with PyTorch under autocast.

As in float32 (B), every layer is fed the reference's inputs and both sides' errors are relative to float64. The port's
error may be a fixed multiple of the reference's, which counts as at least the rounding error of bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np

from wdport.compare.bounds import NUMERICS, UNIT_ROUNDOFF_16
from wdport.compare.calls import Calls, Case, Outputs, cast, layer_of
from wdport.compare.comparison import Comparison
from wdport.compare.errors import InPort
from wdport.compare.findings import Gate, Measure
from wdport.compare.glossary import GATES
from wdport.compare.measure import ErrorPair
from wdport.compare.probe import Probe
from wdport.conversion.prepare import Prepared
from wdport.model import Array, KerasModel
from wdport.recorder import isolate, lifted, record

if TYPE_CHECKING:
    import torch

Ran = tuple[Outputs, Calls]
"""The outputs of a run of the reference, and every call in it."""

POLICY = "mixed_bfloat16"


def bfloat16_gate(prepared: Prepared, comparison: Comparison, case: Case) -> tuple[Gate, dict[str, float]]:
    """Run one case with the current weights; return the gate and the ratios by the reference's names."""
    taps = comparison.alignment.taps
    inputs = comparison.signature.make(case.seed, case.batch, case.scale)
    single, (reference, truth), names = _reference_calls(comparison, inputs)
    narrow = comparison.signature.in_port(single)
    probe = Probe(_model(prepared, comparison), {layer_of(tap.candidate) for tap in taps})
    with jax.default_matmul_precision("highest"):
        wanted, shapes = probe.shapes(narrow)
        into = InPort(taps, shapes)
        outputs, port = probe.isolate(narrow, into({name: cast(call, np.float32) for name, call in truth[1].items()}))
    sides = [comparison.outputs_in_port(made, names, wanted) for made in (reference[0], truth[0])]
    pairs = {name: _pair(outputs[at : at + 1], *(side[at : at + 1] for side in sides))
             for at, name in enumerate(comparison.outputs)}  # fmt: skip
    theirs, exact = (into(calls) for _, calls in (reference, truth))
    for tap in taps:
        if all(tap.candidate in side for side in (port, theirs, exact)):
            calls = (port[tap.candidate], theirs[tap.candidate], exact[tap.candidate])
            pairs[tap.reference] = _pair(*(call.outputs for call in calls))
    ratios = {name: max(pair.rms_ratio, pair.max_ratio) for name, pair in pairs.items() if pair.count}
    return _gate(ratios, len(taps) + len(comparison.outputs)), ratios


def _reference_calls(
    comparison: Comparison, inputs: tuple[Array, ...]
) -> tuple[tuple[Array, ...], tuple[Ran, Ran], list[str]]:
    """The inputs in float32, the reference's outputs and isolated calls in bfloat16 and in float64, and the names of
    the outputs."""
    import torch

    modules: Mapping[str, torch.nn.Module] = comparison.modules
    names = [tap.reference for tap in comparison.alignment.taps]
    told: list[str] = []
    with lifted():
        _, calls = record(modules["float64"], inputs, output_names=told)
    answers = {name: cast(calls[name], np.float32) for name in names if name in calls}
    single = cast(inputs, np.float32)
    with torch.autocast("cpu", torch.bfloat16):
        low = isolate(modules["float32"], single, answers)
    with lifted():
        wide = {name: cast(call, np.float64) for name, call in answers.items()}
        high = isolate(modules["float64"], cast(single, np.float64), wide)
    return single, (low, high), told


def _model(prepared: Prepared, comparison: Comparison) -> KerasModel:
    """The port under the policy, with the float32 port's weights, which stay in float32."""
    model = prepared.family.build(prepared.config, POLICY)
    for mine, theirs in zip(model.weights, comparison.candidate.models["float32"].weights, strict=True):
        mine.assign(theirs.value)
    return model


def _pair(ours: Outputs, theirs: Outputs, exact: Outputs) -> ErrorPair:
    """The errors of both sides; empty, and so not compared, if count or shapes differ."""
    pair = ErrorPair(unit=UNIT_ROUNDOFF_16)
    try:
        for c, r, t in zip(ours, theirs, exact, strict=True):
            pair.add(np.asarray(c).astype(np.float32), r, t)
    except ValueError:
        return ErrorPair()
    return pair


def _gate(ratios: dict[str, float], expected: int) -> Gate:
    # A bound of its own name: a policy's bound on float32 says nothing about bfloat16.
    measures = tuple(Measure(name, "bfloat16", ratio, "bfloat16", NUMERICS) for name, ratio in ratios.items())
    return GATES["B'"].gate(len(ratios), expected, measures)
