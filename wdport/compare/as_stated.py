"""Where the reference's code states float64, find what the port's code states to be float32: both are float64 in the
float64 comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wdport.compare.activities import spent_on
from wdport.compare.calls import Case, layer_of
from wdport.compare.candidate import PortSide
from wdport.compare.layer_errors import output_errors, tap_errors
from wdport.compare.reference import translated
from wdport.compare.results import TapResult
from wdport.compare.sides import ComparedSides
from wdport.recording.calls import cast
from wdport.recording.stated_precision import run_as_stated, stated_float64


def use_as_stated(sides: ComparedSides, case: Case, taps: Mapping[str, TapResult], logic: float) -> set[str]:
    """Run both sides in a case with the dtypes that their code states, and add the errors to ``taps``; returns the
    layers and outputs that are off. ``logic`` is the bound of float64 errors."""
    if not (modules := sides.modules):
        return set()
    single = cast(sides.reference.inputs(case), np.float32)
    with translated(), spent_on("running PyTorch"):
        stated = stated_float64(modules["float32"], single, {layer_of(tap) for tap in taps})
    if not stated:
        return set()
    sides.candidate.use(case.random_biases)
    expected = sides.observe_again(case)  # its weights are those of the case
    port = PortSide(sides.candidate, sides.alignment.watched, as_stated=True)
    outputs, calls = port.isolate("float64", expected.inputs, expected.calls, expected.doubtful)
    errors = {(tap.reference, part): error for tap in expected.taps if (pair := tap_errors(tap, calls, expected.calls))
              for part, error in zip(("fed", "made"), pair, strict=True)}  # fmt: skip
    running = port.run("float64", "whole", expected.inputs)
    with translated(), spent_on("running PyTorch"):
        rounded = run_as_stated(modules, expected.observation.inputs)
    mirrored = expected.in_port(rounded, running)
    right = expected.in_port(expected.observation.outputs, outputs)
    if mirrored and max(output_errors(running, mirrored), default=0.0) <= logic:
        stated = {}  # the port rounds to float32 where the reference does
    if right:
        output = zip(sides.outputs, output_errors(outputs, right), strict=True)
        errors |= {(name, "made"): error for name, error in output}
    differing = set()
    for (name, part), both in stated.items():
        for subject in [name] if name else sides.outputs:
            if _add_stated(sides, taps.get(subject), part, errors.get((subject, part), 0.0), both, logic):
                differing.add(subject)
    if differing and right:
        for name, error in zip(sides.outputs, output_errors(running, right), strict=True):
            taps[name].cumulative = max(taps[name].cumulative, error)
    return differing


def _add_stated(
    sides: ComparedSides, measured: TapResult | None, part: str, error: float, both: bool, logic: float
) -> bool:
    """Add what a layer, or its input, is off by where the port's code states float32 and the reference's float64; if
    that states float32 as well, ``both``, this may be what the port's is. Returns whether it is off."""
    if measured is None or error <= logic or not max(measured.inputs, measured.isolated) <= logic:
        return False
    if both:
        what = f"what {measured.reference} is fed" if part == "fed" else measured.reference
        text = f"{what} is off by {error:.1e} in float64 by a float32 that the port's code states; the reference's"
        sides.find(f"{text} states float64 and float32 there", measured.reference, "notice")
        return False
    if part == "fed":
        measured.inputs = error
    else:
        measured.isolated = measured.cumulative = error
    return True
