"""The pytest plugin: names without a run, one run per pair, and nothing that was not compared passes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import keras  # noqa: F401  everything heavy, before an inner run could import it and throw it away again
import pytest

import pytest_wdport
import wdport
import wdport.parity.pytest_items
import wdport.uses.waveletdiff.reference
from tests.make import TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from wdport.base.errors import MachineError, UsageError
from wdport.compare.findings import Gate, measure
from wdport.compare.gate_bounds import bounds
from wdport.compare.gates import float32_measures, float64_measures
from wdport.parity import pair_verdict as running
from wdport.parity.planned_items import PlannedItems, expected
from wdport.parity.policy import make_baseline, write_baseline
from wdport.parity.verdict import TapResult, Verdict
from wdport.parity.verify_options import Pair, is_fresh

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "no:wdport", "-p", "pytest_wdport", "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
          "-p", "no:unraisableexception")  # fmt: skip
"""As a module by its own name, whether or not the installed wdport brings it under another. At the end of every run,
the last two plugins would import all of hypothesis, and look through all objects of the process: a second together."""

NORM = "level_transformers.0.blocks.0.norm1"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with its conversion beside it."""
    path = save(tmp_path_factory.mktemp("pair") / "small.ckpt", make_state(TWO_LEVELS))
    wdport.convert(path, values=TWO_LEVELS_SETTINGS)
    return path


@pytest.fixture
def run(pytester: pytest.Pytester, pair: Path) -> Run:
    """pytest in a folder with the pair, with the plugin."""
    for file in (pair, pair.with_suffix(".keras")):
        shutil.copy(file, pytester.path)
    return lambda *arguments: pytester.runpytest_inprocess(*PLUGIN, *arguments)


def layers(checkpoint: Path, converted: Path) -> tuple[str, ...]:
    """The layers that tests are named by."""
    return expected(Pair(converted, checkpoint)).layers


class Stub:
    """In place of a comparison: a verdict at once, of the layers that the plugin names."""

    def __init__(self, **changed: dict[str, float]) -> None:
        self.changed = changed
        self.runs: list[tuple[str, str]] = []
        self.pairs: list[Pair] = []
        self.lost: tuple[str, ...] = ()
        self.left_out: dict[str, str] = {}

    def __call__(self, pair: Pair) -> Verdict:
        checkpoint, converted = Path(str(pair.checkpoint or pair.against)), Path(pair.converted)
        self.runs.append((checkpoint.name, converted.name))
        self.pairs.append(pair)
        names = expected(pair).layers
        taps = [replace(TapResult(name, name, None, 1e-15, 1e-15, 1e-15, 1.0, 1.0, 1.0), **self.changed.get(name, {}))
                for name in names if name not in self.lost]  # fmt: skip
        count = len(taps)
        gates = (
            Gate("0", "preflight", len(taps), len(names)),
            Gate("A'", "constants", 8, 8, (measure("table", "ulp", 0.5, "table_ulp"),)),
            Gate("A", "float64", count, len(names), tuple(chain(*map(float64_measures, taps)))),
            Gate("B", "float32", count, len(names), tuple(chain(*map(float32_measures, taps)))),
            Gate("E'", "sampling network", 1, 1, (measure("network", "float32", 1.0, "numerics"),)),
            Gate("H", "samplers", 1, 1, (measure("sampler ddim", "error", 1e-15, "trajectory"),)),
        )
        return Verdict(str(checkpoint), str(converted), gates, tuple(taps), (), None, {}, (), {}, bounds(),
                       left_out=self.left_out)  # fmt: skip


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    made = Stub()
    monkeypatch.setattr(running, "verify_pair", lambda pair, *_: made(pair))
    return made


def test_real(run: Run, pair: Path) -> None:
    """Names are settled before the run; the test `verdict` fails if they are not those that it compares."""
    done = run("--wdport-checkpoint", "small.ckpt", "-q")
    count = 2 * len(layers(pair, pair.with_suffix(".keras"))) + 5
    done.assert_outcomes(passed=count)
    assert done.ret == 0


