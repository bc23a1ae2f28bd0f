"""What every report says of a run: by which bounds it was judged, when, of which files, against whose code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from tests.parity.test_reports import failing, incomplete, passing, plain, rendered
from wdport.cli.console import wrapped
from wdport.compare.findings import GATES, fact
from wdport.files.outputs import is_replaceable
from wdport.parity.policy import make_baseline, read_policy
from wdport.parity.policy.judge import Terms, judge
from wdport.parity.reports import render_json
from wdport.parity.reports.phrases import claim
from wdport.parity.reports.text import render_text
from wdport.parity.run_gates import begun
from wdport.parity.verdict import ReferenceKind, Verdict

TODAY = date(2026, 11, 22)
DIGESTS = {"checkpoint": "a1" * 32, "converted": "b2" * 32}
WHOLE = replace(passing(), digests=DIGESTS, started="2026-11-22T18:05:00Z", reference_code="wdport.uses.waveletdiff")
LOOSE = "[bounds]\nnumerics = { value = 20, reason = 'stored in 16 bits', expires = 2027-01-31 }\n"
UNNEEDED = '[[waivers]]\ntap = "block.1.norm"\ngate = "float32"\nreason = "r"\nexpires = 2027-01-31\n'
KINDS: dict[ReferenceKind, str] = {
    "wdport": "wdport's own PyTorch implementation",
    "library": "the library's own class, UNet2DModel of diffusers 0.42.0",
    "own": "your own code, mine:build",
    "recording": "a recording of your own code, mine:build",
}


def under(tmp_path: Path, verdict: Verdict, text: str) -> Verdict:
    file = tmp_path / "parity.toml"
    file.write_text(text)
    return judge(verdict, Terms(read_policy(file, TODAY)), TODAY)


def test_date_files_and_versions_are_in_every_format() -> None:
    for kind, text in rendered(WHOLE).items():
        assert ("2026-11-22T18:05:00Z" if kind == "json" else "2026-11-22 18:05:00 UTC") in text, kind
        for known in (*DIGESTS.values(), "model.ckpt", "model.keras", "2.6", "3.15", "0.10", "highest"):
            assert known in plain(kind, text), (kind, known)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_reference_is_in_every_format(kind: ReferenceKind) -> None:
    code = KINDS[kind].partition(", ")[2]
    verdict = replace(WHOLE, reference_kind=kind, reference_code=code)
    for form, text in rendered(verdict).items():
        if form == "json":
            assert (json.loads(text)["reference_kind"], json.loads(text)["reference_code"]) == (kind, code)
        else:
            assert KINDS[kind] in plain(form, text), form


def test_json_begins_with_its_schema_and_kind_and_has_the_gates_names() -> None:
    document = json.loads(render_json(WHOLE))
    assert list(document)[:2] == ["schema", "kind"]
    assert (document["schema"], document["kind"]) == (4, "verdict")
    assert [(gate["name"], gate["title"]) for gate in document["gates"]][2:4] == [("A", "float64"), ("B", "float32")]


def test_an_older_report_is_still_ours_and_a_strangers_file_is_not(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    for text, ours in (
        ('{\n "schema": 4,\n "kind": "verdict",\n "passed": true,', True),
        ('{\n "schema": 4,\n "passed": true,\n "complete"', True),
        ('{"schema": 1, "kind": 3, "passed": 1}', False),
        ('{"passed": true, "schema": 4}', False),
    ):
        file.write_text(text)
        assert is_replaceable(file, "json") is ours


def test_the_clock_is_that_of_the_start() -> None:
    import time

    told = datetime.strptime(begun(time.monotonic() - 100.0), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert 98.0 <= (datetime.now(UTC) - told).total_seconds() <= 110.0


def test_a_policy_that_fails_is_not_a_difference(tmp_path: Path) -> None:
    verdict = under(tmp_path, passing(), UNNEEDED)
    assert verdict.exit_code == 1
    for kind, text in rendered(verdict).items():
        said = plain(kind, text)
        assert "does not compute" not in said, kind
        if kind != "json":
            assert "computes what model.ckpt computes, assuming heads 4, but the policy is not met: waiver not" in said
    assert [gate.name for gate in verdict.unmet] == ["P"]


def test_a_baseline_that_fails_is_not_a_difference() -> None:
    recorded = make_baseline(passing())
    recorded["taps"]["block.2.norm"]["isolated"] = 1e-9
    verdict = judge(passing(), Terms(baseline=recorded), TODAY)
    assert claim(verdict) == (
        "model.keras computes what model.ckpt computes, assuming heads 4, but the errors differ from the baseline: "
        "block.2.norm: isolated is 3.0e-16, under its recorded 1e-09 / 100; tighten the baseline: wdport verify "
        "--baseline FILE --update-baseline"
    )


def test_known_faults_that_are_not_found_leave_no_claim(tmp_path: Path) -> None:
    canaries = GATES["S"].gate(12, 12, facts=(fact("no bias (small) is not found"), fact("tanh (small) is not found")))
    verdict = judge(passing(), Terms(baseline=make_baseline(passing())), TODAY, canaries)
    assert claim(verdict) == (
        "no difference was found between model.keras and model.ckpt, assuming heads 4, but known faults are not found: "
        "no bias (small) is not found, and 1 more"
    )
    untried = judge(passing(), Terms(baseline=make_baseline(passing())), TODAY, GATES["S"].gate(0, 1))
    assert claim(untried).endswith("known faults are not found: 0 of 1 compared")
    assert untried.exit_code == 6


def test_a_difference_beside_an_unmet_policy_is_a_difference(tmp_path: Path) -> None:
    verdict = under(tmp_path, failing(), UNNEEDED)
    assert verdict.unmet == ()
    assert claim(verdict).startswith("model.keras does not compute what model.ckpt computes")
    assert claim(under(tmp_path, incomplete(), UNNEEDED)).startswith("not everything in model.keras could be compared")
    assert (passing().unmet, failing().unmet, incomplete().unmet) == ((), (), ())


def test_the_bounds_in_force_are_those_of_every_format(tmp_path: Path) -> None:
    verdict = under(tmp_path, WHOLE, LOOSE)
    assert verdict
    for kind, text in rendered(verdict).items():
        if kind == "json":
            assert json.loads(text)["bounds"]["numerics"] == 20.0
        elif kind != "html":
            words = "20 times PyTorch's rounding error in float32; by the policy: numerics 20 for 8"
            assert words in plain(kind, text), kind
    page = rendered(verdict)["html"]
    row = page[: page.index(">numerics</td>")].rpartition("<tr>")[2]
    assert re.findall(r'data-v="([^"]*)"', row) == ["20.0", "8.0"]
    assert "#default" not in page


def test_what_a_loosened_bound_lets_pass_is_red_nowhere(tmp_path: Path) -> None:
    made = [replace(tap, isolated=1e-9, rms_ratio=15.0) if tap.reference == "block.2.norm" else tap
            for tap in passing().taps]  # fmt: skip
    off = replace(passing(), taps=tuple(made))
    assert [fault.reference for fault in off.faults] == ["block.2.norm"]
    loose = LOOSE + "logic = { value = 1e-8, reason = 'emulated', expires = 2027-01-31 }\n"
    verdict = under(tmp_path, off, loose)
    assert verdict.faults == ()
    page = rendered(verdict)["html"]
    assert 'class="n bad"' not in page
    assert not re.search(r'class="(own|fed|single) out', page)
    assert "bound 1.0e-08" in page
    assert 'class="n bad"' in rendered(off)["html"]


def test_a_waived_layer_says_so_beside_its_fault(tmp_path: Path) -> None:
    waiver = '[[waivers]]\ntap = "block.2.norm"\ngate = "{}"\nreason = "fused"\nexpires = 2027-01-31\n'
    verdict = under(tmp_path, failing(), waiver.format("A") + waiver.format("B"))
    for kind in ("text", "html", "markdown"):
        assert "waived until 2027-01-31: fused" in plain(kind, rendered(verdict)[kind]), kind


@pytest.mark.parametrize("verdict", [WHOLE, failing(), incomplete()])
def test_the_text_has_a_line_per_fact(verdict: Verdict) -> None:
    """The screen wraps it, and breaks no name; a table that is wider than the screen is divided."""
    text = render_text(verdict)
    assert not [line for line in text.splitlines() if line.startswith(" " * 8)]
    for width in (40, 80, 200):
        lines = [part for line in render_text(verdict, width).splitlines() for part in wrapped(line, width)]
        assert not [line for line in lines if len(line) > width and " " in line.strip() and "<script>" not in line]
        for tap in verdict.taps:
            assert (tap.reference in text) == any(tap.reference in line for line in lines)
    for columns, times in ((40, 2), (None, 1)):
        names = [line.split(" ")[0] for line in render_text(verdict, columns).splitlines()]
        assert all(names.count(part.name) == times for part in verdict.parts)


def test_a_layer_fed_wrongly_is_red_though_it_is_right_by_itself() -> None:
    """A wrong number of heads shows in what the last projection is fed, and nowhere else."""
    made = [replace(tap, inputs=0.07, inputs_ratio=8e5) if tap.reference == "block.4.norm" else tap
            for tap in passing().taps]  # fmt: skip
    page = rendered(replace(passing(), taps=tuple(made)))["html"]
    assert page.count("fed out3") == 1
    assert page.count("single out2") == 1
    assert "own out" not in page
    assert "layers of cA1: 4 in all, 1 beyond a bound" in page


def test_the_glossary_says_what_each_gate_compares() -> None:
    gates = tuple(replace(gate, meaning=GATES[gate.name].meaning) for gate in passing().gates)
    page = rendered(replace(passing(), gates=gates))["html"]
    for gate in gates:
        assert f"<dt><b>{gate.title}</b></dt><dd>" in page
    assert page.count("<dt>") == len(gates)
