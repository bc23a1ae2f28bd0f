"""A verdict in, the errors of its taps as a baseline out; and a later verdict held against that, both ways.

A bound tells a broken port from a sound one; a baseline tells that a sound one has changed. One that has
become better is a fault as well, until it is recorded: or the next one could become worse again unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from math import inf, isfinite, isnan
from typing import Any, Final, TypedDict

from wdport.compare.findings import Finding, Gate, fact
from wdport.errors import IncompleteError, UsageError
from wdport.parity.verdict import TapResult, Verdict

SCHEMA: Final = 1

NAME: Final = "R"
"""The gate that a baseline adds."""

_UPDATE: Final = "tighten the baseline: wdport verify --update-baseline"


Record = dict[str, float | str]
"""The numbers of a tap by name; infinity is the text "inf"."""


class Baseline(TypedDict):
    """What ``parity-baseline.json`` holds: its format, and a record of every tap."""

    schema: int
    taps: dict[str, Record]


class _Rule:
    """How one recorded number is held: its least value, and by how much it may grow and shrink."""

    def __init__(self, least: float, worse: float, above: float, better: float) -> None:
        self.least, self.worse, self.above, self.better = least, worse, above, better

    def round(self, value: float) -> float:
        """``value`` rounded up to one significant digit, never below the least; NaN is infinite."""
        if isnan(value) or value == inf:
            return inf
        if value <= self.least:
            return self.least
        exact = Decimal(repr(value))
        return float(exact.quantize(Decimal((0, (1,), exact.adjusted())), ROUND_CEILING))

    def fault(self, now: float, recorded: float) -> str:
        """What is wrong with a number beside its record; "" if nothing is."""
        now = inf if isnan(now) else now
        if not now <= max(self.worse * recorded, self.above):
            return f"is {now:.1e}, over {self.worse:g} x its recorded {recorded:g}"
        if max(now, self.least) * self.better < recorded:
            return f"is {now:.1e}, under its recorded {recorded:g} / {self.better:g}; {_UPDATE}"
        return ""


_ERROR = _Rule(least=1e-15, worse=10.0, above=1e-14, better=100.0)
_RATIO = _Rule(least=1.0, worse=1.5, above=2.0, better=3.0)
RULES: Final = {"isolated": _ERROR, "cumulative": _ERROR, "rms_ratio": _RATIO}
"""The recorded numbers of a tap: fields of :class:`~wdport.parity.verdict.TapResult`."""


def make_baseline(verdict: Verdict) -> Baseline:
    """A verdict's taps as a baseline: plain JSON values, by tap in alphabetical order.

    Every number is rounded up to one significant digit, so that a rerun elsewhere writes the same file;
    infinity, which only a waived tap can have, is the text "inf".

    Raises:
        IncompleteError: something was not compared. UsageError: the verdict has failed.
    """
    if not verdict.complete:
        raise IncompleteError(verdict.converted, "not everything was compared", "make a baseline of a whole run")
    failing = [gate.name for gate in verdict.gates if not gate.passed and gate.name != NAME]
    if failing:
        what = f"fails gate {', '.join(failing)}, and a baseline records what passes"
        raise UsageError(verdict.converted, what, "correct the port first, or waive the layer in the policy")
    taps = {tap.reference: _record(tap) for tap in sorted(verdict.taps, key=lambda tap: tap.reference)}
    return {"schema": SCHEMA, "taps": taps}


def _record(tap: TapResult) -> Record:
    rounded = {name: rule.round(getattr(tap, name)) for name, rule in RULES.items()}
    return {name: value if isfinite(value) else "inf" for name, value in rounded.items()}


def compare_baseline(verdict: Verdict, baseline: Mapping[str, Any]) -> list[Finding]:
    """What has changed since ``baseline`` was made; empty if nothing has.

    A tap fails by an error of over 10 x its record (and over 1e-14) or a ratio of over 1.5 x (and over 2),
    by an error of under its record / 100 or a ratio of under / 3, and by being new or gone.
    """
    recorded: Mapping[str, Record] = baseline["taps"]
    known = {tap.reference for tap in verdict.taps}
    faults = []
    for tap in verdict.taps:
        if tap.reference not in recorded:
            told = f"{tap.reference} is not in the baseline: record it with wdport verify --update-baseline"
            faults.append(fact(told, tap.reference, "new"))
            continue
        for name, rule in RULES.items():
            fault = rule.fault(getattr(tap, name), float(recorded[tap.reference][name]))
            if fault:
                faults.append(fact(f"{tap.reference}: {name} {fault}", tap.reference, name))
    gone = [name for name in recorded if name not in known]
    return faults + [fact(f"{name} is in the baseline and was not compared", name, "missing") for name in gone]


def apply_baseline(verdict: Verdict, baseline: Mapping[str, Any]) -> Verdict:
    """The verdict with a gate ``R`` that fails by every fault of :func:`compare_baseline`."""
    faults = compare_baseline(verdict, baseline)
    count = len({tap.reference for tap in verdict.taps} | set(baseline["taps"]))
    gate = Gate(NAME, "baseline", count, count, facts=tuple(faults))
    return replace(verdict, gates=(*verdict.gates, gate))
