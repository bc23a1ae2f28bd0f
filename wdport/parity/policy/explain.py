"""Explain the failure of one gate or one layer of a verdict, as lines of a test's message."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from wdport.compare.calls import layer_of
from wdport.compare.findings import OUTPUT, Gate, by_subject, label
from wdport.parity.reports.phrases import claim, place, probable, worst
from wdport.parity.verdict import TapResult, Verdict

SHOWN = 10
"""Maximum number of a gate's findings in a test's message."""


@dataclass(frozen=True)
class ItemOutcome:
    """``faults`` is empty if the test passes; ``waived`` states until when and why a faulty layer may pass,
    ``left_out`` why a layer is compared only by its parts."""

    faults: tuple[str, ...] = ()
    waived: str = ""
    left_out: str = ""


def gate_outcome(verdict: Verdict, name: str) -> ItemOutcome:
    """The outcome of a whole gate; a gate that was not run or is incomplete is a fault."""
    gate = _find(verdict, name)
    if gate is None:
        return ItemOutcome((f"{label(name)} was not run",))
    return ItemOutcome(() if gate.passed else tuple(_lines(gate)))


def verdict_outcome(verdict: Verdict, layers: Collection[str]) -> ItemOutcome:
    """The outcome of all gates; every compared layer must be among ``layers``, those with tests."""
    lines = [line for gate in verdict.gates if gate_outcome(verdict, gate.name).faults
             for line in _lines(gate)]  # fmt: skip
    lines += [f"{tap.reference} was compared and has no test" for tap in verdict.taps if _layer(tap) not in layers]
    if verdict and verdict.complete and not lines:
        return ItemOutcome()
    head = "compared layers have no test" if verdict else claim(verdict)
    faulty = [
        f"faulty: {'; '.join(filter(None, (place(fault), probable(verdict, fault))))}" for fault in verdict.faults
    ]
    return ItemOutcome((head, *_first(faulty), *lines))


def layer_outcome(verdict: Verdict, letter: str, layer: str) -> ItemOutcome:
    """The outcome of one layer at float64 (A) or float32 (B), in all of its calls; ``output`` stands for all outputs.

    A layer that was not compared, or that preflight (0) has findings on, is a fault; no waiver changes that.
    """
    gate, preflight = _find(verdict, letter), _find(verdict, "0")
    if gate is None or preflight is None:
        return ItemOutcome((f"{label(letter if gate is None else '0')} is not in the verdict: nothing was compared",))
    taps = [tap for tap in verdict.taps if _layer(tap) == layer]
    if not taps and layer in verdict.left_out:
        return ItemOutcome(left_out=verdict.left_out[layer])
    if not taps:
        return ItemOutcome((f"{layer} is not in the verdict: nothing was compared",))
    outcomes = [_tap_outcome(verdict, gate, preflight, tap) for tap in taps]
    faults = tuple(line for one in outcomes for line in one.faults)
    return ItemOutcome(faults, "" if faults else next((one.waived for one in outcomes if one.waived), ""))


def _tap_outcome(verdict: Verdict, gate: Gate, preflight: Gate, tap: TapResult) -> ItemOutcome:
    """The outcome of one call of a layer: its errors, the bound, and the findings of the gate and of preflight."""
    name, numbers = tap.reference, _numbers(tap, gate.name)
    about = by_subject([*preflight.findings, *gate.findings]).get(name, [])
    sentences = [str(finding) for finding in about if not finding.notice]
    # Zeros are the initial values of a tap that no case reached.
    if not sentences and not verdict.complete and not any(numbers.values()):
        sentences = [f"{name} shows no error at all, in a run that did not compare everything"]
    if not sentences:
        return ItemOutcome((), next((finding.detail for finding in about if finding.kind == "waived"), ""))
    what = "float64 error" if gate.name == "A" else "float32 error over the reference's own"
    bound = "" if gate.bound is None else f"; bound {gate.bound:g}"
    head = f"{gate.title}: {name} (port: {tap.candidate or 'its output'})"
    errors = ", ".join(f"{value:.2g} {quantity}" for quantity, value in numbers.items())
    return ItemOutcome((head, *dict.fromkeys(sentences), f"{what}: {errors}{bound}"))


def _layer(tap: TapResult) -> str:
    """The name of a tap's test: its layer, regardless of the call, or "output"."""
    return layer_of(tap.reference) if tap.candidate else OUTPUT


def _find(verdict: Verdict, name: str) -> Gate | None:
    return next((gate for gate in verdict.gates if gate.name == name), None)


def _lines(gate: Gate) -> list[str]:
    head = f"{gate.title}: {gate.compared} of {gate.expected} compared"
    if largest := worst(gate):
        head += f"; {largest}"
    return [head, *_first([f"  {finding}" for finding in gate.findings])]


def _first(lines: list[str]) -> list[str]:
    """The first lines and the number of the others; every faulty layer has its own test."""
    return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"  and {len(lines) - SHOWN} more"]


def _numbers(tap: TapResult, gate: str) -> dict[str, float]:
    if gate == "A":
        return {"isolated": tap.isolated, "in its inputs": tap.inputs, "within the network": tap.cumulative}
    return {"in the mean": tap.rms_ratio, "at the worst value": tap.max_ratio, "in its inputs": tap.inputs_ratio}
