"""A verdict under a policy: judged again from its taps, never more lenient than the policy says."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from wdport.compare.findings import OUTPUT, Gate, fact, measure
from wdport.compare.gate_bounds import bounds
from wdport.compare.gates import float32_measures, float64_measures
from wdport.compare.setting_values import Setting, SettingsReport
from wdport.parity import bfloat16_gate as bfloat16
from wdport.parity.policy import Policy, apply_policy, read_policy
from wdport.parity.policy.explain import gate_outcome, layer_outcome, verdict_outcome
from wdport.parity.reports.phrases import claim
from wdport.parity.reports.text import render_text
from wdport.parity.verdict import PartResult, TapResult, Verdict
from wdport.uses.wavelets.check import BOUNDS

TODAY = date(2026, 11, 21)
END = 'reason = "fused kernel"\nexpires = 2027-01-31\n'
LAST, OVER = (END.replace("2027-01-31", day) for day in ("2026-11-21", "2026-11-20"))


def make(*changed: TapResult, whole: float = 1.0, level: float = 1.0, gates: tuple[Gate, ...] = ()) -> Verdict:
    """A verdict of three sound taps and the output, some of them ``changed``, judged as `verify` does."""
    taps = {name: TapResult(name, name.replace(".", "/"), None, 1e-15, 1e-15, 2e-15, 1.0, 1.5, 1.0)
            for name in ("a", "a.b", "a.c", OUTPUT)}  # fmt: skip
    taps |= {tap.reference: tap for tap in changed}
    logic = [each for tap in taps.values() for each in float64_measures(tap)]
    numerics = [each for tap in taps.values() for each in float32_measures(tap)]
    numerics.append(measure(OUTPUT, "float32", whole, "numerics", ", whole network"))
    numerics.append(measure(OUTPUT, "float32", level, "numerics", " cA1 feature 0"))
    made = (
        Gate("0", "preflight", 20, 20),
        Gate("A'", "constants", 8, 8, (measure("table", "ulp", 0.5, "table_ulp"),)),
        Gate("A", "float64", 4, 4, tuple(logic)),
        Gate("B", "float32", 4, 4, tuple(numerics)),
        Gate("F", "wavelet", 4, 4, (measure("cD1 analysis", "error", 2e-15, "wavelet", family_bounds=BOUNDS),)),
    )
    gates = tuple(next((new for new in gates if new.name == gate.name), gate) for gate in made)
    environment = dict.fromkeys(("torch", "keras", "jax", "device", "torch_matmul", "jax_matmul"), "x")
    levels = (PartResult("cA1", 1e-15, None, level, None),)
    return Verdict("a.ckpt", "a.keras", gates, tuple(taps.values()), levels, None, {}, (), environment, bounds(BOUNDS))


def tap(name: str, **numbers: Any) -> TapResult:
    return replace(TapResult(name, name.replace(".", "/"), None, 1e-15, 1e-15, 2e-15, 1.0, 1.5, 1.0), **numbers)


def under(folder: Path, verdict: Verdict, text: str, today: date = TODAY) -> Verdict:
    file = folder / "parity.toml"
    file.write_text(text, encoding="utf-8")
    return apply_policy(verdict, read_policy(file, today), today)


def gate(verdict: Verdict, name: str) -> Gate:
    return next(each for each in verdict.gates if each.name == name)


def said(verdict: Verdict, name: str) -> list[str]:
    return list(map(str, gate(verdict, name).findings))


def failed(verdict: Verdict) -> set[str]:
    return {each.name for each in verdict.gates if not each.passed}


def waiver(name: str, where: str, end: str = END) -> str:
    return f'[[waivers]]\ntap = "{name}"\ngate = "{where}"\n{end}'


def bound(name: str, value: float, end: str = "") -> str:
    return f"[bounds]\n{name} = {{ {', '.join([f'value = {value}', *end.splitlines()])} }}\n"


def test_no_entries_change_nothing() -> None:
    verdict = make()
    assert apply_policy(verdict, Policy(), TODAY) is verdict
    assert verdict


def test_a_tightened_bound_fails_and_is_reported(tmp_path: Path) -> None:
    verdict = under(tmp_path, make(tap("a.b", max_ratio=5.0)), bound("numerics", 4))
    assert failed(verdict) == {"B"}
    assert said(verdict, "B") == ["a.b has 5.0 times the reference's float32 error"]
    (finding,) = gate(verdict, "B").findings
    assert (finding.subject, finding.kind, finding.value, finding.bound) == ("a.b", "float32", 5.0, 4.0)
    assert (gate(verdict, "B").bound, gate(verdict, "B").where) == (4.0, "a.b")
    assert said(verdict, "P") == ["bound: numerics tightened to 4 (default 8)"]
    assert verdict.bounds["numerics"] == 4.0
    assert verdict.exit_code == 1


def test_a_loosened_bound_passes_and_is_reported(tmp_path: Path) -> None:
    text = bound("logic", 1e-8, END)
    verdict = under(tmp_path, make(tap("a.b", isolated=1e-9), tap("a.c", cumulative=1e-9)), text)
    assert verdict
    told = "bound: logic loosened to 1e-08 (default 1e-10) until 2027-01-31: fused kernel"
    assert said(verdict, "P") == [told]
    assert told in " ".join(render_text(verdict).split())
    assert claim(verdict).endswith(" computes what a.ckpt computes, by the policy's looser bounds")
    assert gate(verdict, "A").bound == verdict.bounds["logic"] == 1e-8
    assert not under(tmp_path, make(tap("a.b", isolated=1e-7)), text)


@pytest.mark.parametrize("bad", [inf, nan])
def test_no_bound_lets_infinity_through(tmp_path: Path, bad: float) -> None:
    broken = make(tap("a.b", isolated=bad, rms_ratio=bad))
    loose = bound("logic", 1e300, END) + bound("numerics", 1e300, END).removeprefix("[bounds]\n")
    assert failed(under(tmp_path, broken, loose)) == {"A", "B"}
    assert failed(under(tmp_path, broken, waiver("a.b", "A"))) == {"B"}
    waived = under(tmp_path, broken, waiver("a.b", "A") + waiver("a.b", "B"))
    assert waived
    assert said(waived, "A") == ["waived: a.b until 2027-01-31: fused kernel"]
    assert claim(waived).endswith(" computes what a.ckpt computes, except for 1 waived layer")


def test_a_waived_float64_error_is_in_the_claim_of_a_float32_error(tmp_path: Path) -> None:
    verdict = under(tmp_path, make(tap("a.b", isolated=1e-3, rms_ratio=300.0)), waiver("a.b", "A"))
    assert "computes in float64, except for 1 waived layer, but has up to 300 times" in claim(verdict)
    tighter = under(tmp_path, make(tap("a.b", max_ratio=5.0)), bound("numerics", 4))
    assert "looser" not in claim(tighter)


def test_a_waiver_is_of_one_tap_and_one_gate(tmp_path: Path) -> None:
    broken = make(tap("a.b", isolated=1e-3), tap("a.c", isolated=1e-3))
    verdict = under(tmp_path, broken, waiver("a.b", "A"))
    assert failed(verdict) == {"A"}
    assert said(verdict, "A") == [
        "a.c is off by 1.0e-03 when fed the reference's input",
        "waived: a.b until 2027-01-31: fused kernel",
    ]
    assert gate(verdict, "A").where == "a.c"
    assert [finding.notice for finding in gate(verdict, "A").findings] == [False, True]
    assert verdict.taps == broken.taps


def test_not_compared_cannot_be_waived(tmp_path: Path) -> None:
    gates = (
        Gate("0", "preflight", 19, 20, facts=(fact("a.b did not run on both sides with inputs", "a.b"),)),
        Gate("A", "float64", 3, 4, (measure("a", "alone", 1e-15, "logic"),)),
        Gate("B", "float32", 3, 4, (measure("a", "float32", 1.5, "numerics"),)),
    )
    lost = make(tap("a.b", isolated=0.0, inputs=0.0, cumulative=0.0, rms_ratio=0.0, max_ratio=0.0), gates=gates)
    for text in (waiver("a.b", "A") + waiver("a.b", "B"), waiver("a.c", "A"), bound("logic", 1e-11)):
        verdict = under(tmp_path, lost, text)
        assert verdict.exit_code == 6
        assert {"0", "A", "B"} <= failed(verdict)
        assert gate(verdict, "0") == gates[0]


OFF, FAR, SMALL = (make(tap("a.b", **wrong)) for wrong in ({"isolated": 1e-3}, {"max_ratio": 5.0}, {"isolated": 1e-6}))
NARROW = "precision leak: a.b of the port holds float32 values"
LEAK = make(tap("a.b", isolated=1e-6, share32=(0.01, 0.9)))
SHARE = make(tap("a.b", share32=(0.01, 0.3)))
LOST, LEVEL = fact("a.b has lost a dimension", "a.b"), fact("the port has no level cD9")
LOSTS = make(gates=(Gate("A", "float64", 4, 4, facts=(LOST,)),))
LEVELS = make(gates=(Gate("B", "float32", 4, 4, facts=(LEVEL,)),))
WHOLE = "output, whole network has 5.0 times the reference's float32 error"
HIDDEN = make(tap("a.b", max_ratio=9.0), whole=5.0)


def wavelet(kind: str) -> Verdict:
    return make(gates=(Gate("F", "wavelet", 4, 4, (measure("cD1", "error", 5e-10, kind, family_bounds=BOUNDS),)),))


JUDGED: list[tuple[Verdict, str, str, dict[str, list[str]]]] = [
    (OFF, waiver("a.b", "A", LAST), "", {"A": ["waived: a.b until 2026-11-21"]}),
    (
        OFF,
        waiver("a.b", "A", OVER),
        "A P",
        {"A": ["a.b is off"], "P": ["waiver of a.b for float64 (A) expired on 2026-"]},
    ),
    (OFF, waiver("a.b", "B"), "A P", {}),
    *((make(), waiver(a, "A"), "P", {"P": [f"waiver not needed: {a} "]}) for a in ("a.b", "a.x", "is", OUTPUT)),
    (make(), bound("gradient", 1, OVER), "P", {"P": ["gradient expired on 2026-11-20"]}),
    (FAR, bound("numerics", 4, OVER), "B P", {}),  # what is tighter stays
    (LOSTS, bound("leak", 1e-6), "A", {"A": ["a.b has lost a dimension"]}),
    (LEVELS, bound("numerics", 20, END), "B", {"B": ["the port has no level cD9"]}),
    (SMALL, "", "A", {"A": ["a.b is off by 1.0e-06"]}),
    (LEAK, "", "A", {"A": ["precision leak: a.b is off by 1.0e-06", NARROW]}),
    (LEAK, bound("leak", 1e-7), "A", {"A": ["a.b is off by", NARROW]}),
    (SHARE, "", "", {}),
    (SHARE, bound("float32_share", 0.2), "A", {}),
    # gate B also judges the network as a whole and its levels, which are no taps of their own
    (make(whole=12.0, level=15.0), bound("numerics", 20, END), "", {}),
    (make(whole=21.0), bound("numerics", 20, END), "B", {}),
    (make(level=21.0), bound("numerics", 20, END), "B", {}),
    (make(whole=5.0), bound("numerics", 4), "B", {"B": [WHOLE]}),
    (make(level=5.0), bound("numerics", 4), "B", {"B": ["output cA1 feature 0 has 5.0 times the reference's float32"]}),
    (make(whole=12.0, level=15.0), waiver(OUTPUT, "B"), "", {}),
    (make(tap("a.b", rms_ratio=9.0), whole=12.0), waiver(OUTPUT, "B"), "B", {}),
    (HIDDEN, bound("numerics", 4) + waiver("a.b", "B"), "B", {"B": [WHOLE, "waived: a.b until 2027-01-31"]}),
    (HIDDEN, waiver("a.b", "B"), "", {}),
    # gates beside A and B
    (make(), bound("table_ulp", 0.25) + "wavelet = { value = 1e-15 }\n", "A' F", {}),
    (wavelet("wavelet_extrapolated"), "", "F", {}),
    (wavelet("wavelet_extrapolated"), bound("wavelet_extrapolated", 1e-9, END), "", {}),
    (wavelet("wavelet"), bound("wavelet_extrapolated", 1e-9, END), "F", {}),
]


@pytest.mark.parametrize(("verdict", "policy", "failing", "findings"), JUDGED)
def test_what_fails_under_a_policy(
    tmp_path: Path, verdict: Verdict, policy: str, failing: str, findings: dict[str, list[str]]
) -> None:
    judged = under(tmp_path, verdict, policy)
    assert failed(judged) == set(failing.split())
    assert judged.exit_code == (1 if failing else 0)
    for name, sentences in findings.items():
        assert all(map(str.startswith, said(judged, name), sentences))
        assert len(said(judged, name)) == len(sentences)


class TestOneValue:
    """Gates beside A and B: a bound moves only what is a number of its own."""

    def test_loosened(self, tmp_path: Path) -> None:
        text = bound("table_ulp", 4, END)
        off = measure("table", "ulp", 3.0, "table_ulp")
        other = fact("other of the port is not a constant of its family")
        near = make(gates=(Gate("A'", "constants", 8, 8, (off,)),))
        assert not near
        assert under(tmp_path, near, text)
        nothing = measure("other", "ulp", nan, "table_ulp")
        for worse in (Gate("A'", "constants", 8, 8, (off, nothing)), Gate("A'", "constants", 8, 8, (off,), (other,))):
            judged = under(tmp_path, make(gates=(worse,)), text)
            assert [told.startswith("other ") for told in said(judged, "A'")] == [True]
            assert not judged
        lost = make(gates=(Gate("A'", "constants", 7, 8, (off,)),))
        assert under(tmp_path, lost, text).exit_code == 6

    def test_a_bound_of_float32_is_none_of_bfloat16(self, tmp_path: Path) -> None:
        low = bfloat16._gate({("a.b", ""): 9.0}, 1, ())
        assert [str(finding) for finding in low.findings] == ["a.b has 9.0 times the reference's bfloat16 error"]
        verdict = make(gates=())
        judged = under(tmp_path, replace(verdict, gates=(*verdict.gates, low)), bound("numerics", 20, END))
        assert failed(judged) == {"B'"}
        assert gate(judged, "B'").bound == low.bound == 8.0


class TestOutcome:
    """What the tests of the pytest plugin say."""

    def test_faulty(self) -> None:
        verdict = make(tap("a.b", isolated=1e-3))
        told = layer_outcome(verdict, "A", "a.b").faults
        assert told[0] == "float64: a.b (port: a/b)"
        assert told[1] == "a.b is off by 1.0e-03 when fed the reference's input"
        assert told[2].endswith("0.001 isolated, 1e-15 in its inputs, 2e-15 within the network; bound 1e-10")
        assert not layer_outcome(verdict, "B", "a.b").faults
        assert not layer_outcome(verdict, "A", "a.c").faults
        assert verdict_outcome(verdict, {"a", "a.b", "a.c", OUTPUT}).faults

    def test_missing(self) -> None:
        verdict = make()
        assert layer_outcome(verdict, "A", "a.x").faults
        assert layer_outcome(verdict, "C", "a").faults
        assert gate_outcome(verdict, "C").faults
        assert gate_outcome(make(gates=(Gate("F", "wavelet", 3, 4),)), "F").faults
        assert "output was compared and has no test" in verdict_outcome(verdict, {"a", "a.b", "a.c"}).faults

    def test_not_compared_is_no_pass_and_no_waiver(self, tmp_path: Path) -> None:
        silent = tap("a.b", isolated=0.0, inputs=0.0, cumulative=0.0)
        lost = make(silent, gates=(Gate("0", "preflight", 19, 20),))
        assert "shows no error at all" in layer_outcome(lost, "A", "a.b").faults[1]
        broken = make(tap("a.b", isolated=inf), gates=(Gate("0", "preflight", 20, 20,
                      facts=(fact("a.b: shape (2,) where the reference has (3,)", "a.b"),)),))  # fmt: skip
        verdict = under(tmp_path, broken, waiver("a.b", "A"))
        assert "a.b: shape (2,) where the reference has (3,)" in layer_outcome(verdict, "A", "a.b").faults


def test_a_setting_that_differs_fails_where_the_policy_says_so() -> None:
    differs = Setting("epsilon", 1e-5, 1e-3, "differs", "epsilon 0.001 where the reference has 1e-05", "a.b", "a/b")
    training = replace(differs, level="training")
    policy = Policy(settings=True)
    for report, code in (
        (SettingsReport(1, 3, (differs,)), 1),
        (SettingsReport(1, 3, (training,)), 0),
        (SettingsReport(note="a recording"), 1),
    ):
        verdict = replace(make(), settings=report)
        assert verdict.exit_code == 0
        assert apply_policy(verdict, policy, TODAY).exit_code == code
        assert apply_policy(verdict, Policy(), TODAY) is verdict
    (gate,) = [each for each in apply_policy(verdict, policy, TODAY).gates if each.name == "P"]
    assert [str(each) for each in gate.findings] == ["settings were not compared: a recording"]