def test_ids(run: Run, stub: Stub) -> None:
    done = run("--wdport-checkpoint", "small.ckpt", "--wdport-converted", "small.keras", "--collect-only", "-q")
    lines = done.outlines
    for name in ("preflight", "constants", f"float64::{NORM}", f"float32::{NORM}", "float32::output",
                 "sampling-network", "verdict"):  # fmt: skip
        assert f"wdport::small.ckpt::{name}" in lines
    for name in ("bfloat16", "gradients", "policy", "baseline", "known-faults"):
        assert f"wdport::small.ckpt::{name}" not in lines
    assert stub.runs == []


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        (f"A::{NORM}.norm", 1),
        (f"{NORM} and not B::", 3),
        ("small.ckpt and (verdict or float32::output or sampling-network)", 3),
    ],
)
def test_ids_can_be_chosen(run: Run, stub: Stub, expression: str, count: int) -> None:
    done = run("--wdport-checkpoint", "small.ckpt", "-k", expression)
    assert done.parseoutcomes()["passed"] == count
    assert stub.runs == [("small.ckpt", "small.keras")]


def test_ids_can_be_deselected(run: Run, stub: Stub) -> None:
    done = run("--wdport-checkpoint", "small.ckpt", "--deselect", "wdport::small.ckpt::float64", "--deselect",
               "wdport::small.ckpt::float32::")  # fmt: skip
    done.assert_outcomes(passed=5, deselected=done.parseoutcomes()["deselected"])


def test_failures_say_what_and_where(run: Run, stub: Stub) -> None:
    stub.changed = {NORM: {"isolated": 1e-3, "rms_ratio": inf}}
    done = run("--wdport-checkpoint", "small.ckpt", "-rf")
    done.assert_outcomes(failed=3, passed=done.parseoutcomes()["passed"])
    done.stdout.fnmatch_lines_random([
        f"*float64 (A), {NORM} of small.ckpt*",
        f"float64: {NORM} (port: *",
        f"{NORM} is off by 1.0e-03 when fed the reference's input",
        "float64 error: 0.001 isolated, 1e-15 in its inputs, 1e-15 within the network; bound 1e-10",
        f"{NORM} has inf times the reference's float32 error",
        f"FAILED wdport::small.ckpt::float64::{NORM} - *",
        "FAILED wdport::small.ckpt::verdict - *",
    ])  # fmt: skip
    assert "Traceback" not in done.stdout.str()


def test_what_was_not_compared_fails(run: Run, stub: Stub) -> None:
    stub.lost = (NORM,)
    done = run("--wdport-checkpoint", "small.ckpt", "-rf", "-q")
    done.assert_outcomes(failed=4, passed=done.parseoutcomes()["passed"])
    done.stdout.fnmatch_lines_random(["FAILED wdport::small.ckpt::preflight*", f"{NORM} is not in the verdict*"])


