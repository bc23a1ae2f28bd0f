"""Make a baseline of the errors of a verdict's taps, and compare a later verdict with it, in both directions.

A bound detects a broken port; a baseline detects that a correct one has changed. An error that has become smaller
fails as well until it is recorded: otherwise a later change could make it larger again unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from math import inf, isfinite, isnan
from typing import Any, Final, TypedDict

from wdport.compare.findings import Finding, fact
from wdport.compare.glossary import GATES
from wdport.errors import IncompleteError, UsageError
from wdport.parity.verdict import TapResult, Verdict

SCHEMA: Final = 1

NAME: Final = "R"
"""The gate that a baseline adds."""

_UPDATE: Final = "tighten the baseline: wdport verify --update-baseline"


Record = dict[str, float | str]
"""The numbers of a tap by name; infinity is the text "inf"."""


class Baseline(TypedDict):
    """The contents of ``parity-baseline.json``: its format, and a record of every tap."""

    schema: int
    taps: dict[str, Record]


class _Rule:
    """How one recorded number is compared: its minimum, and the factors by which it may grow and shrink."""

    def __init__(self, least: float, worse: float, above: float, better: float) -> None:
        self.least, self.worse, self.above, self.better = least, worse, above, better

    def round(self, value: float) -> float:
        """Round ``value`` up to one significant digit, at least to the minimum; NaN becomes infinite."""
        if isnan(value) or value == inf:
            return inf
        if value <= self.least:
            return self.least
        exact = Decimal(repr(value))
        return float(exact.quantize(Decimal((0, (1,), exact.adjusted())), ROUND_CEILING))

    def fault(self, now: float, recorded: float) -> str:
        """Compare a number with its record; "" if it is within the limits."""
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
    """Make a baseline of a verdict's taps: plain JSON values, by tap in alphabetical order.

    Every number is rounded up to one significant digit, so that a rerun elsewhere writes the same file;
    infinity, which only a waived tap can have, is the text "inf".

    Raises:
        IncompleteError: something was not compared. UsageError: the verdict failed.
    """
    if not verdict.complete:
        raise IncompleteError(verdict.converted, "not everything was compared", "make the baseline from a complete run")
    failing = [gate.label for gate in verdict.gates if not gate.passed and gate.name != NAME]
    if failing:
        what = f"fails {', '.join(failing)}, and a baseline needs a verdict that passes"
        raise UsageError(verdict.converted, what, "correct the port first, or waive the layer in the policy")
    taps = {tap.reference: _record(tap) for tap in sorted(verdict.taps, key=lambda tap: tap.reference)}
    return {"schema": SCHEMA, "taps": taps}


def _record(tap: TapResult) -> Record:
    rounded = {name: rule.round(getattr(tap, name)) for name, rule in RULES.items()}
    return {name: value if isfinite(value) else "inf" for name, value in rounded.items()}


def compare_baseline(verdict: Verdict, baseline: Mapping[str, Any]) -> list[Finding]:
    """The changes since ``baseline`` was made; empty if there are none.

    A tap fails if an error is over 10 x its record (and over 1e-14) or a ratio over 1.5 x (and over 2), if an error is
    under its record / 100 or a ratio under / 3, and if it is new or gone.
    """
    recorded: Mapping[str, Record] = baseline["taps"]
    compared = {tap.reference for tap in verdict.taps}
    faults = []
    for tap in verdict.taps:
        if tap.reference not in recorded:
            text = f"{tap.reference} is not in the baseline: record it with wdport verify --update-baseline"
            faults.append(fact(text, tap.reference, "new"))
            continue
        for name, rule in RULES.items():
            fault = rule.fault(getattr(tap, name), float(recorded[tap.reference][name]))
            if fault:
                faults.append(fact(f"{tap.reference}: {name} {fault}", tap.reference, name))
    gone = [name for name in recorded if name not in compared]
    return faults + [fact(f"{name} is in the baseline and was not compared", name, "missing") for name in gone]


def apply_baseline(verdict: Verdict, baseline: Mapping[str, Any]) -> Verdict:
    """The verdict with the gate baseline (R), whose findings are those of :func:`compare_baseline`."""
    faults = compare_baseline(verdict, baseline)
    count = len({tap.reference for tap in verdict.taps} | set(baseline["taps"]))
    gate = GATES[NAME].gate(count, count, facts=tuple(faults))
    return replace(verdict, gates=(*verdict.gates, gate))
