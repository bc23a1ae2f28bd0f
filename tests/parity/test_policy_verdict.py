"""A verdict under a policy: judged again from its taps, never more lenient than the policy says."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from wdport.compare.bounds import LOGIC, NUMERICS, bounds
from wdport.parity.policy import Policy, apply_policy, is_notice, read_policy, waived_taps
from wdport.parity.policy.explain import gate_outcome, tap_outcome, verdict_outcome
from wdport.parity.policy.judge import OUTPUT, tap_findings
from wdport.parity.reports.text import render_text
from wdport.parity.runner import OUTPUT as RUNNER_OUTPUT
from wdport.parity.verdict import Gate, LevelResult, TapResult, Verdict

TODAY = date(2026, 11, 21)
END = 'reason = "fused kernel"\nexpires = 2027-01-31\n'


def make(*changed: TapResult, whole: float = 1.0, level: float = 1.0, gates: tuple[Gate, ...] = ()) -> Verdict:
    """A verdict of three sound taps and the output, some of them ``changed``, judged as `verify` does."""
    taps = {name: TapResult(name, name.replace(".", "/"), None, 1e-15, 1e-15, 2e-15, 1.0, 1.5, 1.0)
            for name in ("a", "a.b", "a.c", OUTPUT)}  # fmt: skip
    taps |= {tap.reference: tap for tap in changed}
    logic = [finding for tap in taps.values() for finding in tap_findings(tap, "A", bounds())]
    ratios = {name: max(tap.rms_ratio, tap.max_ratio) for name, tap in taps.items()}
    ratios[f"{OUTPUT}, whole network"] = whole
    ratios |= {f"{name} inputs": tap.inputs_ratio for name, tap in taps.items()}
    ratios[f"{OUTPUT} cA1 feature 0"] = level
    numerics = [f"{name} has {r:.1f} times the reference's float32 error" for name, r in ratios.items()
                if not r <= NUMERICS]  # fmt: skip
    errors = {name: max(tap.isolated, tap.inputs, tap.cumulative) for name, tap in taps.items()}
    first, worst = (max(values, key=lambda name: values[name]) for values in (errors, ratios))
    made = (
        Gate("0", "preflight", True, 20, 20),
        Gate("A'", "constants", True, 8, 8, 0.5, 2.0, "table"),
        Gate("A", "logic, float64", not logic, 4, 4, errors[first], LOGIC, first, tuple(logic)),
        Gate("B", "numerics, float32", not numerics, 4, 4, ratios[worst], NUMERICS, worst, tuple(numerics)),
        Gate("F", "wavelet", True, 4, 4, 2e-15, 1e-12, "cD1 analysis"),
    )
    gates = tuple(next((new for new in gates if new.name == gate.name), gate) for gate in made)
    environment = dict.fromkeys(("torch", "keras", "jax", "device", "torch_matmul", "jax_matmul"), "x")
    levels = (LevelResult("cA1", 1e-15, None, level, None),)
    return Verdict("a.ckpt", "a.keras", gates, tuple(taps.values()), levels, None, {}, (), environment, bounds())


def tap(name: str, **numbers: Any) -> TapResult:
    return replace(TapResult(name, name.replace(".", "/"), None, 1e-15, 1e-15, 2e-15, 1.0, 1.5, 1.0), **numbers)


def under(folder: Path, verdict: Verdict, text: str, today: date = TODAY) -> Verdict:
    file = folder / "parity.toml"
    file.write_text(text, encoding="utf-8")
    return apply_policy(verdict, read_policy(file, today), today)


def gate(verdict: Verdict, name: str) -> Gate:
    return next(each for each in verdict.gates if each.name == name)


def failed(verdict: Verdict) -> set[str]:
    return {each.name for each in verdict.gates if not each.passed}


def waiver(name: str, where: str, end: str = END) -> str:
    return f'[[waivers]]\ntap = "{name}"\ngate = "{where}"\n{end}'


def test_no_entries_change_nothing() -> None:
    verdict = make()
    assert apply_policy(verdict, Policy(), TODAY) is verdict
    assert verdict
    assert OUTPUT == RUNNER_OUTPUT


def test_a_tightened_bound_fails_and_is_reported(tmp_path: Path) -> None:
    verdict = under(tmp_path, make(tap("a.b", max_ratio=5.0)), "[bounds]\nnumerics = { value = 4 }\n")
    assert failed(verdict) == {"B"}
    assert gate(verdict, "B").findings == ("a.b has 5.0 times the reference's float32 error",)
    assert (gate(verdict, "B").bound, gate(verdict, "B").where) == (4.0, "a.b")
    assert gate(verdict, "P").findings == ("bound: numerics tightened to 4 (default 8)",)
    assert verdict.bounds["numerics"] == 4.0
    assert verdict.exit_code == 1


def test_a_loosened_bound_passes_and_is_reported(tmp_path: Path) -> None:
    text = "[bounds]\nlogic = { value = 1e-8, " + END.strip().replace("\n", ", ") + " }\n"
    verdict = under(tmp_path, make(tap("a.b", isolated=1e-9), tap("a.c", cumulative=1e-9)), text)
    assert verdict
    said = "bound: logic loosened to 1e-08 (default 1e-10) until 2027-01-31: fused kernel"
    assert gate(verdict, "P").findings == (said,)
    assert said in render_text(verdict)
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
    assert waived_taps(gate(waived, "A")) == {"a.b": "until 2027-01-31: fused kernel"}


def test_a_waiver_is_of_one_tap_and_one_gate(tmp_path: Path) -> None:
    broken = make(tap("a.b", isolated=1e-3), tap("a.c", isolated=1e-3))
    verdict = under(tmp_path, broken, waiver("a.b", "A"))
    assert failed(verdict) == {"A"}
    assert gate(verdict, "A").findings == (
        "a.c is off by 1.0e-03 fed the reference's input",
        "waived: a.b until 2027-01-31: fused kernel",
    )
    assert gate(verdict, "A").where == "a.c"
    assert [is_notice(finding) for finding in gate(verdict, "A").findings] == [False, True]
    assert verdict.taps == broken.taps


def test_an_expired_waiver_fails_and_waives_nothing(tmp_path: Path) -> None:
    broken, text = make(tap("a.b", isolated=1e-3)), waiver("a.b", "A")
    assert under(tmp_path, broken, text, date(2027, 1, 31))
    verdict = under(tmp_path, broken, text, date(2027, 2, 1))
    assert failed(verdict) == {"A", "P"}
    assert gate(verdict, "P").findings[0].startswith("waiver of a.b for gate A expired on 2027-01-31")
    assert "a.b is off" in gate(verdict, "A").findings[0]


def test_an_expired_bound_fails_even_where_nothing_is_off(tmp_path: Path) -> None:
    text = '[bounds]\ngradient = { value = 1, reason = "r", expires = 2026-11-20 }\n'
    verdict = under(tmp_path, make(), text)
    assert failed(verdict) == {"P"}
    assert len(gate(verdict, "P").findings) == 1
    assert gate(verdict, "P").findings[0].startswith("gradient expired on 2026-11-20")
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
    assert gate(verdict, "P").findings[0].startswith(f"waiver not needed: {name} ")


def test_a_waiver_for_the_other_gate_is_not_needed(tmp_path: Path) -> None:
    assert failed(under(tmp_path, make(tap("a.b", isolated=1e-3)), waiver("a.b", "B"))) == {"A", "P"}


def test_not_compared_cannot_be_waived(tmp_path: Path) -> None:
    gates = (
        Gate("0", "preflight", False, 19, 20, findings=("a.b did not run on both sides with inputs",)),
        Gate("A", "logic, float64", False, 3, 4, 1e-15, LOGIC, "a"),
        Gate("B", "numerics, float32", False, 3, 4, 1.5, NUMERICS, "a"),
    )
    lost = make(tap("a.b", isolated=0.0, inputs=0.0, cumulative=0.0, rms_ratio=0.0, max_ratio=0.0), gates=gates)
    for text in (waiver("a.b", "A") + waiver("a.b", "B"), waiver("a.c", "A"), "[bounds]\nlogic = { value = 1e-11 }\n"):
        verdict = under(tmp_path, lost, text)
        assert verdict.exit_code == 6
        assert {"0", "A", "B"} <= failed(verdict)
        assert gate(verdict, "0") == gates[0]


def test_words_that_are_not_known_stay(tmp_path: Path) -> None:
    gates = (Gate("A", "logic, float64", False, 4, 4, 1e-15, LOGIC, "a", ("a.b has lost a dimension",)),)
    verdict = under(tmp_path, make(gates=gates), "[bounds]\nleak = { value = 1e-6 }\n")
    assert gate(verdict, "A").findings == ("a.b has lost a dimension",)
    assert failed(verdict) == {"A"}
    gates = (Gate("B", "numerics, float32", False, 4, 4, 1.5, NUMERICS, "a", ("the port has no level cD9",)),)
    verdict = under(tmp_path, make(gates=gates), TestOutput.LOOSE)
    assert gate(verdict, "B").findings == ("the port has no level cD9",)
    assert failed(verdict) == {"B"}


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
        for verdict, said in ((make(whole=5.0), "output, whole network has 5.0"), (make(level=5.0), "output cA1 has")):
            judged = under(tmp_path, verdict, text)
            assert failed(judged) == {"B"}
            assert gate(judged, "B").findings[0].startswith(said)

    def test_waived(self, tmp_path: Path) -> None:
        assert under(tmp_path, make(whole=12.0, level=15.0), waiver(OUTPUT, "B"))
        assert not under(tmp_path, make(tap("a.b", rms_ratio=9.0), whole=12.0), waiver(OUTPUT, "B"))

    def test_what_is_not_recorded_is_not_taken_for_good(self, tmp_path: Path) -> None:
        """The whole network's ratio is known only as the largest value; beside a waived larger one it is not."""
        text = "[bounds]\nnumerics = { value = 4 }\n" + waiver("a.b", "B")
        verdict = under(tmp_path, make(tap("a.b", max_ratio=9.0), whole=5.0), text)
        assert failed(verdict) == {"B"}
        assert "cannot be judged" in gate(verdict, "B").findings[0]
        assert under(tmp_path, make(tap("a.b", max_ratio=9.0), whole=5.0), waiver("a.b", "B"))


