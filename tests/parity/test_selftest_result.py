"""A self-test's result: when it is good enough, and what its text, JSON and Markdown say. No model is run."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from tests.schemas.held import hold
from wdport.families.faults import Kill
from wdport.parity.selftest.result import RULES, Alarm, GroupResult, SelftestResult, Variant
from wdport.parity.selftest.text import render, render_markdown, summary

KILLED = Kill("small", "epsilon 1e-6", "a/norm", "A", "A", ("a/norm",), True, 5.0, ("epsilon 1e-6",), sought=True,
              facts="epsilon", ratio=130.0, single="B", rejected=("cosine > 0.997",))  # fmt: skip
SURVIVOR = Kill("small", "key bias dropped", "a/key", "", "A", (), False, -inf, equivalent="softmax", ratio=1.8,
                single="", rejected=())  # fmt: skip
CORRECT = Variant("small", "eager", 1e-15, 1.5, (), ())


def result(*kills: Kill, variants: tuple[Variant, ...] = (CORRECT,), quick: bool = False) -> SelftestResult:
    return SelftestResult((GroupResult("A", "the network, small", kills),), variants, quick)


VERDICTS = {
    "all as it ought to be": (result(KILLED, SURVIVOR), 0),
    "nothing run": (result(), 6),
    "no variant": (result(KILLED, variants=()), 6),
    "quick has no variants": (result(KILLED, variants=(), quick=True), 0),
    "survived": (result(KILLED, replace(KILLED, gate="", sites=(), exact=False)), 1),
    "another gate": (result(replace(KILLED, gate="B")), 1),
    "another place": (result(replace(KILLED, exact=False)), 1),
    "equivalent killed": (result(KILLED, replace(SURVIVOR, gate="A", exact=True)), 1),
    "false alarm": (result(KILLED, variants=(CORRECT, replace(CORRECT, alarms=(Alarm("A", "a"),)))), 1),
    "four causes of five": (result(*[KILLED] * 4, replace(KILLED, causes=())), 0),
    "three causes of four": (result(*[KILLED] * 3, replace(KILLED, causes=())), 1),
    "a wrong cause": (result(*[KILLED] * 9, replace(KILLED, causes=("another",))), 1),
    "no cause sought": (result(replace(KILLED, sought=False)), 1),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_exit_codes(case: str) -> None:
    found, code = VERDICTS[case]
    assert found.exit_code == code
    assert bool(found) is (code == 0)
    assert summary(found).split()[0] == {0: "PASS", 1: "FAIL", 6: "INCOMPLETE"}[code]


def test_the_text_names_what_went_wrong() -> None:
    wrong = replace(KILLED, mutant="lost", gate="", sites=(), exact=False, margin=-6.0, causes=(), sought=False)
    text = render(
        result(KILLED, wrong, SURVIVOR, variants=(CORRECT, replace(CORRECT, name="jit", alarms=(Alarm("B", "x"),))))
    )
    lines = {line.split()[0]: line for line in text.splitlines() if line[:3] in ("ok ", "NO ")}
    assert "none for float64 (A)" in lines["NO"]
    assert "lost" in lines["NO"]
    assert "FALSE ALARM  jit: float32 (B) at x" in text
    assert text.splitlines()[-1].startswith(
        "FAIL  1 of 2 faults killed, 1 by the right gate at the right place; 1 of 1 equivalents let pass; "
        "cause right for 1 of 1 (100%), wrong for 0; 1 false alarms in 2 correct variants"
    )


def test_json_is_plain_and_whole() -> None:
    document = json.loads(json.dumps(result(KILLED, SURVIVOR).to_json(), allow_nan=False))
    hold("selftest", document)
    facts = {key: value for key, value in document.items() if key not in ("details", "rules")}
    assert facts == {"schema": 1, "kind": "selftest", "passed": True, "exit_code": 0, "faults": 1,
                     "killed": 1, "right": 1, "causes_sought": 1, "causes_right": 1, "causes_wrong": 0, "variants": 1,
                     "false_alarms": 0}  # fmt: skip
    first, second = document["details"]["groups"][0]["kills"]
    assert first["sites"] == ["a/norm"]
    assert second["margin"] == "-inf"


def test_rules_count_faults_and_correct_ports() -> None:
    rows = {rule.name: rule for rule in result(KILLED, SURVIVOR).rules}
    assert list(rows) == [*RULES, "float64 (A) with preflight (0)", "float32 (B) with preflight (0)", "all gates"]
    assert all((rule.faults, rule.ports) == (1, 2) for rule in rows.values())
    assert {name for name, rule in rows.items() if rule.killed} == {
        "cosine > 0.997", "float64 (A) with preflight (0)", "float32 (B) with preflight (0)", "all gates"}  # fmt: skip
    assert not any(rule.rejected for rule in rows.values())
    alarmed = result(KILLED, variants=(replace(CORRECT, alarms=(Alarm("B", "a"),), rejected=("atol 1e-3",)),)).rules
    assert {rule.name for rule in alarmed if rule.rejected} == {
        "atol 1e-3", "float32 (B) with preflight (0)", "all gates"}  # fmt: skip


def test_markdown_has_every_row() -> None:
    text = render_markdown(result(KILLED, replace(SURVIVOR, equivalent="a | b")))
    assert "| ok | float64 (A) | 5.0 | yes 1.3e+02 | a/norm | epsilon 1e-6 | right |" in text
    assert "a \\| b" in text
    assert "| small | eager | 1.0e-15 | 1.5 | none |" in text


def test_fixed_tolerances() -> None:
    reference = np.linspace(0.5, 1.5, 50, dtype=np.float32)
    names = list(RULES)
    for shift, rejecting in ((1e-7, 0), (8e-6, 1), (3e-5, 2), (3e-3, 3)):
        moved = reference + np.float32(shift)
        assert [name for name in names if not RULES[name](moved, reference)] == names[:rejecting]
    assert not RULES["cosine > 0.997"](reference[::-1], reference)
    assert not RULES["cosine > 0.997"](reference * np.nan, reference)
    assert not RULES["atol 0.025, rtol 20, inputs of ones"](reference + 40.0, reference)
    assert all(accept(reference, reference) for accept in RULES.values())
