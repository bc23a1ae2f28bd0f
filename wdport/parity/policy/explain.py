"""A verdict and one gate, or one tap of it, in; what is wrong there out, as lines of a test's message."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from wdport.compare.findings import Gate, by_subject
from wdport.parity.verdict import TapResult, Verdict


@dataclass(frozen=True)
class Outcome:
    """``faults`` is empty where all is well; ``waived`` says until when and why a faulty tap may pass."""

    faults: tuple[str, ...] = ()
    waived: str = ""


def gate_outcome(verdict: Verdict, name: str) -> Outcome:
    """One gate as a whole; one that was not run, or not wholly compared, is at fault."""
    gate = _find(verdict, name)
    if gate is None:
        return Outcome((f"gate {name} was not run",))
    return Outcome(() if gate.passed else tuple(_lines(gate)))


def verdict_outcome(verdict: Verdict, names: Collection[str]) -> Outcome:
    """All gates; and every tap that was compared must be among ``names``, those that have tests."""
    lines = [line for gate in verdict.gates if gate_outcome(verdict, gate.name).faults
             for line in _lines(gate)]  # fmt: skip
    lines += [f"{tap.reference} was compared and has no test" for tap in verdict.taps if tap.reference not in names]
    if verdict and verdict.complete and not lines:
        return Outcome()
    return Outcome(("the port does not compute what the checkpoint does, or not everything was compared", *lines))


def tap_outcome(verdict: Verdict, gate_name: str, name: str) -> Outcome:
    """One tap at gate A or B: its errors, the bound, and what the gate and the preflight gate say of it.

    A tap that was not compared, or that gate 0 says something against, is at fault; no waiver changes that.
    """
    gate, preflight = _find(verdict, gate_name), _find(verdict, "0")
    tap = next((each for each in verdict.taps if each.reference == name), None)
    if gate is None or preflight is None or tap is None:
        lacks = f"gate {gate_name}" if gate is None else ("gate 0" if preflight is None else name)
        return Outcome((f"{lacks} is not in the verdict: nothing was compared",))
    numbers = _numbers(tap, gate_name)
    about = by_subject([*preflight.findings, *gate.findings]).get(name, [])
    said = [str(finding) for finding in about if not finding.notice]
    if not said and not verdict.complete and not any(numbers.values()):
        said = [f"{name} shows no error at all, in a run that did not compare everything"]
    if not said:
        return Outcome((), next((finding.detail for finding in about if finding.kind == "waived"), ""))
    what = "float64 error" if gate_name == "A" else "float32 error over the reference's own"
    bound = "" if gate.bound is None else f"; bound {gate.bound:g}"
    head = f"gate {gate.name}, {gate.title}: {name} (port: {tap.candidate or 'its output'})"
    errors = ", ".join(f"{value:.2g} {how}" for how, value in numbers.items())
    return Outcome((head, *dict.fromkeys(said), f"{what}: {errors}{bound}"))


def _find(verdict: Verdict, name: str) -> Gate | None:
    return next((gate for gate in verdict.gates if gate.name == name), None)


def _lines(gate: Gate) -> list[str]:
    head = f"gate {gate.name}, {gate.title}: {gate.compared} of {gate.expected} compared"
    if gate.worst is not None and gate.bound is not None:
        head += f"; worst {gate.worst:.2g} of {gate.bound:g} at {gate.where}"
    return [head, *(f"  {finding}" for finding in gate.findings)]


def _numbers(tap: TapResult, gate: str) -> dict[str, float]:
    if gate == "A":
        return {"alone": tap.isolated, "in what it is fed": tap.inputs, "within the network": tap.cumulative}
    return {"in the mean": tap.rms_ratio, "at the worst value": tap.max_ratio, "in what it is fed": tap.inputs_ratio}
