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
import wdport.families.waveletdiff.reference
import wdport.parity.policy.explain
from pytest_wdport import tap_names
from tests.make import NO_CROSS, QK_NORM, SETTINGS, SMALL, make_state, save
from wdport.compare.bounds import bounds
from wdport.compare.findings import Gate, measure
from wdport.errors import MachineError
from wdport.parity.gates import logic_measures, numerics_measures
from wdport.parity.verdict import TapResult, Verdict

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "no:wdport", "-p", "pytest_wdport", "-p", "no:cacheprovider")
"""As a module by its own name, whether or not the installed wdport brings it under another."""

NORM = "level_transformers.0.blocks.0.norm1"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with its conversion beside it."""
    path = save(tmp_path_factory.mktemp("pair") / "small.ckpt", make_state())
    wdport.convert(path, values=SETTINGS)
    return path


@pytest.fixture
def run(pytester: pytest.Pytester, pair: Path) -> Run:
    """pytest in a folder with the pair, with the plugin."""
    for file in (pair, pair.with_suffix(".keras")):
        shutil.copy(file, pytester.path)
    return lambda *arguments: pytester.runpytest_inprocess(*PLUGIN, *arguments)


class Stub:
    """In place of `wdport.verify`: a verdict at once, of the layers that the plugin names."""

    def __init__(self, **changed: dict[str, float]) -> None:
        self.changed = changed
        self.runs: list[tuple[str, str]] = []
        self.lost: tuple[str, ...] = ()

    def __call__(self, checkpoint: Path, converted: Path, **_: Any) -> Verdict:
        self.runs.append((checkpoint.name, converted.name))
        names = tap_names(checkpoint, converted)
        taps = [replace(TapResult(name, name, None, 1e-15, 1e-15, 1e-15, 1.0, 1.0, 1.0), **self.changed.get(name, {}))
                for name in names if name not in self.lost]  # fmt: skip
        count = len(taps)
        gates = (
            Gate("0", "preflight", len(taps), len(names)),
            Gate("A'", "constants", 8, 8, (measure("table", "ulp", 0.5, "table_ulp"),)),
            Gate("A", "logic, float64", count, len(names), tuple(chain(*map(logic_measures, taps)))),
            Gate("B", "numerics, float32", count, len(names), tuple(chain(*map(numerics_measures, taps)))),
        )
        return Verdict(str(checkpoint), str(converted), gates, tuple(taps), (), None, {}, (), {}, bounds())


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    made = Stub()
    monkeypatch.setattr(wdport, "verify", made, raising=False)
    return made


@pytest.mark.parametrize("config", [SMALL, QK_NORM, NO_CROSS], ids=["official", "qk norm", "no cross-level"])
def test_names_are_those_of_the_table(tmp_path: Path, config: Any) -> None:
    path = save(tmp_path / "a.ckpt", make_state(config))
    names = tap_names(path, wdport.convert(path, values=SETTINGS).output)
    assert len(set(names)) == len(names) > 80
    assert {NORM, "time_embedding.mlp.2", "output"} <= set(names)
    assert ("cross_level_attention" in names) is config.cross_level_attention


def test_real(run: Run, pair: Path) -> None:
    """Names are settled before the run; the test `verdict` fails if they are not those that it compares."""
    done = run("--wdport-checkpoint", "small.ckpt", "-q")
    count = 2 * len(tap_names(pair, pair.with_suffix(".keras"))) + 3
    done.assert_outcomes(passed=count)
    assert done.ret == 0


def test_ids(run: Run, stub: Stub) -> None:
    done = run("--wdport-checkpoint", "small.ckpt", "--wdport-converted", "small.keras", "--collect-only", "-q")
    lines = done.outlines
    for name in ("0::preflight", "A'::constants", f"A::{NORM}", f"B::{NORM}", "B::output", "verdict"):
        assert f"wdport::small.ckpt::{name}" in lines
    assert stub.runs == []


@pytest.mark.parametrize(
    ("expression", "count"),
    [(f"A::{NORM}.norm", 1), (f"{NORM} and not B::", 3), ("small.ckpt and verdict", 1), ("B::output", 1)],
)
def test_ids_can_be_chosen(run: Run, stub: Stub, expression: str, count: int) -> None:
    done = run("--wdport-checkpoint", "small.ckpt", "-k", expression)
    assert done.parseoutcomes()["passed"] == count
    assert stub.runs == [("small.ckpt", "small.keras")]


def test_ids_can_be_deselected(run: Run, stub: Stub) -> None:
    done = run("--wdport-checkpoint", "small.ckpt", "--deselect", "wdport::small.ckpt::A::", "--deselect",
               "wdport::small.ckpt::B::")  # fmt: skip
    done.assert_outcomes(passed=3, deselected=done.parseoutcomes()["deselected"])


def test_failures_say_what_and_where(run: Run, stub: Stub) -> None:
    stub.changed = {NORM: {"isolated": 1e-3, "rms_ratio": inf}}
    done = run("--wdport-checkpoint", "small.ckpt", "-rf")
    done.assert_outcomes(failed=3, passed=done.parseoutcomes()["passed"])
    done.stdout.fnmatch_lines_random([
        f"*gate A, {NORM} of small.ckpt*",
        f"gate A, logic, float64: {NORM} (port: *",
        f"{NORM} is off by 1.0e-03 fed the reference's input",
        "float64 error: 0.001 alone, 1e-15 in what it is fed, 1e-15 within the network; bound 1e-10",
        f"{NORM} has inf times the reference's float32 error",
        f"FAILED wdport::small.ckpt::A::{NORM} - *",
        "FAILED wdport::small.ckpt::verdict - *",
    ])  # fmt: skip
    assert "Traceback" not in done.stdout.str()


def test_what_was_not_compared_fails(run: Run, stub: Stub) -> None:
    stub.lost = (NORM,)
    done = run("--wdport-checkpoint", "small.ckpt", "-rf", "-q")
    done.assert_outcomes(failed=4, passed=done.parseoutcomes()["passed"])
    done.stdout.fnmatch_lines_random(["FAILED wdport::small.ckpt::0::preflight*", f"{NORM} is not in the verdict*"])


def test_a_layer_without_a_test_fails(run: Run, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = lambda *files: tuple(name for name in tap_names(*files) if name != NORM)  # noqa: E731
    monkeypatch.setattr(pytest_wdport, "tap_names", fewer)
    done = run("--wdport-checkpoint", "small.ckpt", "-k", "verdict")
    done.assert_outcomes(failed=1, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines([f"{NORM} was compared and has no test"])


def test_an_error_of_the_run_is_one_line_and_is_kept(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def refuse(*_: Any, **__: Any) -> None:
        runs.append(1)
        raise MachineError("verify", "no room", "make some")

    monkeypatch.setattr(wdport, "verify", refuse, raising=False)
    done = run("--wdport-checkpoint", "small.ckpt", "-k", f"{NORM}.norm")
    done.assert_outcomes(failed=2, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines(["verify: no room; make some"])
    assert len(runs) == 1


WAIVER = '[[waivers]]\ntap = "{}"\ngate = "A"\nreason = "fused"\nexpires = {}\n'


def test_a_policy(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    stub.changed = {NORM: {"isolated": 1e-3}}
    chosen = (
        "--wdport-checkpoint",
        "small.ckpt",
        "--wdport-policy",
        "parity.toml",
        "--wdport-no-canary",
        "-k",
        f"A::{NORM} or verdict",
    )
    file = pytester.path / "parity.toml"
    file.write_text(WAIVER.format(NORM, "2999-01-31"))
    done = run(*chosen, "-rx")
    done.assert_outcomes(passed=3, xfailed=1, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines([f"XFAIL wdport::small.ckpt::A::{NORM} - *waived until 2999-01-31: fused"])
    run(*chosen, "--runxfail").assert_outcomes(failed=1, passed=3, deselected=done.parseoutcomes()["deselected"])
    file.write_text(WAIVER.format(NORM, "2020-01-31"))
    run(*chosen).assert_outcomes(failed=2, passed=2, deselected=done.parseoutcomes()["deselected"])
    file.write_text(WAIVER.format(NORM, "2999-01-31").replace('reason = "fused"\n', ""))
    done = run(*chosen)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --wdport-policy: *waivers?0?.reason: is missing*"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--wdport-checkpoint", "none.ckpt"), "none.ckpt is no file"),
        (("--wdport-checkpoint", ""), "an empty name is no file"),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-converted", "none.keras"), "none.keras is no file"),
        (("--wdport-converted", "small.keras"), "more often"),
        (("--wdport-policy", "parity.toml"), "without --wdport-checkpoint"),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-policy", "none.toml"), "cannot be read"),
        (("--wdport-checkpoint", "small.ckpt", "--wdport-checkpoint", "small.ckpt"), "given twice"),
    ],
)
def test_wrong_options_end_the_run(run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: --wdport*{said}*"])


def test_a_bad_file_is_a_collection_error(run: Run, pytester: pytest.Pytester, stub: Stub) -> None:
    (pytester.path / "bad.ckpt").write_text("no checkpoint")
    done = run("--wdport-checkpoint", "bad.ckpt", "--wdport-converted", "small.keras", "-k", "norm1")
    done.assert_outcomes(errors=1)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines(["*bad.ckpt*"])
    assert stub.runs == []


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
        passed=2, deselected=2 * len(tap_names(pytester.path / "small.ckpt", pytester.path / "small.keras")) + 3
    )
    assert len(stub.runs) == 1
    done = run()
    done.assert_outcomes(passed=0, errors=2)
    done.stdout.fnmatch_lines(["wdport_verdict needs a pair: pytest --wdport-checkpoint FILE"])


@pytest.mark.parametrize(("dist", "processes"), [("load", 2), ("loadfile", 1)])
def test_under_xdist(run: Run, pytester: pytest.Pytester, dist: str, processes: int) -> None:
    """Every worker collects the same names, and keeps its verdict; `loadfile` gives all of them to one worker."""
    pytester.makeconftest("""
        import os
        from pathlib import Path
        import wdport

        def verify(checkpoint, converted, **_):
            Path(f"run.{os.getpid()}").touch(exist_ok=False)
            raise wdport.WdportError("verify", "no run here", "none")

        wdport.verify = verify
    """)
    arguments = ["--wdport-checkpoint", "small.ckpt", "-n", "2", "--dist", dist, "-k", f"{NORM} or verdict"]
    done = subprocess.run([sys.executable, "-m", "pytest", *PLUGIN, *arguments], cwd=pytester.path,
                          capture_output=True, text=True)  # fmt: skip
    assert "7 failed" in done.stdout
    assert "verify: no run here; none" in done.stdout
    assert "FileExistsError" not in done.stdout
    assert len(list(pytester.path.glob("run.*"))) == processes


def test_importing_it_costs_nothing() -> None:
    code = (
        "import sys, pytest_wdport; "
        "print([m for m in ('numpy', 'torch', 'keras', 'jax', 'h5py', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_options_it_does_nothing(run: Run, stub: Stub, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_a(): pass")
    run().assert_outcomes(passed=1)
    assert stub.runs == []
