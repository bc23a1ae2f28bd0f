"""Hand-made verdicts for the report tests, and the writing of report files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import pytest

from wdport.compare.findings import Gate, fact, measure, notice
from wdport.compare.gate_bounds import bounds
from wdport.compare.gates import float32_measures, float64_measures
from wdport.compare.setting_values import Setting, SettingsReport
from wdport.models.interface import PartWords
from wdport.parity.reports import render_html, render_json, render_junit, render_markdown, write_reports
from wdport.parity.reports.phrases import claim, nearness, number, outcome, place, probable, said_of, shortfall
from wdport.parity.reports.text import render_text
from wdport.parity.verdict import Fault, Overlay, PartResult, TapResult, Trajectory
from wdport.parity.verdict_api import Verdict
from wdport.uses.waveletdiff.family import FAMILY

HOSTILE = "<script>alert(1)</script>|`x` & \"y\" 'z' \x1b[31m\x00\ud800 $\\mid$ [a](http://b) ![c](d) @user www.e.org"
"""A layer's name that every format would stumble over."""

STEPS = tuple(range(49, -1, -1))


def taps() -> tuple[TapResult, ...]:
    """Ten layers of two levels and of none, an exact one among them, within all bounds."""
    found = []
    for index in range(10):
        level = None if index in (0, 9) else index % 2
        error = 0.0 if index == 3 else 1e-16 * (1 + index)
        found.append(TapResult(f"block.{index}.norm", f"block_{index}/norm", level, error, 0.0, 2 * error, 1.1, 1.3))
    return tuple(found)


NOTHING = Verdict("a", "b", (), (), (), None, {}, (), {})


def passing() -> Verdict:
    """Everything compared and equal, with trajectories of fifty steps."""
    growth = tuple(1e-16 * (1 + index) for index in range(50))
    return Verdict(
        checkpoint="runs/model.ckpt",
        converted="runs/model.keras",
        gates=(
            Gate("0", "preflight", 40, 40, facts=(notice("a deprecated key was read"),)),
            Gate("A'", "constants", 4, 4, (measure("table.0", "ulp", 0.5, "table_ulp"),)),
            Gate("A", "float64", 10, 10, tuple(chain(*map(float64_measures, taps())))),
            Gate("B", "float32", 10, 10, tuple(chain(*map(float32_measures, taps())))),
            Gate("E", "trajectories", 100, 100, (measure("DDPM", "step", 5e-15, "trajectory", ", step 0"),)),
        ),
        taps=taps(),
        parts=(PartResult("cA1", 1e-15, 2e-15, 1.2, 0.9), PartResult("cD1", 2e-15, None, 1.4, None)),
        decoded=2e-15,
        words=PartWords("level", "wavelet level", "coefficients", "series"),
        assumed={"heads": 4},
        inputs=("seed 0, batch 4", "seed 1, batch 1"),
        environment={"python": "3.11.7", "torch": "2.6", "keras": "3.15", "jax": "0.10", "device": "cpu:0"},
        bounds=bounds(),
        overlays=(Overlay("cA1", (0.0, 1.0, -1.0), (0.0, 1.0, -1.0)), Overlay("cD1", (0.5, 0.5), (0.5, 0.5))),
        trajectories=(
            Trajectory("DDPM", STEPS, growth, tuple(1e9 * error for error in growth)),
            Trajectory("DDIM", STEPS, (0.0,) * 50, (inf,) * 50),
        ),
        seconds=12.3456,
    )


def failing() -> Verdict:
    """One layer off in itself, one fed wrongly, one infinitely off, and the layers behind them."""
    made = list(taps())
    made[2] = replace(made[2], isolated=3e-5, cumulative=3e-5, rms_ratio=300.0)
    made[3] = replace(made[3], cumulative=5e-6, share32=(0.0, 0.9))
    made[5] = replace(made[5], inputs=1e-3, inputs_ratio=1e4)
    made[7] = replace(made[7], reference=HOSTILE, isolated=inf, cumulative=inf, max_ratio=inf)
    good = passing()
    gates = list(good.gates)
    gates[2] = replace(gates[2], measures=tuple(chain(*map(float64_measures, made))), facts=(fact("the sum is off"),))
    feature = measure("block.9.norm", "float32", 9.0, "numerics", " cD1 feature 2")
    gates[3] = replace(gates[3], measures=(*chain(*map(float32_measures, made)), feature))
    gates[4] = replace(gates[4], measures=(measure("DDPM", "step", 1.0, "trajectory", ", step 0"),))
    return replace(good, gates=tuple(gates), taps=tuple(made), causes={"block_2/norm": ("epsilon of 1e-6", "no bias")})


