"""``parity.toml``: what is unknown, unexplained or endless is refused, with the file, the key and exit code 2."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from wdport.base.errors import InputError
from wdport.compare.gate_bounds import LOGIC, NUMERICS
from wdport.parity.policy import Policy, loosened, read_policy

TODAY = date(2026, 11, 21)
WHOLE = """
[bounds]
logic = { value = 1e-9, reason = "emulated float64", expires = 2027-01-31 }
numerics = { value = 4 }
[[waivers]]
tap = "time_embedding.mlp.2"
gate = "float32"
reason = "fused"
expires = 2027-01-31
"""
WAIVER = '[[waivers]]\ntap = "a.b"\ngate = "A"\nreason = "r"\nexpires = 2027-01-31\n'


def read(folder: Path, text: str) -> Policy:
    file = folder / "parity.toml"
    file.write_text(text, encoding="utf-8")
    return read_policy(file, TODAY)


def test_a_whole_file(tmp_path: Path) -> None:
    policy = read(tmp_path, f"\ufeff{WHOLE}")  # a byte-order mark, as editors on Windows write
    assert policy.source.endswith("parity.toml")
    assert [(each.name, each.value, each.default) for each in policy.bounds] == [
        ("logic", 1e-9, LOGIC),
        ("numerics", 4.0, NUMERICS),
    ]
    assert policy.bounds[0].expires == date(2027, 1, 31)
    assert [(each.tap, each.gate) for each in policy.waivers] == [("time_embedding.mlp.2", "B")]
    assert loosened(policy) == {"logic": 1e-9}


def test_an_empty_file_is_an_empty_policy(tmp_path: Path) -> None:
    policy = read(tmp_path, "")
    assert not policy.bounds
    assert not policy.waivers
    assert loosened(policy) == {}


def test_what_has_expired_is_read_and_is_not_in_force(tmp_path: Path) -> None:
    policy = read(tmp_path, '[bounds]\nlogic = { value = 1e-9, reason = "r", expires = 2026-11-20 }\n')
    assert loosened(policy) == {}
    assert policy.bounds_on(TODAY) == {"logic": LOGIC}
    assert policy.bounds_on(date(2026, 11, 20)) == {"logic": 1e-9}


@pytest.mark.parametrize(("text", "fails"), [('"fail"', True), ('"warn"', False)])
def test_settings_may_fail(tmp_path: Path, text: str, fails: bool) -> None:
    assert read(tmp_path, f"[settings]\ndiffers = {text}\n").settings is fails
    assert not read(tmp_path, "[settings]\n").settings


REFUSALS = {
    "settings that do something else": ('[settings]\ndiffers = "ignore"', "settings.differs"),
    "an unknown key of settings": ("[settings]\nepsilon = 1", "settings.epsilon"),
    "loosened without a reason": ("[bounds]\nlogic = { value = 1e-9, expires = 2027-01-31 }", "bounds.logic.reason"),
    "loosened without an end": ('[bounds]\nlogic = { value = 1e-9, reason = "r" }', "bounds.logic.expires"),
    "loosened to infinity": ('[bounds]\nlogic = { value = inf, reason = "r", expires = 2027-01-31 }', "bounds.logic"),
    "loosened to nan": ('[bounds]\nlogic = { value = nan, reason = "r", expires = 2027-01-31 }', "bounds.logic.value"),
    "beyond float64": (f"[bounds]\nlogic = {{ value = 1{'0' * 400} }}", "bounds.logic.value"),
    "zero": ("[bounds]\nlogic = { value = 0 }", "bounds.logic.value"),
    "no value": ("[bounds]\nlogic = { }", "bounds.logic.value"),
    "a truth value": ("[bounds]\nnumerics = { value = true }", "bounds.numerics.value"),
    "a text": ('[bounds]\nnumerics = { value = "4" }', "bounds.numerics.value"),
    "a bare number": ("[bounds]\nnumerics = 4", "bounds.numerics"),
    "an unknown bound": ("[bounds]\nlogics = { value = 1e-11 }", "bounds.logics"),
    "an unknown key of a bound": ("[bounds]\nlogic = { value = 1e-11, until = 3 }", "bounds.logic.until"),
    "an unknown key": ("[bound]\nlogic = { value = 1e-11 }", "bound: is an unknown key"),
    "bounds that are no table": ("bounds = 3", "bounds"),
    "a waiver without a reason": (WAIVER.replace('reason = "r"\n', ""), "waivers[0].reason"),
    "a waiver with an empty reason": (WAIVER.replace('"r"', '" "'), "waivers[0].reason"),
    "a waiver without an end": (WAIVER.replace("expires = 2027-01-31\n", ""), "waivers[0].expires"),
    "a waiver without a tap": (WAIVER.replace('tap = "a.b"\n', ""), "waivers[0].tap"),
    "a waiver without a gate": (WAIVER.replace('gate = "A"\n', ""), "waivers[0].gate"),
    "an end as text": (WAIVER.replace("2027-01-31", '"2027-01-31"'), "waivers[0].expires"),
    "an end with a time": (WAIVER.replace("2027-01-31", "2027-01-31T00:00:00"), "waivers[0].expires"),
    "an unknown gate": (WAIVER.replace('"A"', '"Z"'), "waivers[0].gate"),
    "the preflight gate": (WAIVER.replace('"A"', '"0"'), "waivers[0].gate"),
    "a pattern": (WAIVER.replace("a.b", "a.*"), "waivers[0].tap"),
    "an unknown key of a waiver": (WAIVER + "owner = 1\n", "waivers[0].owner"),
    "the second waiver": (WAIVER + WAIVER.replace('"A"', '"B"').replace('reason = "r"\n', ""), "waivers[1].reason"),
    "the same waiver twice": (WAIVER + WAIVER, "waivers[1]"),
    "twice by two names of a gate": (WAIVER + WAIVER.replace('"A"', '"float64"'), "waives a.b for float64 (A) again"),
    "a gate that judges no layer": (WAIVER.replace('"A"', '"gradients"'),
                                    "gate 'gradients' does not judge single layers; use float64 or float32"),
    "a gate that does not exist": (WAIVER.replace('"A"', '"float16"'),
                                   "gate 'float16' does not exist; use float64 or float32"),
    "one waiver that is not an array": (WAIVER.replace("[[waivers]]", "[waivers]"), "waivers"),
    "no TOML": ("[bounds", "is not TOML"),
    "too deep": ("a = " + "[" * 100_000, "is not TOML"),
    "too long": ("#" * (1 << 20) + "\n", "has 1048577 bytes"),
    "a name of many parts": (".".join("a" * 60_000) + " = 1", "has a line with 59999 dots"),
}  # fmt: skip


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(InputError, match=r"no such file|is a directory"):
            read_policy(path, TODAY)
    (tmp_path / "latin.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(InputError, match="UTF-8"):
        read_policy(tmp_path / "latin.toml", TODAY)
