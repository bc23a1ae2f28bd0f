"""Render a verdict as JUnit XML: one suite per gate, one test per gate and tap."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree as ET

from wdport.base.errors import printable
from wdport.compare.findings import Gate
from wdport.parity.reports import phrases
from wdport.parity.reports.phrases import NAME_CHARS, TEXT_CHARS, number
from wdport.parity.verdict import TapResult, Verdict

PER_TAP = ("A", "B")
"""The gates that judge every tap."""


@dataclass(frozen=True)
class _Case:
    """One test: passed if ``kind`` is "", failed if ``failure``, not compared if ``error``."""

    name: str
    kind: Literal["", "failure", "error"] = ""
    message: str = ""
    text: str = ""
    seconds: float | None = None


def render_junit(verdict: Verdict) -> str:
    """The verdict as JUnit XML, for the test report of a CI server.

    A failure is a wrong layer or a finding, an error is a missing comparison. The tests of a gate are one run, so only
    one of them has the gate's time: the test of its completeness; without a measurement there is no time. Control
    characters are escaped as in Python, since XML cannot represent them.
    """
    suites = [(gate, _cases(gate, verdict)) for gate in verdict.gates]
    cases = [case for _, gate_cases in suites for case in gate_cases]
    lost = [] if verdict.gates else [_Case("gates", "error", "no gate was run")]
    counts = _counts("wdport verify", [*cases, *lost], verdict.seconds)
    root = ET.Element("testsuites", counts)
    for gate, gate_cases in suites:
        _suite(root, verdict, gate.title, f"wdport.{_slug(gate.title)}", gate_cases, gate)
    if lost:
        _suite(root, verdict, "no gate", "wdport", lost, None)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(
    root: ET.Element, verdict: Verdict, name: str, classname: str, cases: list[_Case], gate: Gate | None
) -> None:
    counts = {**_counts(name, cases, gate.seconds if gate is not None else None), "skipped": "0"}
    suite = ET.SubElement(root, "testsuite", counts | ({"timestamp": verdict.started} if verdict.started else {}))
    facts = {"verdict": phrases.outcome(verdict), "claim": phrases.claim(verdict)}
    facts |= {f"sha256 of the {name}": digest for name, digest in verdict.digests.items()}
    facts |= {"date": phrases.started(verdict), "reference": phrases.reference_line(verdict),
              "bounds": phrases.bounds_line(verdict)}  # fmt: skip
    facts |= {"versions": ", ".join(f"{name} {value}" for name, value in verdict.environment.items())}
    if verdict.settings.told:
        facts |= {"settings": phrases.settings_line(verdict)}
    if gate is not None:
        facts |= {"compared": f"{gate.compared} of {gate.expected}", "worst": phrases.worst(gate)}
    properties = ET.SubElement(suite, "properties")
    for key, value in facts.items():
        if value:
            ET.SubElement(properties, "property", {"name": key, "value": _text(value)})
    for case in cases:
        about = {"classname": classname, "name": _text(case.name, NAME_CHARS)}
        element = ET.SubElement(suite, "testcase", about | _time(case.seconds))
        if case.kind:
            what = {"type": "not compared" if case.kind == "error" else "different", "message": _text(case.message)}
            ET.SubElement(element, case.kind, what).text = case.text
    if gate is not None and gate.passed and gate.findings:
        ET.SubElement(suite, "system-out").text = _lines(list(map(str, gate.findings)))


def _counts(name: str, cases: list[_Case], seconds: float | None) -> dict[str, str]:
    kinds = [case.kind for case in cases]
    counts = {"tests": len(cases), "failures": kinds.count("failure"), "errors": kinds.count("error")}
    return {"name": _text(name), **{key: str(count) for key, count in counts.items()}, **_time(seconds)}


def _time(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"time": f"{seconds:.3f}"}


def _cases(gate: Gate, verdict: Verdict) -> list[_Case]:
    """A gate's tests: its taps in the order of the computation, then the findings that name none of them."""
    cases, taps = list[_Case](), [tap.reference for tap in verdict.taps] if gate.name in PER_TAP else []
    named, doubted = phrases.said_of(verdict, taps, (gate.name,)), phrases.doubts(verdict)
    if taps:
        cases = [_tap_case(gate, verdict, tap, named.get(tap.reference, []), doubted.get(tap.reference, []))
                 for tap in verdict.taps]  # fmt: skip
    if not gate.passed:
        rest = [str(finding) for finding in gate.findings if finding.subject not in named]
        cases += [_Case(text, "failure", text, _lines([text, phrases.worst(gate)])) for text in rest]
    missing = phrases.shortfall(gate)
    if not cases and not missing:
        return [_Case(gate.title, seconds=gate.seconds)]
    kind: Literal["", "error"] = "error" if missing else ""
    return [*cases, _Case(f"{gate.title}: completeness", kind, missing, _text(missing), gate.seconds)]


def _tap_case(gate: Gate, verdict: Verdict, tap: TapResult, findings: list[str], doubted: list[str]) -> _Case:
    if not findings and not doubted:
        return _Case(tap.reference)
    bound = "none" if gate.bound is None else number(gate.bound)
    facts = [
        f"reference: {tap.reference}",
        f"port: {tap.candidate}",
        f"{verdict.words.one}: {phrases.part_name(verdict, tap.part) or 'none'}",
        f"float64 error: {phrases.float64_errors(tap)}",
        f"float32 error as a multiple of the reference's: {number(tap.rms_ratio)} in the mean, "
        f"{number(tap.max_ratio)} at the worst value, {number(tap.inputs_ratio)} in its inputs",
        f"bound: {bound}",
    ]
    if not findings:
        return _Case(tap.reference, "error", doubted[0], _lines([*doubted, *facts]))
    message = f"{'; '.join(findings)}; bound {bound}"
    return _Case(tap.reference, "failure", message, _lines([*dict.fromkeys([*findings, *doubted]), *facts]))


def _lines(parts: list[str] | tuple[str, ...]) -> str:
    return "\n".join(_text(part) for part in parts if part)


def _text(value: str, limit: int = TEXT_CHARS) -> str:
    return printable(value, limit)


def _slug(name: str) -> str:
    """Convert ``known faults`` to ``known_faults``: a class name that test reports can sort and filter by."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII)
