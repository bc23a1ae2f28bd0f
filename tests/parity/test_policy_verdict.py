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
from wdport.parity.reports.text import render_text
from wdport.parity.verdict import PartResult, TapResult, Verdict
from wdport.wavelets.check import BOUNDS

TODAY = date(2026, 11, 21)
END = 'reason = "fused kernel"\nexpires = 2027-01-31\n'


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


def test_no_entries_change_nothing() -> None:
    verdict = make()
    assert apply_policy(verdict, Policy(), TODAY) is verdict
    assert verdict


def test_a_tightened_bound_fails_and_is_reported(tmp_path: Path) -> None:
    verdict = under(tmp_path, make(tap("a.b", max_ratio=5.0)), "[bounds]\nnumerics = { value = 4 }\n")
    assert failed(verdict) == {"B"}
    assert said(verdict, "B") == ["a.b has 5.0 times the reference's float32 error"]
    (finding,) = gate(verdict, "B").findings
    assert (finding.subject, finding.kind, finding.value, finding.bound) == ("a.b", "float32", 5.0, 4.0)
    assert (gate(verdict, "B").bound, gate(verdict, "B").where) == (4.0, "a.b")
    assert said(verdict, "P") == ["bound: numerics tightened to 4 (default 8)"]
    assert verdict.bounds["numerics"] == 4.0
    assert verdict.exit_code == 1


def test_a_loosened_bound_passes_and_is_reported(tmp_path: Path) -> None:
    text = "[bounds]\nlogic = { value = 1e-8, " + END.strip().replace("\n", ", ") + " }\n"
    verdict = under(tmp_path, make(tap("a.b", isolated=1e-9), tap("a.c", cumulative=1e-9)), text)
    assert verdict
    told = "bound: logic loosened to 1e-08 (default 1e-10) until 2027-01-31: fused kernel"
    assert said(verdict, "P") == [told]
    assert told in " ".join(render_text(verdict).split())
    assert gate(verdict, "A").bound == verdict.bounds["logic"] == 1e-8
    assert not under(tmp_path, make(tap("a.b", isolated=1e-7)), text)


@pytest.mark.parametrize("bad", [inf, nan])
def test_no_bound_lets_infinity_through(tmp_path: Path, bad: float) -> None:
    broken = make(tap("a.b", isolated=bad, rms_ratio=bad))
    ends = END.strip().replace("\n", ", ")
    loose = f"[bounds]\nlogic = {{ value = 1e300, {ends} }}\nnumerics = {{ value = 1e300, {ends} }}\n"
    assert failed(under(tmp_path, broken, loose)) == {"A", "B"}
    assert failed(under(tmp_path, broken, waiver("a.b", "A"))) == {"B"}
    waived = under(tmp_path, broken, waiver("a.b", "A") + waiver("a.b", "B"))
    assert waived
    assert said(waived, "A") == ["waived: a.b until 2027-01-31: fused kernel"]


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


def test_an_expired_waiver_fails_and_waives_nothing(tmp_path: Path) -> None:
    broken, text = make(tap("a.b", isolated=1e-3)), waiver("a.b", "A")
    assert under(tmp_path, broken, text, date(2027, 1, 31))
    verdict = under(tmp_path, broken, text, date(2027, 2, 1))
    assert failed(verdict) == {"A", "P"}
    assert said(verdict, "P")[0].startswith("waiver of a.b for float64 (A) expired on 2027-01-31")
    assert "a.b is off" in said(verdict, "A")[0]


def test_an_expired_bound_fails_even_where_nothing_is_off(tmp_path: Path) -> None:
    text = '[bounds]\ngradient = { value = 1, reason = "r", expires = 2026-11-20 }\n'
    verdict = under(tmp_path, make(), text)
    assert failed(verdict) == {"P"}
    assert len(gate(verdict, "P").findings) == 1
    assert said(verdict, "P")[0].startswith("gradient expired on 2026-11-20")
    assert verdict.bounds["gradient"] == bounds()["gradient"]
    assert verdict.exit_code == 1


def test_a_tightened_bound_stays_when_it_expires(tmp_path: Path) -> None:
    text = "[bounds]\nnumerics = { value = 4, expires = 2026-11-20 }\n"
    verdict = under(tmp_path, make(tap("a.b", max_ratio=5.0)), text)
    assert failed(verdict) == {"B", "P"}
    assert verdict.bounds["numerics"] == 4.0


@pytest.mark.parametrize("name", ["a.b", "a.x", "is", OUTPUT])
def test_a_waiver_that_is_not_needed_fails(tmp_path: Path, name: str) -> None:
    verdict = under(tmp_path, make(), waiver(name, "A"))
    assert failed(verdict) == {"P"}
    assert said(verdict, "P")[0].startswith(f"waiver not needed: {name} ")


def test_a_waiver_for_the_other_gate_is_not_needed(tmp_path: Path) -> None:
    assert failed(under(tmp_path, make(tap("a.b", isolated=1e-3)), waiver("a.b", "B"))) == {"A", "P"}


def test_not_compared_cannot_be_waived(tmp_path: Path) -> None:
    gates = (
        Gate("0", "preflight", 19, 20, facts=(fact("a.b did not run on both sides with inputs", "a.b"),)),
        Gate("A", "float64", 3, 4, (measure("a", "alone", 1e-15, "logic"),)),
        Gate("B", "float32", 3, 4, (measure("a", "float32", 1.5, "numerics"),)),
    )
    lost = make(tap("a.b", isolated=0.0, inputs=0.0, cumulative=0.0, rms_ratio=0.0, max_ratio=0.0), gates=gates)
    for text in (waiver("a.b", "A") + waiver("a.b", "B"), waiver("a.c", "A"), "[bounds]\nlogic = { value = 1e-11 }\n"):
        verdict = under(tmp_path, lost, text)
        assert verdict.exit_code == 6
        assert {"0", "A", "B"} <= failed(verdict)
        assert gate(verdict, "0") == gates[0]


