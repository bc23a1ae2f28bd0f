"""The baseline: what gets worse fails, what gets better fails until it is recorded, and files are whole."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from tests.parity.test_policy_verdict import TODAY, gate, make, tap, under, waiver
from wdport.base.errors import IncompleteError, InputError, MachineError, UsageError
from wdport.compare.findings import Gate
from wdport.parity.policy import apply_baseline, compare_baseline, make_baseline, read_baseline, write_baseline


def test_numbers_are_rounded_up_to_one_digit() -> None:
    made = make_baseline(make(tap("a.b", isolated=1.1e-14, cumulative=2e-14, rms_ratio=2.01)))
    assert made["schema"] == 1
    assert list(made["taps"]) == sorted(made["taps"])
    assert made["taps"]["a.b"] == {"isolated": 2e-14, "cumulative": 2e-14, "rms_ratio": 3.0}
    assert make_baseline(make(tap("a.b", isolated=0.0, rms_ratio=0.0)))["taps"]["a.b"] == {
        "isolated": 1e-15, "cumulative": 2e-15, "rms_ratio": 1.0}  # fmt: skip


def test_what_has_not_changed_passes_and_rounding_is_stable() -> None:
    verdict = make()
    assert compare_baseline(verdict, make_baseline(verdict)) == []
    recorded = make_baseline(verdict)["taps"]["a"]
    assert make_baseline(make(tap("a", **recorded)))["taps"]["a"] == recorded


CHANGES: dict[str, tuple[dict[str, float], dict[str, float], str]] = {
    "worse": ({"isolated": 2e-15}, {"isolated": 2.1e-14}, "isolated is 2.1e-14, over 10 x its recorded 2e-15"),
    "worse but still tiny": ({"isolated": 1e-15}, {"isolated": 1e-14}, ""),
    "ten times": ({"isolated": 2e-15}, {"isolated": 2e-14}, ""),
    "worse in the network": ({}, {"cumulative": 1e-12}, "cumulative is 1.0e-12"),
    "infinite": ({}, {"isolated": inf}, "isolated is inf"),
    "nan": ({}, {"isolated": nan}, "isolated is inf"),
    "worse ratio": ({"rms_ratio": 2.0}, {"rms_ratio": 3.1}, "rms_ratio is 3.1e+00, over 1.5 x its recorded 2"),
    "ratio still small": ({"rms_ratio": 1.0}, {"rms_ratio": 2.0}, ""),
    "better": ({"isolated": 3e-13}, {"isolated": 2e-15}, "update-baseline"),
    "a hundredth": ({"isolated": 2e-13}, {"isolated": 2e-15}, ""),
    "better ratio": ({"rms_ratio": 7.0}, {"rms_ratio": 2.0}, "update-baseline"),
    "a third": ({"rms_ratio": 6.0}, {"rms_ratio": 2.0}, ""),
    "a perfect one cannot get better": ({"isolated": 1e-13}, {"isolated": 0.0}, ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes(name: str) -> None:
    before, after, said = CHANGES[name]
    baseline = make_baseline(make(tap("a.b", **before)))
    verdict = make(tap("a.b", **after))
    faults = compare_baseline(verdict, baseline)
    judged = apply_baseline(verdict, baseline)
    if not said:
        assert faults == []
        assert gate(judged, "R").passed
        return
    assert len(faults) == 1
    assert faults[0].subject == "a.b"
    assert said in str(faults[0])
    assert gate(judged, "R").findings == tuple(faults)
    assert not judged
    assert judged.exit_code == 1


def test_new_and_gone() -> None:
    verdict = make()
    fewer = replace(verdict, taps=tuple(each for each in verdict.taps if each.reference != "a.b"))
    assert "a.b is not in the baseline" in str(compare_baseline(verdict, make_baseline(fewer))[0])
    (gone,) = compare_baseline(fewer, make_baseline(verdict))
    assert str(gone) == "a.b is in the baseline and was not compared"
    assert not apply_baseline(fewer, make_baseline(verdict))


def test_only_what_passes_is_recorded(tmp_path: Path) -> None:
    broken = make(tap("a.b", isolated=inf))
    with pytest.raises(UsageError, match=r"fails float64"):
        make_baseline(broken)
    with pytest.raises(IncompleteError):
        make_baseline(make(gates=(Gate("0", "preflight", 19, 20),)))
    made = make_baseline(under(tmp_path, broken, waiver("a.b", "A"), TODAY))
    assert made["taps"]["a.b"]["isolated"] == "inf"
    write_baseline(tmp_path / "b.json", made)
    read = read_baseline(tmp_path / "b.json")
    assert compare_baseline(broken, read) == []
    assert "update-baseline" in str(compare_baseline(make(), read)[0])


def test_a_baseline_that_is_not_met_can_be_replaced() -> None:
    later = apply_baseline(make(tap("a.b", isolated=1e-12)), make_baseline(make()))
    assert not later
    assert compare_baseline(later, make_baseline(later)) == []


def test_files_are_the_same_every_time_and_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, made = tmp_path / "parity-baseline.json", make_baseline(make())
    write_baseline(file, made)
    text = file.read_text()
    assert len(text.splitlines()) == len(made["taps"]) + 5
    assert read_baseline(file) == made
    write_baseline(file, read_baseline(file))
    assert file.read_text() == text

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(MachineError, match="No space left"):
        write_baseline(file, {"schema": 1, "taps": {}})
    assert file.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its folder does not exist"):
        write_baseline(tmp_path / "no" / "b.json", make_baseline(make()))


GOOD = {"isolated": 1e-15, "cumulative": 1e-15, "rms_ratio": 1.0}
BAD: dict[str, str] = {
    "no JSON": "{",
    "too deep": "[" * 100_000,
    "a list": "[]",
    "no schema": json.dumps({"taps": {"a": GOOD}}),
    "another schema": json.dumps({"schema": 2, "taps": {"a": GOOD}}),
    "a true schema": json.dumps({"schema": True, "taps": {"a": GOOD}}),
    "more": json.dumps({"schema": 1, "taps": {"a": GOOD}, "x": 1}),
    "no taps": json.dumps({"schema": 1, "taps": {}}),
    "taps as a list": json.dumps({"schema": 1, "taps": [GOOD]}),
    "a number too few": json.dumps({"schema": 1, "taps": {"a": {"isolated": 1.0}}}),
    "a text": json.dumps({"schema": 1, "taps": {"a": {**GOOD, "isolated": "1e-15"}}}),
    "a truth value": json.dumps({"schema": 1, "taps": {"a": {**GOOD, "isolated": True}}}),
    "NaN": json.dumps({"schema": 1, "taps": {"a": {**GOOD, "isolated": nan}}}),
    "Infinity": json.dumps({"schema": 1, "taps": {"a": {**GOOD, "isolated": inf}}}),
    "a huge whole number": json.dumps({"schema": 1, "taps": {"a": {**GOOD, "isolated": 10**400}}}),
    "below the least": json.dumps({"schema": 1, "taps": {"a": {**GOOD, "rms_ratio": 0.5}}}),
    "twice": '{"schema": 1, "taps": {"a": {}, "a": {}}}',
}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_baseline(tmp_path / "none.json")