def test_a_layer_without_a_test_fails(run: Run, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fewer(pair: Pair) -> PlannedItems:
        found = expected(pair)
        return replace(found, layers=tuple(name for name in found.layers if name != NORM))

    monkeypatch.setattr(wdport.parity.pytest_items, "expected", fewer)
    done = run("--wdport-checkpoint", "small.ckpt", "-k", "verdict")
    done.assert_outcomes(failed=1, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines([f"{NORM} was compared and has no test"])


def test_an_error_of_the_run_is_one_line_and_is_kept(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def refuse(*_: Any) -> None:
        runs.append(1)
        raise MachineError("verify", "no room", "make some")

    monkeypatch.setattr(running, "verify_pair", refuse)
    done = run("--wdport-checkpoint", "small.ckpt", "-k", f"{NORM}.norm")
    done.assert_outcomes(failed=2, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines(["verify: no room; make some"])
    assert len(runs) == 1


WAIVER = '[[waivers]]\ntap = "{}"\ngate = "A"\nreason = "fused"\nexpires = {}\n'


def test_a_policy(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    stub.changed = {NORM: {"isolated": 1e-3}}
    chosen = ("--wdport-checkpoint", "small.ckpt", "--wdport-policy", "parity.toml", "--wdport-no-canary", "-k",
              f"A::{NORM} or verdict")  # fmt: skip
    file = pytester.path / "parity.toml"
    file.write_text(WAIVER.format(NORM, "2999-01-31"))
    done = run(*chosen, "-rx")
    done.assert_outcomes(passed=3, xfailed=1, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines([f"XFAIL wdport::small.ckpt::float64::{NORM} - *waived until 2999-01-31: fused"])
    run(*chosen, "--runxfail").assert_outcomes(failed=1, passed=3, deselected=done.parseoutcomes()["deselected"])
    file.write_text(WAIVER.format(NORM, "2020-01-31"))
    run(*chosen).assert_outcomes(failed=2, passed=2, deselected=done.parseoutcomes()["deselected"])
    file.write_text(WAIVER.format(NORM, "2999-01-31").replace('reason = "fused"\n', ""))
    done = run(*chosen)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: *waivers?0?.reason: is missing*"])


def test_looser_bounds_and_what_was_not_done_are_named(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    bound = '[bounds]\nnumerics = {value = 1e9, reason = "fused", expires = 2999-01-31}\n'
    (pytester.path / "parity.toml").write_text(bound)
    skip = ("--wdport-no-canary", "--wdport-no-fresh", "-k", "verdict")
    done = run("--wdport-checkpoint", "small.ckpt", "--wdport-policy", "parity.toml", *skip)
    assert done.ret == 0
    done.stdout.fnmatch_lines([
        "wdport: small.keras computes what small.ckpt computes, by the policy's looser bounds",
        "wdport: small.keras: known faults were not tried",
        "wdport: small.keras: fresh inputs were not compared",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--wdport-checkpoint", "none.ckpt"), "there is no none.ckpt"),
        (("--wdport-checkpoint", ""), "--wdport-checkpoint is empty"),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-policy", ""), "--wdport-policy is empty"),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-converted", "none.keras"), "there is no none.keras"),
        (("--wdport-against", "none.npz", "--wdport-converted", "small.keras"), "there is no none.npz"),
        (("--wdport-baseline", "a.json"), "more often"),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-baseline", "none.json"), "no such file"),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-set", "heads"), "is not KEY=VALUE"),
        (
            ("--wdport-against", "small.ckpt", "--wdport-full"),
            "--wdport-full: needs the PyTorch model to run; *--wdport-against",
        ),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-policy", "none.toml"), "no such file"),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-checkpoint", "small.ckpt"), "given twice"),
    ],
)
def test_wrong_options_end_the_run(run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: *{said}*"])


@pytest.mark.parametrize("name", ["schedule", "schedule-class"])
@pytest.mark.parametrize("in_file", [False, True])
def test_a_former_name_is_the_present_option(
    run: Run, pytester: pytest.Pytester, name: str, in_file: bool
) -> None:  # fmt: skip
    if in_file:
        pytester.makeini(f"[pytest]\nwdport_{name.replace('-', '_')} = m:Schedule")
    done = run("--wdport-checkpoint", "small.ckpt", *([] if in_file else [f"--wdport-{name}", "m:Schedule"]))
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: *--wdport-schedule-class: is for --wdport-with-optimizer; *"])


def test_a_bad_file_is_one_failing_test(run: Run, pytester: pytest.Pytester, stub: Stub) -> None:
    (pytester.path / "bad.ckpt").write_text("no checkpoint")
    pytester.makepyfile("def test_other(): pass")
    done = run(
        "--wdport-checkpoint", "bad.ckpt", "--wdport-converted", "small.keras", "test_a_bad_file_is_one_failing_test.py"
    )
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(["*bad.ckpt*"])
    assert stub.runs == []


@pytest.mark.parametrize(("words", "outcomes"), [
    (("-k", "norm1"), {"failed": 1}), (("-k", "other"), {"failed": 1, "passed": 1}),
    (("-k", "other and not wdport"), {"passed": 1, "deselected": 1}), (("-m", "not wdport"), {"passed": 1}),
])  # fmt: skip
def test_a_bad_file_never_stops_other_tests_that_are_selected(
    run: Run, pytester: pytest.Pytester, stub: Stub, words: tuple[str, ...], outcomes: dict[str, int]
) -> None:
    (pytester.path / "bad.ckpt").write_text("no checkpoint")
    pytester.makepyfile("def test_other(): pass")
    done = run("--wdport-checkpoint", "bad.ckpt", "--wdport-converted", "small.keras", *words)
    counted = done.parseoutcomes()
    assert {name: counted[name] for name in counted if name in ("failed", "passed", "errors")} == {
        name: count for name, count in outcomes.items() if name != "deselected"}  # fmt: skip
    assert stub.runs == []


def test_the_file_next_to_a_recording_lacks_its_run(run: Run, pytester: pytest.Pytester, stub: Stub) -> None:
    (pytester.path / "small.run.npz").write_bytes(b"")
    (pytester.path / "small.keras").rename(pytester.path / "other.keras")
    done = run("--wdport-against", "small.run.npz")
    done.stderr.fnmatch_lines(["*there is no small.keras*"])


def test_pairs_go_together_in_order(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    (pytester.path / "deep").mkdir()
    for name in ("deep/small.ckpt", "b.ckpt"):
        shutil.copy(pytester.path / "small.ckpt", pytester.path / name)
    for name in ("deep/small.keras", "c.keras"):
        shutil.copy(pytester.path / "small.keras", pytester.path / name)
    done = run("--wdport-checkpoint", "b.ckpt", "--wdport-converted", "c.keras", "--wdport-checkpoint", "small.ckpt",
               "--wdport-checkpoint", "deep/small.ckpt", "-k", "verdict", "-v")  # fmt: skip
    done.assert_outcomes(passed=3, deselected=done.parseoutcomes()["deselected"])
    assert stub.runs == [("b.ckpt", "c.keras"), ("small.ckpt", "small.keras"), ("small.ckpt", "small.keras")]
    done.stdout.fnmatch_lines([f"wdport::{name}::verdict PASSED*" for name in
                               ("b.ckpt", "small.ckpt", "deep/small.ckpt")])  # fmt: skip


def test_fixtures(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_verdict(wdport_verdict):
            assert wdport_verdict and wdport_verdict.taps

        def test_verify(wdport_verify, wdport_verdict):
            assert wdport_verify("small.ckpt") is wdport_verdict is wdport_verify("small.ckpt", "./small.keras")
    """)
    run("--wdport-checkpoint", "small.ckpt", "-k", "test_").assert_outcomes(
        passed=2, deselected=2 * len(layers(pytester.path / "small.ckpt", pytester.path / "small.keras")) + 5
    )
    assert len(stub.runs) == 1
    done = run()
    done.assert_outcomes(passed=0, errors=2)
    done.stdout.fnmatch_lines(["wdport_verdict needs a pair: pytest --wdport-checkpoint FILE"])


def test_a_changed_file_is_verified_again(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os

        def test_verify(wdport_verify):
            first = wdport_verify("small.ckpt")
            os.utime("small.keras", (1, 1))
            assert wdport_verify("small.ckpt") is not first
    """)
    run().assert_outcomes(passed=1)
    assert len(stub.runs) == 2


INI = """
[pytest]
wdport_checkpoint = small.ckpt
wdport_policy = parity.toml
wdport_no_canary = true
"""


def test_the_configuration_file(run: Run, stub: Stub, pytester: pytest.Pytester, monkeypatch: Any) -> None:
    """Its paths are relative to it. Its pairs are tested where no paths are named, as its ``testpaths`` are; a pair of
    the command line takes their place, and the rest of the file still holds."""
    pytester.makeini(INI)
    pytester.makepyfile("def test_a(wdport_verdict): assert wdport_verdict")
    (pytester.path / "parity.toml").write_text("[bounds]\nlogic = { value = 1e-12 }\n")
    shutil.copy(pytester.path / "small.ckpt", pytester.path / "other.ckpt")
    (pytester.path / "below").mkdir()
    chosen = ("-k", "verdict or policy or test_a", "-v")
    done = run("test_the_configuration_file.py", *chosen)
    done.assert_outcomes(passed=1)
    assert stub.runs == [("small.ckpt", "small.keras")]
    stub.runs.clear()
    monkeypatch.chdir(pytester.path / "below")
    done = run("--wdport-checkpoint", "../other.ckpt", "--wdport-converted", "../small.keras", *chosen)
    done.stdout.fnmatch_lines_random(["*wdport::other.ckpt::policy PASSED*", "*wdport::other.ckpt::verdict PASSED*"])
    done = run(*chosen)
    done.stdout.fnmatch_lines_random(["*wdport::small.ckpt::policy PASSED*", "*wdport::small.ckpt::verdict PASSED*"])
    assert stub.runs == [("other.ckpt", "small.keras"), ("small.ckpt", "small.keras")]
    assert run("-o", "wdport_checkpoint=", "-k", "wdport").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_baseline(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    pair = Pair(pytester.path / "small.keras", pytester.path / "small.ckpt")
    write_baseline(pytester.path / "base.json", make_baseline(stub(pair)))
    chosen = ("--wdport-checkpoint", "small.ckpt", "--wdport-baseline", "base.json", "--wdport-no-canary", "-k",
              "baseline or verdict")  # fmt: skip
    run(*chosen).assert_outcomes(passed=2, deselected=2 * len(expected(pair).layers) + 4)
    stub.changed = {NORM: {"isolated": 1e-12}}
    done = run(*chosen)
    done.assert_outcomes(failed=2, deselected=2 * len(expected(pair).layers) + 4)
    done.stdout.fnmatch_lines_random([f"*{NORM}: isolated is 1.0e-12, over 10 x its recorded 1e-15*"])


def test_a_layer_that_is_left_out_is_skipped(run: Run, stub: Stub) -> None:
    inner = f"{NORM}.norm"
    stub.lost, stub.left_out = (inner,), {inner: "the reference does not call it"}
    done = run("--wdport-checkpoint", "small.ckpt", "-k", inner, "-rs")
    done.assert_outcomes(skipped=2, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines(["SKIPPED*compared by its parts alone: the reference does not call it"])


def test_a_full_run_has_more_tests(run: Run, pytester: pytest.Pytester) -> None:
    lines = run("--wdport-checkpoint", "small.ckpt", "--wdport-full", "--collect-only", "-q").outlines
    for name in ("bfloat16", "gradients", "optimizer", "trajectories", "sampling-network"):
        assert f"wdport::small.ckpt::{name}" in lines


EVERYTHING = {"checkpoint": "a/small.ckpt", "converted": "a/b.keras", "sha256": 64 * "0", "mapping": "a.yaml",
              "model": "m:f", "input": "x: b 3", "reference": "r:f", "config": "c.yaml", "set": "num_heads=8",
              "norm-stats": "n.json", "data": "d.csv", "transform": "zscore", "key": "model.state"}  # fmt: skip


@pytest.mark.parametrize("how", ["command line", "file"])
def test_what_the_options_say_of_a_pair(pytester: pytest.Pytester, how: str) -> None:
    """Every field of a pair can be said, on the command line and in the file."""
    given = [word for name, value in EVERYTHING.items() for word in (f"--wdport-{name}", value)]
    entries = [f"wdport_{name.replace('-', '_')} = {value}" for name, value in EVERYTHING.items()]
    if how == "file":
        pytester.makeini("\n".join(["[pytest]", *entries, "wdport_full = true"]))
    for name in ("a/small.ckpt", "a/b.keras"):
        (pytester.path / name).parent.mkdir(exist_ok=True)
        (pytester.path / name).touch()
    config = pytester.parseconfigure(*PLUGIN, *([] if how == "file" else [*given, "--wdport-full"]))
    path = pytester.path
    (tested,) = pytest_wdport._pairs(config)
    assert tested.pair == Pair(path / "a/b.keras", path / "a/small.ckpt", mapping=path / "a.yaml", model="m:f",
                               inputs=("x: b 3",), reference="r:f", config=path / "c.yaml", key="model.state",
                               values=(("num_heads", "8"),), norm_stats=path / "n.json", data=path / "d.csv",
                               transform="zscore", sha256=64 * "0",
                               full=True)  # fmt: skip


def test_a_policy_asks_for_fresh_inputs() -> None:
    """But not where a recording replaces the model, which could not run on them."""
    assert is_fresh(False, False, "parity.toml", None)
    assert not is_fresh(False, False, None, None)
    assert not is_fresh(False, True, "parity.toml", None)
    assert not is_fresh(False, False, "parity.toml", "run.npz")
    with pytest.raises(UsageError, match="give one of them"):
        is_fresh(True, True, None, None)
    with pytest.raises(UsageError, match="needs the PyTorch model to run"):
        Pair("a.keras", against="run.npz", fresh=True).require_consistent()


@pytest.mark.full
@pytest.mark.parametrize(("dist", "processes", "ini"), [("load", 2, False), ("loadfile", 1, True)])
def test_under_xdist(run: Run, pytester: pytest.Pytester, dist: str, processes: int, ini: bool) -> None:
    """Every worker collects the same names, and keeps its verdict; `loadfile` gives all of them to one worker."""
    pytester.makeconftest("""
        import os
        from pathlib import Path
        import wdport
        import wdport.parity.pair_verdict as module

        def verify_pair(pair, *_):
            Path(f"run.{os.getpid()}").touch(exist_ok=False)
            raise wdport.WdportError("verify", "no run here", "none")

        module.verify_pair = verify_pair
    """)
    if ini:
        pytester.makeini("[pytest]\nwdport_checkpoint = small.ckpt\n")
    pair = () if ini else ("--wdport-checkpoint", "small.ckpt")
    arguments = [*pair, "-n", "2", "--dist", dist, "-k", f"{NORM} or verdict"]
    done = subprocess.run([sys.executable, "-m", "pytest", *PLUGIN, *arguments], cwd=pytester.path,
                          capture_output=True, text=True)  # fmt: skip
    assert "7 failed" in done.stdout
    assert "verify: no run here; none" in done.stdout
    assert "FileExistsError" not in done.stdout
    assert len(list(pytester.path.glob("run.*"))) == processes


def test_without_options_it_does_nothing(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_a(): pass")
    run().assert_outcomes(passed=1)
    assert stub.runs == []