class TestOneValue:
    """Gates with one largest value: a bound moves only what is a number."""

    ENDS = END.strip().replace("\n", ", ")

    def test_tightened(self, tmp_path: Path) -> None:
        verdict = under(tmp_path, make(), "[bounds]\ntable_ulp = { value = 0.25 }\nwavelet = { value = 1e-15 }\n")
        assert failed(verdict) == {"A'", "F"}
        assert gate(verdict, "F").bound == 1e-15

    def test_loosened(self, tmp_path: Path) -> None:
        text = f"[bounds]\ntable_ulp = {{ value = 4, {self.ENDS} }}\n"
        off = "table is 3.0 ulp from its formula"
        near = make(gates=(Gate("A'", "constants", False, 8, 8, 3.0, 2.0, "table", (off,)),))
        assert under(tmp_path, near, text)
        for word in ("table is nan ulp from its formula", "other of the port is no constant of its family"):
            worse = make(gates=(Gate("A'", "constants", False, 8, 8, 3.0, 2.0, "table", (off, word)),))
            assert gate(under(tmp_path, worse, text), "A'").findings == (word,)
            assert not under(tmp_path, worse, text)
        lost = make(gates=(Gate("A'", "constants", False, 7, 8, 3.0, 2.0, "table", (off,)),))
        assert under(tmp_path, lost, text).exit_code == 6

    def test_the_bound_of_the_other_boundary_modes(self, tmp_path: Path) -> None:
        text = f"[bounds]\nwavelet_extrapolated = {{ value = 1e-9, {self.ENDS} }}\n"
        off = make(gates=(Gate("F", "wavelet", False, 4, 4, 5e-10, 1e-12, "cD1", ("cD1 is off by 5.0e-10",)),))
        assert failed(under(tmp_path, off, text)) == {"F"}
        extrapolated = make(gates=(replace(gate(off, "F"), bound=1e-10),))
        assert under(tmp_path, extrapolated, text)