def test_facts_stay(tmp_path: Path) -> None:
    gates = (Gate("A", "float64", 4, 4, facts=(fact("a.b has lost a dimension", "a.b"),)),)
    verdict = under(tmp_path, make(gates=gates), "[bounds]\nleak = { value = 1e-6 }\n")
    assert said(verdict, "A") == ["a.b has lost a dimension"]
    assert failed(verdict) == {"A"}
    gates = (Gate("B", "float32", 4, 4, facts=(fact("the port has no level cD9"),)),)
    verdict = under(tmp_path, make(gates=gates), TestOutput.LOOSE)
    assert said(verdict, "B") == ["the port has no level cD9"]
    assert failed(verdict) == {"B"}


def test_a_leak_is_told_by_the_bound_of_leaks(tmp_path: Path) -> None:
    off = make(tap("a.b", isolated=1e-6))
    assert said(off, "A")[0].startswith("precision leak: a.b is off by 1.0e-06")
    assert said(under(tmp_path, off, "[bounds]\nleak = { value = 1e-7 }\n"), "A")[0].startswith("a.b is off by")


def test_float32_values_are_judged_by_their_own_bound(tmp_path: Path) -> None:
    leaky = make(tap("a.b", share32=(0.01, 0.3)))
    assert leaky
    assert failed(under(tmp_path, leaky, "[bounds]\nfloat32_share = { value = 0.2 }\n")) == {"A"}


class TestOutput:
    """Gate B also judges the network as a whole and its levels, which are no taps of their own."""

    LOOSE = "[bounds]\nnumerics = { value = 20, " + END.strip().replace("\n", ", ") + " }\n"

    def test_loosened(self, tmp_path: Path) -> None:
        assert under(tmp_path, make(whole=12.0, level=15.0), self.LOOSE)
        assert not under(tmp_path, make(whole=21.0), self.LOOSE)
        assert not under(tmp_path, make(level=21.0), self.LOOSE)

    def test_tightened(self, tmp_path: Path) -> None:
        text = "[bounds]\nnumerics = { value = 4 }\n"
        for verdict, part in ((make(whole=5.0), ", whole network"), (make(level=5.0), " cA1 feature 0")):
            judged = under(tmp_path, verdict, text)
            assert failed(judged) == {"B"}
            assert said(judged, "B") == [f"output{part} has 5.0 times the reference's float32 error"]

    def test_waived(self, tmp_path: Path) -> None:
        assert under(tmp_path, make(whole=12.0, level=15.0), waiver(OUTPUT, "B"))
        assert not under(tmp_path, make(tap("a.b", rms_ratio=9.0), whole=12.0), waiver(OUTPUT, "B"))

    def test_every_number_is_judged_beside_a_waived_larger_one(self, tmp_path: Path) -> None:
        text = "[bounds]\nnumerics = { value = 4 }\n" + waiver("a.b", "B")
        verdict = under(tmp_path, make(tap("a.b", max_ratio=9.0), whole=5.0), text)
        assert failed(verdict) == {"B"}
        assert said(verdict, "B")[0].startswith("output, whole network has 5.0")
        assert under(tmp_path, make(tap("a.b", max_ratio=9.0), whole=5.0), waiver("a.b", "B"))


class TestOneValue:
    """Gates beside A and B: a bound moves only what is a number of its own."""

    ENDS = END.strip().replace("\n", ", ")

    def test_tightened(self, tmp_path: Path) -> None:
        verdict = under(tmp_path, make(), "[bounds]\ntable_ulp = { value = 0.25 }\nwavelet = { value = 1e-15 }\n")
        assert failed(verdict) == {"A'", "F"}
        assert gate(verdict, "F").bound == 1e-15

    def test_loosened(self, tmp_path: Path) -> None:
        text = f"[bounds]\ntable_ulp = {{ value = 4, {self.ENDS} }}\n"
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
        low = bfloat16._gate({"a.b": 9.0}, 1)
        assert [str(finding) for finding in low.findings] == ["a.b has 9.0 times the reference's bfloat16 error"]
        verdict = make(gates=())
        judged = under(tmp_path, replace(verdict, gates=(*verdict.gates, low)), TestOutput.LOOSE)
        assert failed(judged) == {"B'"}
        assert gate(judged, "B'").bound == low.bound == 8.0

    def test_the_bound_of_the_other_boundary_modes(self, tmp_path: Path) -> None:
        text = f"[bounds]\nwavelet_extrapolated = {{ value = 1e-9, {self.ENDS} }}\n"
        for bound, failing in (("wavelet", {"F"}), ("wavelet_extrapolated", set())):
            off = make(
                gates=(Gate("F", "wavelet", 4, 4, (measure("cD1", "error", 5e-10, bound, family_bounds=BOUNDS),)),)
            )
            assert failed(off) == {"F"}
            assert failed(under(tmp_path, off, text)) == failing


class TestOutcome:
    """What the tests of the pytest plugin say."""

    def test_faulty(self) -> None:
        verdict = make(tap("a.b", isolated=1e-3))
        told = layer_outcome(verdict, "A", "a.b").faults
        assert told[0] == "float64 (A): a.b (port: a/b)"
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