def incomplete() -> Verdict:
    """Two layers that did not run, and a gate that counted nothing."""
    good = passing()
    silent = fact("block.4.norm did not run on both sides with inputs that can be compared", "block.4.norm", "silent")
    lost = fact("a tensor is not accounted for", "a tensor")
    gates = [replace(good.gates[0], compared=38, facts=(silent, lost)), *good.gates[1:]]
    gates[2] = replace(gates[2], compared=9)
    gates[4] = Gate("E", "trajectories", 0, 0)
    return replace(good, gates=tuple(gates), trajectories=(), overlays=())


def test_the_three_are_what_they_are_called() -> None:
    verdicts = (passing(), failing(), incomplete(), replace(passing(), gates=()))
    assert [outcome(each) for each in verdicts] == ["PASS", "FAIL", "INCOMPLETE", "INCOMPLETE"]
    assert [each.exit_code for each in verdicts] == [0, 1, 6, 6]
    assert claim(passing()) == "model.keras computes what model.ckpt computes, assuming heads 4"
    assert claim(failing()) == "model.keras does not compute what model.ckpt computes, assuming heads 4"
    assert claim(incomplete()) == "not everything in model.keras could be compared with model.ckpt, assuming heads 4"


def test_outputs_that_agree_while_layers_do_not() -> None:
    """Code of the user's own may divide the work otherwise; a wrong variable or output is not that."""
    bad, equal = failing(), TapResult("output", "", None, cumulative=1e-15)
    gates = tuple(replace(gate, measures=(), facts=()) if gate.name == "E" else gate for gate in bad.gates)
    own = replace(bad, gates=gates, taps=(*bad.taps, equal), reference="mine:build", reference_kind="own")
    assert claim(own) == "model.keras gives the outputs of model.ckpt, assuming heads 4, but not by the same layers"
    wrong = replace(own, taps=(*bad.taps, replace(equal, cumulative=1e-3)))
    unequal = replace(own, gates=(replace(gates[0], facts=(fact("not its tensor", "w", "unequal"),)), *gates[1:]))
    raises = replace(own, gates=(replace(gates[0], facts=(fact("the port raises on inputs"),)), *gates[1:]))
    for other in (replace(own, reference_kind="wdport"), wrong, unequal, raises, replace(own, gates=bad.gates)):
        assert "does not compute what" in claim(other)


def test_only_float32_differs() -> None:
    bad, good = failing(), passing()
    gates = tuple(gate if gate.name == "B" else whole for gate, whole in zip(bad.gates, good.gates, strict=True))
    loose = replace(gates[3], measures=tuple(each for each in gates[3].measures if each.value < 1000.0))
    less = replace(bad, gates=(*gates[:3], loose, gates[4]))
    assert claim(less) == ("model.keras computes what model.ckpt computes in float64, assuming heads 4, "
                           "but has up to 300 times PyTorch's rounding error in float32")  # fmt: skip
    others = replace(less, gates=gates), replace(less, gates=(*bad.gates[:3], *less.gates[3:]))  # infinite; A as well
    for other in others:
        assert "does not compute what" in claim(other)


EVERYTHING = {"num_heads": 8, "prediction_target": "noise", "noise_schedule": "cosine", "dropout": 0.1,
              "boundary_mode": "symmetric", "wavelet": "db2", "seq_len": 24}  # fmt: skip
ASSUMING: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = [
    (("0", "A", "B"), "", ("num_heads",)),
    (("0", "A", "B", "F"), "", ("num_heads", "wavelet")),
    (("0", "A", "B", "C", "E", "F"), "", ("num_heads", "prediction_target", "noise_schedule", "wavelet")),
    (("0", "A", "B"), "mine:build", ()),
    (("0", "A", "B", "E", "F"), "mine:build", ("prediction_target", "noise_schedule", "wavelet")),
]


@pytest.mark.parametrize(("gates", "reference", "names"), ASSUMING)
def test_what_the_outcome_rests_on(gates: tuple[str, ...], reference: str, names: tuple[str, ...]) -> None:
    """What makes up the network, unless the user's own code is the reference and agrees; the rest with its gates."""
    run = tuple(Gate(name, "a gate", 1, 1) for name in gates)
    verdict = replace(passing(), gates=run, assumed=EVERYTHING, reference=reference, rests_on=FAMILY.rests_on)
    assert tuple(verdict.assuming) == names
    different = replace(verdict, gates=(*run[:-1], replace(run[-1], facts=(fact("off"),))))
    assert "num_heads" in different.assuming
    assert replace(verdict, assumed={"num_heads": None}).assuming == {}
    assert replace(verdict, assumed={}).assuming == {}


