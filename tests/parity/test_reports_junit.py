"""JUnit XML: parses, counts match, failures and what was not compared stand where they belong."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests.parity.test_reports import HOSTILE, failing, incomplete, passing
from wdport.parity.reports import render_junit
from wdport.parity.verdict import Verdict

EMPTY = replace(passing(), gates=())
ESCAPED = HOSTILE.replace("\x1b", "\\x1b").replace("\x00", "\\x00").replace("\ud800", "\\ud800")
NO_TAPS = replace(failing(), taps=())
every = pytest.mark.parametrize("verdict", [passing(), failing(), incomplete(), EMPTY, NO_TAPS])


def suites(verdict: Verdict) -> dict[str, ET.Element]:
    root = ET.fromstring(render_junit(verdict).encode())
    return {suite.attrib["name"]: suite for suite in root.iter("testsuite")}


def marks(suite: ET.Element) -> dict[str, str]:
    """Names of the tests that did not pass, and how."""
    return {case.attrib["name"]: child.tag for case in suite.iter("testcase") for child in case}


@every
def test_counts_match_the_cases(verdict: Verdict) -> None:
    root = ET.fromstring(render_junit(verdict).encode())
    for element in (root, *root.iter("testsuite")):
        assert int(element.attrib["tests"]) == len(list(element.iter("testcase"))) > 0
        assert int(element.attrib["failures"]) == len(list(element.iter("failure")))
        assert int(element.attrib["errors"]) == len(list(element.iter("error")))
    assert root.attrib["time"] == "12.346"


@every
def test_a_failed_gate_is_never_green_and_a_passed_one_has_no_failure(verdict: Verdict) -> None:
    """It can have an error: preflight may say that a tap of it was not compared."""
    found = list(suites(verdict).values())
    for suite, passed in zip(found, [gate.passed for gate in verdict.gates] or [False], strict=True):
        assert "failure" not in marks(suite).values() if passed else marks(suite)


def test_one_suite_a_gate_and_one_test_a_tap() -> None:
    found = suites(passing())
    assert list(found) == [
        "preflight", "constants", "float64", "float32",
        "trajectories",
    ]  # fmt: skip
    for name in ("float64", "float32"):
        cases = list(found[name].iter("testcase"))
        names = [*(tap.reference for tap in passing().taps), f"{name}: completeness"]
        assert [case.attrib["name"] for case in cases] == names
        assert {case.attrib["classname"] for case in cases} == {f"wdport.{name}"}
    case = next(found["constants"].iter("testcase"))
    assert case.attrib == {"classname": "wdport.constants", "name": "constants"}


ALLOWED = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "time", "tests", "failures", "errors", "skipped", "timestamp"},
    "testcase": {"classname", "name", "time"},
    "property": {"name", "value"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
}
"""What Jenkins's schema of these reports has (junit-10.xsd), as far as it is used."""


@every
def test_times(verdict: Verdict) -> None:
    """A suite is dated, and takes what its gate took; one test of it says so, and what was not measured has no time."""
    timed = [replace(gate, seconds=1.5) for gate in verdict.gates[:2]]
    dated = replace(verdict, gates=(*timed, *verdict.gates[2:]), started="2026-11-22T18:05:00Z")
    root = ET.fromstring(render_junit(dated).encode())
    found = list(root.iter("testsuite"))
    for at, suite in enumerate(found):
        assert suite.attrib["timestamp"] == "2026-11-22T18:05:00Z"
        times = [case.attrib["time"] for case in suite.iter("testcase") if "time" in case.attrib]
        assert times == ["1.500"] * (at < len(timed))
        assert suite.attrib.get("time") == (times[0] if times else None)
    for element in root.iter():
        assert set(element.attrib) <= ALLOWED.get(element.tag, set())
    assert "timestamp" not in render_junit(replace(verdict, started=""))


def test_what_a_passed_gate_notes_does_not_fail_it() -> None:
    suite = suites(passing())["preflight"]
    assert suite.attrib["failures"] == "0"
    assert suite.findtext("system-out") == "a deprecated key was read"


def test_failures_say_error_bound_and_what_is_off() -> None:
    suite = suites(failing())["float64"]
    failures = {case.attrib["name"]: case.find("failure") for case in suite.iter("testcase")}
    off = failures["block.2.norm"]
    assert off is not None
    assert off.attrib["message"].startswith("block.2.norm is off by 3.0e-05 when fed the reference's input")
    assert off.attrib["message"].endswith("bound 1.0e-10")
    assert "port: block_2/norm" in (off.text or "")
    leak = failures["block.3.norm"]
    assert leak is not None
    assert "precision leak: block.3.norm is off by 5.0e-06 within the network" in leak.attrib["message"]
    assert "block.3.norm of the port holds float32 values" in leak.attrib["message"]
    fed = failures["block.5.norm"]
    assert fed is not None
    assert "block.5.norm is off by 1.0e-03 in its inputs" in fed.attrib["message"]
    assert failures["the sum is off"] is not None
    assert failures["block.4.norm"] is None
    assert suite.attrib["failures"] == "5"


MARKS: list[tuple[Verdict, str, dict[str, str]]] = [
    # a finding on a tap that is within its bounds fails it
    (failing(), "float32", dict.fromkeys(("block.2.norm", "block.5.norm", ESCAPED, "block.9.norm"), "failure")),
    # a number that is no layer's fails by its sentence
    (failing(), "trajectories", {"DDPM, step 0 is off by 1.0e+00": "failure"}),
    # what was not compared is an error
    (incomplete(), "preflight",
     {"block.4.norm did not run on both sides with inputs that can be compared": "failure",
      "a tensor is not accounted for": "failure", "preflight: completeness": "error"}),
    (incomplete(), "float64", {"block.4.norm": "error", "float64: completeness": "error"}),
    (incomplete(), "float32", {"block.4.norm": "error"}),
    (incomplete(), "trajectories", {"trajectories: completeness": "error"}),
    (EMPTY, "no gate", {"gates": "error"}),
]  # fmt: skip


@pytest.mark.parametrize(("verdict", "suite", "expected"), MARKS)
def test_what_did_not_pass_is_marked(verdict: Verdict, suite: str, expected: dict[str, str]) -> None:
    assert marks(suites(verdict)[suite]) == expected


def test_hostile_names_survive_with_control_characters_escaped() -> None:
    text = render_junit(failing())
    assert not any(ord(character) < 32 and character != "\n" for character in text)
    assert ESCAPED in [case.attrib["name"] for case in suites(failing())["float64"].iter("testcase")]
