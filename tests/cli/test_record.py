"""`wdport record` as a user sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.make import make_state, save
from wdport.cli.main import main


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tmp_path / "small.ckpt", make_state())


def test_it_says_what_it_recorded(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "tests.user_model:small", str(checkpoint)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("small.ckpt: recorded\n")
    assert "tests.user_model:small, " in shown.out
    assert f"wrote  {checkpoint.with_name('small.run.npz')} (" in shown.out
    assert main(["record", "tests.user_model:small", str(checkpoint)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["record", "tests.user_model:small", str(checkpoint), "--force", "--leave-out", "*.attn.*"]) == 0


def test_a_table_of_its_own_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = make_state()
    checkpoint = save(tmp_path / "a.ckpt", {**state, "beta_all": state["beta_all"] * 1.01})
    assert main(["record", "tests.user_model:small", str(checkpoint)]) == 0
    assert "note   beta_all is the checkpoint's: the code computes another one\n" in capsys.readouterr().out


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
    assert len(shown.err) <= 241
    assert [each.name for each in checkpoint.parent.iterdir()] == ["small.ckpt"]


def test_a_refusal_imports_nothing_heavy() -> None:
    program = (
        "import sys; from wdport.cli.main import main; code = main(['record', 'a:b', 'nope.ckpt'])\n"
        "sys.exit(code + 100 * any(name in sys.modules for name in ('torch', 'keras', 'jax')))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 3
