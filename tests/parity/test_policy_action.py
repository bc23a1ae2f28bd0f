"""The action: no input is ever part of a script, and whatever an input holds arrives as one argument."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = Path(__file__).parents[2] / ".github" / "actions" / "verify" / "action.yml"
if not FILE.is_file():
    pytest.skip("the action is not in this copy of the sources", allow_module_level=True)
ACTION: dict[str, Any] = yaml.safe_load(FILE.read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]

FAKE = f"""#!{sys.executable}
import json, os, sys
json.dump(sys.argv[1:], open(os.environ["CALLED"], "w"))
sys.exit(int(os.environ["CODE"]))
"""


def run(folder: Path, code: int = 0, **inputs: str) -> tuple[int, list[str]]:
    """The script of the step `verify`, as the runner runs it, with a stand-in for wdport."""
    step = next(each for each in STEPS if each.get("id") == "verify")
    values = {name: "" for name, each in ACTION["inputs"].items()} | inputs
    given = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text)
             for name, text in step["env"].items()}  # fmt: skip
    command = folder / "wdport-venv" / "bin" / "wdport"
    command.parent.mkdir(parents=True)
    command.write_text(FAKE)
    command.chmod(0o755)
    script = folder / "script.sh"
    script.write_text(step["run"])
    places = {"RUNNER_TEMP": folder, "GITHUB_OUTPUT": folder / "output", "CALLED": folder / "called"}
    environment = {**os.environ, **given, **{name: str(path) for name, path in places.items()}, "CODE": str(code)}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    done = subprocess.run(shell, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, json.loads((folder / "called").read_text())


def test_inputs_are_no_part_of_a_script() -> None:
    assert set(ACTION["inputs"]) >= {"checkpoint", "converted", "policy", "python-version"}
    scripts = [step for step in STEPS if "run" in step]
    assert scripts
    for step in scripts:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"


def test_scripts_are_bash() -> None:
    for step in STEPS:
        if "run" in step:
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


def test_what_wdport_is_called_with(tmp_path: Path) -> None:
    code, called = run(tmp_path, checkpoint="a.ckpt", converted="b.keras", policy="parity.toml")
    reports = (tmp_path / "output").read_text().strip().removeprefix("reports=")
    assert Path(reports).is_dir()
    assert code == 0
    assert called == ["verify", "--json", f"{reports}/verdict.json", "--junit", f"{reports}/junit.xml", "--markdown",
                      f"{reports}/verdict.md", "--policy", "parity.toml", "--", "a.ckpt", "b.keras"]  # fmt: skip


@pytest.mark.parametrize(
    ("checkpoint", "converted"),
    [("m/a.ckpt", "m/a.keras"), ("v1.2/model", "v1.2/model.keras"), ("a.b.pt", "a.b.keras")],
)
def test_the_port_beside_the_checkpoint(tmp_path: Path, checkpoint: str, converted: str) -> None:
    _, called = run(tmp_path, checkpoint=checkpoint)
    assert called[-3:] == ["--", checkpoint, converted]
    assert "--policy" not in called


@pytest.mark.parametrize("text", ["$(touch owned)", "`touch owned`", '"; touch owned; "', "-h", "a b\nc", "'*'"])
def test_inputs_stay_arguments(tmp_path: Path, text: str) -> None:
    code, called = run(tmp_path, checkpoint=text, converted=text, policy=text)
    assert code == 0
    assert called[-3:] == ["--", text, text]
    assert called[-4] == text
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("code", [1, 2, 6])
def test_the_exit_code_is_passed_on(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, code, checkpoint="a.ckpt")[0] == code
    kept = STEPS[-1]
    assert kept["if"].startswith("always()")
    assert kept["with"]["path"] == "${{ steps.verify.outputs.reports }}"


def test_it_installs_its_own_repository() -> None:
    script = next(step["run"] for step in STEPS if step.get("name") == "Install wdport")
    root = FILE.parent / "../../.."
    assert (root / "pyproject.toml").is_file()
    assert (root / "constraints.txt").is_file()
    assert '"$GITHUB_ACTION_PATH/../../.."' in script
    assert "[torch]" in script
