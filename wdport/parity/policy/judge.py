"""Taps, levels and bounds in; what a gate finds against each of them out, in the gates' own words.

The sentences are those of :mod:`wdport.parity.gates`, so that a policy that changes nothing changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf, isnan

from wdport.parity.verdict import Gate, TapResult

OUTPUT = "output"
"""The tap that stands for the whole network's output, its levels and features."""

WAIVED = "waived: "
BOUND = "bound: "

_RATIO = re.compile(r"(?P<name>.+) has \S+ times the reference's float32 error")
_LOGIC = re.compile(
    r".+ is off by \S+ (?:in what it is fed|fed the reference's input|within the network)"
    r"|precision leak: .+ holds float32 values"
)
_WAIVED = re.compile(rf"{WAIVED}(?P<tap>\S+) (?P<why>.+)")


def is_notice(finding: str) -> bool:
    """Whether a finding tells of the policy and is no fault: a waived tap, or a bound other than the default."""
    return finding.startswith((WAIVED, BOUND))


def waived_taps(gate: Gate) -> dict[str, str]:
    """The taps waived at a gate, with the end and the reason of the waiver."""
    found = (_WAIVED.fullmatch(finding) for finding in gate.findings)
    return {match["tap"]: match["why"] for match in found if match}


def subject(finding: str) -> str:
    """The tap that a finding of gate 0, A or B is about: its first word, if it is about a tap."""
    words = finding.removeprefix("precision leak: ").split(maxsplit=1)
    return words[0].rstrip(",:;") if words else ""


def logic_findings(tap: TapResult, bounds: Mapping[str, float]) -> list[str]:
    """What gate A has against a tap, the first error beyond the bound and casts to float32."""
    found = []
    for error, how in (
        (tap.inputs, "in what it is fed"),
        (tap.isolated, "fed the reference's input"),
        (tap.cumulative, "within the network"),
    ):
        if not error <= bounds["logic"]:
            kind = "precision leak: " if error <= bounds["leak"] else ""
            found.append(f"{kind}{tap.reference} is off by {error:.1e} {how}")
            break
    for share, side in zip(tap.share32, ("the reference", "the port"), strict=True):
        if not share <= bounds["float32_share"]:
            found.append(f"precision leak: {tap.reference} of {side} holds float32 values")
    return found


def is_logic_finding(finding: str) -> bool:
    """Whether a sentence is one of :func:`logic_findings`, which can be judged again from the taps."""
    return _LOGIC.fullmatch(finding) is not None


def numerics_findings(tap: TapResult, bounds: Mapping[str, float]) -> list[str]:
    """What gate B has against a tap, in its outputs and in what it is fed."""
    named = ((tap.reference, larger(tap.rms_ratio, tap.max_ratio)), (f"{tap.reference} inputs", tap.inputs_ratio))
    return [ratio_sentence(name, ratio) for name, ratio in named if not ratio <= bounds["numerics"]]


def ratio_sentence(name: str, ratio: float) -> str:
    """Gate B's words on a float32 ratio."""
    return f"{name} has {ratio:.1f} times the reference's float32 error"


def ratio_name(finding: str) -> str:
    """What a sentence of gate B is about; "" if it is another sentence."""
    match = _RATIO.fullmatch(finding)
    return match["name"] if match else ""


def tap_findings(tap: TapResult, gate: str, bounds: Mapping[str, float]) -> list[str]:
    """What gate A or B has against a tap under these bounds."""
    return (logic_findings if gate == "A" else numerics_findings)(tap, bounds)


def larger(*values: float) -> float:
    """The largest value; NaN counts as infinity."""
    return max((inf if isnan(value) else value for value in values), default=0.0)


def worst_of(values: Iterable[tuple[str, float]]) -> tuple[str, float]:
    """The name with the largest value, the first of several; "" and 0.0 where there are none."""
    return max(((name, larger(value)) for name, value in values), key=lambda pair: pair[1], default=("", 0.0))
