"""`wdport record` as a user sees it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import wdport
from tests.make import TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from tests.parity.test_reports import passing
from wdport import recorder
from wdport.cli.main import main
from wdport.parity.verify_request import Pair


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tmp_path / "small.ckpt", make_state(TWO_LEVELS))


def test_it_says_what_it_recorded(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "tests.user_model:two_levels", str(checkpoint)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("small.ckpt: recorded\n")
    assert "tests.user_model:two_levels, " in shown.out
    assert f"wrote  {checkpoint.with_name('small.run.npz')} (" in shown.out
    assert main(["record", "tests.user_model:two_levels", str(checkpoint)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["record", "tests.user_model:two_levels", str(checkpoint), "--force", "--leave-out", "*.attn.*"]) == 0


def test_a_table_of_its_own_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = make_state(TWO_LEVELS)
    checkpoint = save(tmp_path / "a.ckpt", {**state, "beta_all": state["beta_all"] * 1.01})
    told = ["--input", "x: b 10 3, parts 5 5", "--input", "t: b, steps 1000"]
    assert main(["record", "tests.user_model:two_levels", str(checkpoint), *told]) == 0
    assert "note   beta_all is the checkpoint's: the code computes other values\n" in capsys.readouterr().out


def test_what_a_model_prints_is_not_the_report(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is imported, built and run; neither in `record` nor in `verify --reference`."""
    monkeypatch.delitem(sys.modules, "tests.talkative_model", raising=False)
    assert main(["record", "tests.talkative_model:two_levels", str(checkpoint)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("small.ckpt: recorded\n  model")
    assert shown.err.startswith("imported\nbuilt\n")
    assert "ran\n" in shown.err

    def compare(pair: Pair, *_: Any) -> Any:
        monkeypatch.delitem(sys.modules, "tests.talkative_model")
        recorder.build(str(pair.reference), str(pair.checkpoint)).modules["float32"](
            torch.zeros(1, 10, 3), torch.zeros(1)
        )
        environment = {**passing().environment, "torch_matmul": "highest", "jax_matmul": "highest"}
        return replace(passing(), environment=environment)

    monkeypatch.setattr("wdport.parity.verify.compare_files", compare)
    port = wdport.convert(checkpoint, values=TWO_LEVELS_SETTINGS).output
    assert main(["verify", str(checkpoint), str(port), "--reference", "tests.talkative_model:two_levels"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("PASS  model.keras computes what model.ckpt computes")
    assert "imported" not in shown.out
    assert shown.err == "imported\nbuilt\nbuilt\nran\n"


REFUSALS: dict[str, tuple[list[str], int]] = {
    "no factory": (["tests.user_model", "CHECKPOINT"], 2),
    "no module": (["tests.nowhere:build", "CHECKPOINT"], 2),
    "no file": (["tests.user_model:small", "nope.ckpt"], 3),
    "no checkpoint": (["tests.user_model:small", "README.md"], 3),
    "another model": (["tests.user_model:other", "CHECKPOINT"], 4),
    "no folder": (["tests.user_model:small", "CHECKPOINT", "-o", "nowhere/run.npz"], 2),
    "no npz": (["tests.user_model:small", "CHECKPOINT", "-o", "run.txt"], 2),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(checkpoint: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    arguments, code = REFUSALS[case]
    filled = [str(checkpoint) if each == "CHECKPOINT" else each for each in arguments]
    if "-o" not in filled:
        filled += ["-o", str(checkpoint.with_name("run.npz"))]
    assert main(["record", *filled]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert len(shown.err) - len(str(checkpoint)) <= 241
    assert [each.name for each in checkpoint.parent.iterdir()] == ["small.ckpt"]


def test_a_refusal_imports_nothing_heavy() -> None:
    program = (
        "import sys; from wdport.cli.main import main; code = main(['record', 'a:b', 'nope.ckpt'])\n"
        "sys.exit(code + 100 * any(name in sys.modules for name in ('torch', 'keras', 'jax')))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 3
