"""Compare both sides' results of one case in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from wdport.compare.calls import Calls, Outputs, leaves
from wdport.compare.differing_cases import SAMPLES
from wdport.compare.findings import Finding, fact
from wdport.compare.rounding_errors import RoundingErrors
from wdport.compare.sides import Expected
from wdport.models.interface import Array, Port
from wdport.recording.observation import Single
from wdport.recording.sample_rows import by_sample


def add_single(
    errors: RoundingErrors, expected: Expected, port: tuple[Outputs, Outputs, Calls], divided: Port | None,
    arranged: bool,
) -> int:  # fmt: skip
    """Add the float32 errors of the outputs and of every isolated layer; returns how many could be compared.

    ``port`` are its outputs, and its outputs and calls in isolation; the first output is ``divided`` into parts, if
    given. With ``arranged`` layers, those after them get their order.
    """
    single, (outputs, isolated_outputs, calls) = expected.observation.single, port
    assert single is not None
    reference, truth, *isolated_references = (
        expected.in_port(side, outputs)
        for side in (*single.outputs, *(isolated[0] for isolated in single.isolated or ()))
    )
    if reference:
        # With a gain, isolated outputs differ if one side computes them by a layer, and the other by a function of an
        # earlier layer's output: only values of three axes grow.
        isolated = (isolated_outputs, *isolated_references) if expected.case.gain == 1.0 else None
        errors.add_outputs(expected.sides.outputs, (outputs, reference, truth), isolated)
        if divided is not None:
            errors.add_parts(divided, outputs[0], reference[0], truth[0])
    return len(outputs) * bool(reference) + _add_taps(errors, expected, calls, single, arranged)


def _add_taps(errors: RoundingErrors, expected: Expected, port: Calls, single: Single, arranged: bool) -> int:
    """Add the float32 errors of isolated layers; returns how many could be compared."""
    references, truths = (expected.into(calls) for _, calls in single.isolated or ())
    return sum(
        errors.add_tap(tap, port[path], references[path], truths[path], arranged)
        for tap in expected.taps
        if all((path := tap.candidate) in side for side in (port, references, truths))
    )


def not_finite(expected: Expected, outputs: Outputs) -> Iterator[Finding]:
    """Outputs for extreme values that are finite in float32 in the reference, and not in the port: float32 cannot hold
    a number of the port's code, or something that it computes."""
    single, sides = expected.observation.single, expected.sides
    assert single is not None
    reference = expected.in_port(single.outputs[0], outputs)
    step_by_step: Outputs | None = None
    for index, (name, ours, theirs) in enumerate(zip(sides.outputs, outputs, reference, strict=False)):
        lost = np.isfinite(theirs) & ~np.isfinite(ours)
        if not lost.any():
            continue
        if step_by_step is None:
            step_by_step = sides.port.eagerly(expected.single_inputs, "float32")
        compiled = bool(np.isfinite(step_by_step[index])[np.isfinite(theirs)].all())
        where, samples = _first_lost(expected), _samples(expected, lost)
        text = f"{name} is not finite in float32{where} in {samples}, where the reference's is"
        # Such as in a softmax whose scores XLA computes twice, with other roundings.
        cause = "; the cause is how XLA compiles it: run step by step, it is finite" if compiled else ""
        yield fact(f"{text}{cause}", name, "notice" if compiled else "fact")


def _samples(expected: Expected, lost: Array) -> str:
    """The kinds of the samples in which values are lost."""
    case, rows = expected.case, by_sample(lost, expected.case.samples)
    kinds: Sequence[str] = case.extremes
    if rows is not None:
        kinds = [case.extremes[index] for index, row in enumerate(rows) if row.any()]
    words = ", ".join(dict.fromkeys(SAMPLES[kind] for kind in kinds if kind))
    return f"samples of {words}" if words else "an ordinary sample beside extreme ones"


def _first_lost(expected: Expected) -> str:
    """The first layer that is fed or returns numbers that are not finite, though it is fed what the reference's is,
    unless the code around it computes something else."""
    _, calls = expected.sides.port.isolate(*expected.single_isolation)
    for tap in expected.taps:
        call = calls[tap.candidate]
        for what, side in (("the input of ", call.inputs), ("", call.outputs)):
            if not all(np.isfinite(leaf).all() for leaf in leaves([*side])):
                return f", from {what}{tap.candidate} on,"
    return ""
