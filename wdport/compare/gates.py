"""Gates float64 and float32 of a comparison."""

from __future__ import annotations

from wdport.compare.comparison import Comparison
from wdport.compare.findings import ALONE, FED, GATES, OUTPUT, RUNNING, Finding, Gate, Measure, fact, measure, notice
from wdport.compare.gate_bounds import FLOAT32_SHARE
from wdport.compare.results import TapResult
from wdport.compare.rounding_errors import FED_INPUTS, PARTS, WHOLE

EAGER = "output, eager"
"""The name of the outputs of a port that is run eagerly as well."""


def float64_gate(comparison: Comparison) -> Gate:
    """Gate float64 (A): every layer, fed the reference's input, and the whole network."""
    measures = tuple(reading for tap in comparison.taps.values() for reading in float64_measures(tap))
    silent = [name for name in comparison.taps if name != EAGER and comparison.runs[name] < len(comparison.probes)]
    facts = tuple(fact(f"{name} was not compared in every case", name, "missing") for name in silent)
    expected = len(comparison.alignment.taps) + len(comparison.outputs) + (EAGER in comparison.taps)
    return GATES["A"].gate(len(comparison.taps) - len(silent), expected, measures, facts)


def float64_measures(tap: TapResult) -> list[Measure]:
    """The measurements of float64 (A) at one tap."""
    errors = ((FED, tap.inputs), (ALONE, tap.isolated), (RUNNING, tap.cumulative))
    shares = zip(("the reference", "the port"), tap.share32, strict=True)
    # Only the values show whether an error of this size is one of float32: a wrong epsilon may be as small.
    measures = [measure(tap.reference, kind, error, "logic", narrow=max(tap.share32) > FLOAT32_SHARE)
                for kind, error in errors]  # fmt: skip
    return measures + [measure(tap.reference, "narrow", share, "float32_share", side) for side, share in shares]


def float32_gate(comparison: Comparison) -> Gate:
    """Gate float32 (B): errors as multiples of the reference's own, per tap, and per part and channel of the output.

    Where an error comes from the order in which XLA adds numbers, the one with pairwise sums is judged.
    """
    networks, parts, orders = dict[str, float](), dict[tuple[str, int], float](), dict[str, Finding]()
    for group, name, measured, judged in comparison.float32_errors():
        if group == PARTS:
            parts[name] = max(parts.get(name, 0.0), judged.rms_ratio)
        elif group == WHOLE:
            networks[name] = max(networks.get(name, 0.0), judged.ratio)
        elif group == FED_INPUTS:
            comparison.taps[name].inputs_ratio = max(comparison.taps[name].inputs_ratio, judged.ratio)
        else:
            comparison.taps[name].add_float32(judged)
        if judged is not measured and group != PARTS:
            text = (
                f"{name}{group} has {measured.ratio:.1f} times the reference's float32 error; the cause is the order "
                f"in which XLA adds numbers on this device: with pairwise sums, it has {judged.ratio:.1f} times"
            )
            orders.setdefault(f"{name}{group}", notice(text, name))
    for name, pair in comparison.times.items():
        comparison.taps[name].add_float32(pair)
    compared = dict.fromkeys(name for errors in comparison.single.values() for name in errors.alone)
    measures = [reading for name in compared for reading in float32_measures(comparison.taps[name])]
    measures += [measure(name, "float32", ratio, "numerics", WHOLE) for name, ratio in networks.items()]
    measures += [measure(OUTPUT, "float32", ratio, "numerics", f" {part} feature {channel}")
                 for (part, channel), ratio in parts.items()]  # fmt: skip
    later = comparison.alignment.later - set(compared)  # calls that no case in float32 makes
    expected = len(comparison.alignment.taps) - len(later) + len(comparison.outputs)
    return GATES["B"].gate(len(compared), expected, tuple(measures), tuple(orders.values()))


def float32_measures(tap: TapResult) -> list[Measure]:
    """The measurements of float32 (B) at one tap: of its outputs and of its inputs."""
    return [
        measure(tap.reference, "float32", max(tap.rms_ratio, tap.max_ratio), "numerics"),
        measure(tap.reference, "float32", tap.inputs_ratio, "numerics", " inputs"),
    ]