class TestOutcome:
    """What the tests of the pytest plugin say."""

    def test_sound(self) -> None:
        verdict = make()
        assert not tap_outcome(verdict, "A", "a.b").faults
        assert not gate_outcome(verdict, "F").faults
        assert not verdict_outcome(verdict, {"a", "a.b", "a.c", OUTPUT}).faults

    def test_faulty(self) -> None:
        verdict = make(tap("a.b", isolated=1e-3))
        said = tap_outcome(verdict, "A", "a.b").faults
        assert said[0] == "gate A, logic, float64: a.b (port: a/b)"
        assert said[1] == "a.b is off by 1.0e-03 fed the reference's input"
        assert said[2].endswith("0.001 alone, 1e-15 in what it is fed, 2e-15 within the network; bound 1e-10")
        assert not tap_outcome(verdict, "B", "a.b").faults
        assert not tap_outcome(verdict, "A", "a.c").faults
        assert verdict_outcome(verdict, {"a", "a.b", "a.c", OUTPUT}).faults

    def test_missing(self) -> None:
        verdict = make()
        assert tap_outcome(verdict, "A", "a.x").faults
        assert tap_outcome(verdict, "C", "a").faults
        assert gate_outcome(verdict, "C").faults
        assert gate_outcome(make(gates=(Gate("F", "wavelet", True, 3, 4),)), "F").faults
        assert "output was compared and has no test" in verdict_outcome(verdict, {"a", "a.b", "a.c"}).faults

    def test_waived(self, tmp_path: Path) -> None:
        verdict = under(tmp_path, make(tap("a.b", isolated=1e-3)), waiver("a.b", "A"))
        assert tap_outcome(verdict, "A", "a.b").waived == "until 2027-01-31: fused kernel"
        assert not tap_outcome(verdict, "A", "a.b").faults
        assert not tap_outcome(verdict, "A", "a.c").waived

    def test_not_compared_is_no_pass_and_no_waiver(self, tmp_path: Path) -> None:
        silent = tap("a.b", isolated=0.0, inputs=0.0, cumulative=0.0)
        lost = make(silent, gates=(Gate("0", "preflight", False, 19, 20),))
        assert "shows no error at all" in tap_outcome(lost, "A", "a.b").faults[1]
        broken = make(tap("a.b", isolated=inf), gates=(Gate("0", "preflight", False, 20, 20,
                      findings=("a.b: shape (2,) where the reference has (3,)",)),))  # fmt: skip
        verdict = under(tmp_path, broken, waiver("a.b", "A"))
        assert "a.b: shape (2,) where the reference has (3,)" in tap_outcome(verdict, "A", "a.b").faults