def unwrapped(text: str) -> list[str]:
    """The lines of a text report with what was wrapped put back, and single blanks."""
    lines: list[str] = []
    for line in text.splitlines():
        if len(line) - len(line.lstrip()) in (6, 9, 11):  # where what is wrapped goes on
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return [" ".join(line.split()) for line in lines]


def rendered(verdict: Verdict) -> dict[str, str]:
    environment = {**verdict.environment, "torch_matmul": "highest", "jax_matmul": "highest"}
    whole = replace(verdict, environment=environment)
    return {"text": render_text(whole), "markdown": render_markdown(whole), "html": render_html(whole),
            "junit": render_junit(whole), "json": render_json(whole)}  # fmt: skip


def plain(kind: str, text: str) -> str:
    """Without tags, entities and line breaks."""
    bare = re.sub(r"<[^>]*>", "", text) if kind in ("markdown", "html") else text
    return " ".join(re.sub(r"&#x?27;|&#39;|&apos;", "'", bare).replace("&#58;", ":").split())


SLOW = "momentum 0.99 where the reference has 0.1, which is 0.9 in Keras"
TOLD = SettingsReport(
    layers=10,
    compared=41,
    found=(
        Setting(
            "epsilon", 1e-5, 1e-3, "differs", "epsilon 0.001 where the reference has 1e-05", HOSTILE, "block_2/norm"
        ),
        Setting("momentum", 0.9, 0.99, "training", SLOW, "block.1.norm", "block_1/norm"),
        Setting("momentum", 0.9, 0.99, "training", SLOW, "block.2.norm", "block_2/norm"),
    ),
)


@pytest.mark.parametrize("make", [passing, failing, incomplete])
def test_every_format_shows_settings_that_differ_and_fails_nothing(make: Callable[[], Verdict]) -> None:
    verdict = replace(make(), settings=TOLD)
    assert verdict.exit_code == make().exit_code
    found = rendered(verdict)
    for kind in ("text", "markdown", "html", "json"):
        assert "0.001 where the reference has 1e-05" in plain(kind, found[kind]), kind
        assert "\x1b" not in found[kind]
    lines = unwrapped(found["text"])
    at = lines.index("WARN settings 41 compared at 10 layers; 1 differs, 2 that only training reads")
    assert lines[at + 2] == f"block.1.norm and 1 more: {SLOW}"
    assert "preflight" in lines[at + 3]
    assert found["markdown"].index("### Settings") < found["markdown"].index("### Gates")
    assert found["html"].index("<h2>Settings</h2>") < found["html"].index("<h2>Gates</h2>")
    assert "<script>alert" not in found["html"]
    told = json.loads(found["json"])["settings"]
    assert (told["layers"], told["compared"], told["found"][0]["level"]) == (10, 41, "differs")
    assert (told["found"][0]["torch"], told["found"][0]["keras"]) == (1e-5, 1e-3)


def test_settings_that_agree_or_are_unknown_take_one_line() -> None:
    none = "ok settings 4 compared at 1 layer; none differ"
    for report, line in (
        (SettingsReport(1, 4), none),
        (SettingsReport(1, 4, unread=("a", "b")), f"{none}; not read: a and 1 more"),
        (SettingsReport(note="no module"), "note settings not compared: no module"),
    ):
        assert line in unwrapped(rendered(replace(passing(), settings=report))["text"])
    assert "settings" not in rendered(passing())["text"]


