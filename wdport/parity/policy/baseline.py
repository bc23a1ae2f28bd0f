"""A baseline of the errors of a verdict's taps: made, written, read, and compared in both directions.

A bound detects a broken port; a baseline detects that a correct one has changed. An error that has become smaller
fails as well until it is recorded: otherwise a later change could make it larger again unnoticed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any, Final, TypedDict

from wdport.base.errors import IncompleteError, InputError, UsageError
from wdport.base.limits import MAX_BASELINE_BYTES
from wdport.base.options import PathText
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import read_option
from wdport.checkpoint.strict_json import strict_json
from wdport.compare.findings import GATES, Finding, fact
from wdport.files.atomic import write_text
from wdport.files.outputs import writable
from wdport.parity.verdict import TapResult, Verdict

SCHEMA: Final = 1

NAME: Final = "R"
"""The gate that a baseline adds."""

_COMMAND: Final = "wdport verify --baseline FILE --update-baseline"
_UPDATE: Final = f"tighten the baseline: {_COMMAND}"


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
        # In decimal: rounding a binary float up to a power of ten and back could give 2.0000000000000004e-15.
        return float(exact.quantize(Decimal((0, (1,), exact.adjusted())), ROUND_CEILING))

    def fault(self, now: float, recorded: float) -> str:
        """Compare a number with its record; "" if it is within the limits."""
        now = inf if isnan(now) else now
        # Errors around 1e-15 change with the machine by more than a factor of 10, so small ones may grow up to `above`.
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
    failing = [gate.title for gate in verdict.gates if not gate.passed and gate.name != NAME]
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
            text = f"{tap.reference} is not in the baseline: record it with {_COMMAND}"
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


_FIX: Final = f"make it again with {_COMMAND}"


def write_baseline(path: PathText, baseline: Baseline, force: bool = False) -> None:
    """Write a baseline; an older one stays until the new one is complete, and another file always, except with
    ``force``.

    Raises :class:`~wdport.base.errors.UsageError` for another file, and :class:`~wdport.base.errors.MachineError` if
    writing fails; then no temporary file is left.
    """
    lines = [f"  {json.dumps(name)}: {json.dumps(entry, allow_nan=False)}" for name, entry in baseline["taps"].items()]
    body = ",\n".join(lines)
    # One line for each tap, so that a review shows which ones changed.
    text = f'{{\n "schema": {json.dumps(baseline["schema"])},\n "taps": {{\n{body}\n }}\n}}\n'
    write_text(writable(Path(path), force=force, option=None, kind="baseline"), text)


def read_baseline(path: PathText) -> Baseline:
    """Read a baseline; raises :class:`~wdport.base.errors.InputError` if the file is not one."""
    file = Path(path)
    data = read_option(file, MAX_BASELINE_BYTES, _FIX)
    try:
        document = strict_json(data, "baseline", finite=False)
    except Fault as fault:
        raise InputError(file, fault.what, _FIX) from None
    if set(document) != {"schema", "taps"}:
        raise InputError(file, "is not a baseline: its keys are not schema and taps", _FIX)
    if type(document["schema"]) is not int or document["schema"] != SCHEMA:
        raise InputError((file, "schema"), f"is not {SCHEMA}, which this wdport reads", _FIX)
    if not isinstance(document["taps"], dict) or not document["taps"]:
        raise InputError((file, "taps"), "holds no taps", _FIX)
    for name, entry in document["taps"].items():
        _check(file, name, entry)
    return {"schema": document["schema"], "taps": document["taps"]}


def _check(file: Path, name: str, entry: object) -> None:
    if not isinstance(entry, dict) or set(entry) != set(RULES):
        raise InputError((file, name), f"does not have exactly the numbers {', '.join(RULES)}", _FIX)
    for key, value in entry.items():
        number = inf if value == "inf" else value
        # json reads 1e999 as infinity, and Python integers have no largest value.
        sound = isinstance(number, (int, float)) and not isinstance(number, bool)
        largest = inf if value == "inf" else sys.float_info.max
        if not sound or not RULES[key].least <= number <= largest:
            what = f"{key} is {value!r}, not a number of at least {RULES[key].least:g}"
            raise InputError((file, name), what, _FIX)