def test_every_format_says_what_was_assumed_and_by_whom() -> None:
    ours = replace(passing(), assumed={"num_heads": 8})
    own = replace(ours, reference="mine:build")
    for kind, text in rendered(ours).items():
        said = plain(kind, text)
        assert ("assuming num_heads 8" if kind != "json" else '"assuming": { "num_heads": 8') in said, kind
        assert "your own code" not in said
        assert ("both sides use this" in said) == (kind in ("text", "markdown", "html")), kind
    for kind, text in rendered(own).items():
        said = plain(kind, text)
        assert "assuming num_heads" not in said
        assert "both sides use this" not in said
        confirmed = "your own code, mine:build, confirms those that define the network" in said
        assert confirmed == (kind in ("text", "markdown", "html")), kind
    assert rendered(ours)["text"].splitlines()[0].endswith("computes, assuming num_heads 8")
    differs = rendered(replace(failing(), reference="mine:build"))["text"]
    assert "the port uses this, your own code, mine:build, may not" in plain("text", differs)


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0"), (2.406, "2.41"), (8.0, "8"), (1.5e-15, "1.5e-15"), (30000.0, "3.0e+04"), (inf, "inf"), (-0.5, "-0.5")],
)
def test_numbers(value: float, said: str) -> None:
    assert number(value) == said


def test_a_tap_beyond_any_bound_is_nearer_than_one() -> None:
    made = failing().taps
    assert [index for index, tap in enumerate(made) if nearness(failing(), tap) > 1.0] == [2, 3, 5, 7]
    assert nearness(failing(), made[7]) == inf
    loose = replace(failing(), bounds={**bounds(), "logic": 1.0, "numerics": 1e6})
    assert [index for index, tap in enumerate(made) if nearness(loose, tap) > 1.0] == [7]


def test_findings_go_to_what_they_are_about_and_notices_to_nothing() -> None:
    told = (fact("a.b is off", "a.b"), fact("it is off", "a"), notice("a is new", "a"), fact("a.b.c is off", "a.b.c"))
    gates = (Gate("A", "logic", 4, 4, facts=told), Gate("B", "numerics", 4, 4, facts=(fact("no", "a"),)))
    verdict = replace(passing(), gates=gates)
    assert said_of(verdict, ["a", "a.b"], ("A",)) == {"a.b": ["a.b is off"], "a": ["it is off"]}
    assert said_of(verdict, ["a"], ("B", "A")) == {"a": ["it is off", "no"]}


def test_a_finding_in_json_is_data_and_a_sentence() -> None:
    gate = next(gate for gate in failing().to_json()["gates"] if gate["name"] == "B")
    assert gate["findings"][-1] == {
        "subject": "block.9.norm",
        "part": "cD1 feature 2",
        "kind": "float32",
        "value": 9.0,
        "bound": 8.0,
        "leak": False,
        "text": "block.9.norm cD1 feature 2 has 9.0 times the reference's float32 error",
    }


def test_places_causes_and_shortfalls() -> None:
    assert place(Fault("a", "b", "", 1.0, 1.0)) == "a -> b"
    assert place(Fault("", "", "a.b", 1.0, 1.0)) == "the network itself, in what it feeds a.b"
    assert place(Fault("output.mean", "", "", 1.0, 1.0)) == "the network itself, in its output mean"
    verdict = failing()
    assert next(probable(verdict, fault) for fault in verdict.faults) == "epsilon of 1e-6 or no bias"
    assert not any(map(shortfall, verdict.gates))
    assert [shortfall(gate) for gate in incomplete().gates] == [
        "38 of 40 compared", "", "9 of 10 compared", "", "nothing was compared"
    ]  # fmt: skip


def _without_surrogates(value: Any) -> Any:
    """The same with unpaired surrogates escaped, which JSON readers refuse."""
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(each) for each in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


@pytest.mark.parametrize("make", [passing, failing, incomplete])
def test_files_hold_what_is_rendered_and_nothing_else_is_left(make: Callable[[], Verdict], tmp_path: Path) -> None:
    verdict = make()
    names = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "markdown", "html")}
    names["json"].write_text("old")
    write_reports(verdict, **names, force=True)
    assert sorted(tmp_path.iterdir()) == sorted(names.values())
    assert json.loads(names["json"].read_bytes()) == _without_surrogates(verdict.to_json())
    assert names["json"].read_text() == render_json(verdict)
    assert names["junit"].read_text(encoding="utf-8") == render_junit(verdict)
    assert names["markdown"].read_text(encoding="utf-8") == render_markdown(verdict)
    assert names["html"].read_text(encoding="utf-8") == render_html(verdict)


def test_only_what_is_asked_for_is_written(tmp_path: Path) -> None:
    write_reports(passing())
    write_reports(passing(), junit=str(tmp_path / "only.xml"))
    assert [path.name for path in tmp_path.iterdir()] == ["only.xml"]


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_reports(passing(), markdown=pipe)
        assert os.read(reader, 1 << 16).startswith(b"## PASS")
    finally:
        os.close(reader)
    assert pipe.is_fifo()
