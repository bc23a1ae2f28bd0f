"""The action: no input is ever part of a script, and whatever an input holds arrives as one argument."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.option_surfaces import DECLARED
from wdport.cli.verify import command as verify

FILE = Path(__file__).parents[2] / "action.yml"
if not FILE.is_file():
    pytest.skip("the action is not in this copy of the sources", allow_module_level=True)
ACTION: dict[str, Any] = yaml.safe_load(FILE.read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
INSTALL, VERIFY = (next(step for step in STEPS if step.get("name") == name) for name in ("Install wdport", "Verify"))

OWN = {"requirements", "working-directory", "python-version", "artifact"}
"""Inputs that are about the action itself."""

HOSTILE = ["$(touch owned)", "`touch owned`", '"; touch owned; "', "-h", "--force", "a b", "'*'", "~", "-e x",
           "é\u202e"]  # fmt: skip

FAKE = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["CALLED"], "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if os.environ.get("REPORT"):
    open(next(each for each in sys.argv if each.startswith("--json="))[7:], "w").write("{{}}")
sys.exit(int(os.environ["CODE"]))
"""


def first(expression: str, values: Mapping[str, str]) -> str:
    """The first input of ``inputs.A || inputs.B`` that is not empty, as the runner evaluates it."""
    names = [word.removeprefix("inputs.") for word in expression.split(" || ")]
    return next((values[name] for name in names if values[name]), "")


class Ran:
    """One step's script, as the runner runs it, with a stand-in for python and for wdport."""

    def __init__(self, step: Mapping[str, Any], folder: Path, inputs: Mapping[str, str], **more: str) -> None:
        self.temp = folder / "runner temp"
        for name in ("wdport-venv/bin/wdport", "wdport-venv/bin/python", "python"):
            (self.temp / name).parent.mkdir(parents=True, exist_ok=True)
            (self.temp / name).write_text(FAKE)
            (self.temp / name).chmod(0o755)
        script, output, called = (folder / name for name in ("script.sh", "output", "called"))
        script.write_text(step["run"])
        values = {name: each["default"] for name, each in ACTION["inputs"].items()} | inputs
        given = {name: re.sub(r"\$\{\{ (inputs\..*?) \}\}", lambda m: first(m[1], values), text)
                 for name, text in step["env"].items()}  # fmt: skip
        places = {"RUNNER_TEMP": self.temp, "GITHUB_OUTPUT": output, "CALLED": called,
                  "GITHUB_ACTION_PATH": FILE.parent}  # fmt: skip
        environment = {**os.environ, **given, **{name: str(path) for name, path in places.items()}, "CODE": "0", **more}
        if "PYTHON" in environment:
            environment["PYTHON"] = str(self.temp / "python")
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(shell, env=environment, cwd=folder, capture_output=True, text=True)
        assert done.stderr == ""
        assert not (folder / "owned").exists()
        self.code, self.said = done.returncode, done.stdout
        self.calls: list[list[str]] = (
            [json.loads(line) for line in called.read_text().splitlines()] if called.exists() else []
        )
        lines = output.read_text().splitlines() if output.exists() else []
        self.outputs = dict(line.split("=", 1) for line in lines)
        assert len(self.outputs) == len(lines)

    @property
    def params(self) -> dict[str, Any]:
        """What the command line itself makes of the arguments."""
        (called,) = self.calls
        assert called[0] == "verify"
        return verify.make_context("verify", called[1:]).params


def run(folder: Path, inputs: Mapping[str, str], **more: str) -> Ran:
    return Ran(VERIFY, folder, inputs, **more)


FORMER = {name.removeprefix("--"): each.title for each in DECLARED.values() for name in each.option.former}
FLAGS = [name for name, each in DECLARED.items() if each.base is bool]
NUMBERS = [name for name, each in DECLARED.items() if each.base is int]
LISTS = [name for name, each in DECLARED.items() if each.repeats]


def test_inputs_are_no_part_of_a_script() -> None:
    scripts = [step for step in STEPS if "run" in step]
    assert scripts == [INSTALL, VERIFY]
    for step in scripts:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
        assert step["working-directory"] == "${{ inputs.working-directory }}"


def test_scripts_are_bash() -> None:
    for step in (INSTALL, VERIFY):
        subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


def test_every_input_reaches_the_command(tmp_path: Path) -> None:
    told = {"checkpoint": "a.ckpt", "converted": "b.keras", "policy": "parity.toml", "baseline": "base.json",
            "mapping": "m.yaml", "keras-model": "m:f", "reference": "r:f", "config": "c.yaml", "norm-stats": "n.json",
            "data": "d.csv", "transform": "zscore", "key": "state", "sha256": 64 * "0"}  # fmt: skip
    numbers = dict.fromkeys(NUMBERS, "3")
    lists = {"input": "x: b 3 48 48\r\ny: b\n", "set": "\nnum_heads=8\n\nd_model=4"}
    found = run(tmp_path, {**told, **lists, **numbers, **dict.fromkeys(FLAGS, "true")}).params
    files = found.pop("files")
    assert files == (told.pop("checkpoint"), told.pop("converted"))
    assert {name: found[DECLARED[name].name] for name in told} == told
    assert found["inputs"] == ("x: b 3 48 48", "y: b")
    assert found["values"] == ("num_heads=8", "d_model=4")
    assert {found[DECLARED[name].name] for name in FLAGS} == {True}
    assert {found[DECLARED[name].name] for name in NUMBERS} == {3}
    assert found["update_baseline"] is found["force"] is False


def test_former_inputs_reach_the_command(tmp_path: Path) -> None:
    """Those of now come first."""
    former = {"resume": "true", "schedule": "m:S", "model": "m:f"}
    assert set(former) == set(FORMER)
    found = run(tmp_path, {"checkpoint": "a.ckpt", **former}).params
    assert (found["resume"], found["schedule"], found["model"]) == (True, "m:S", "m:f")
    (other := tmp_path / "other").mkdir()
    assert run(other, {"checkpoint": "a.ckpt", "model": "m:f", "keras-model": "n:g"}).params["model"] == "n:g"


def test_what_is_left_out_is_not_given(tmp_path: Path) -> None:
    ran = run(tmp_path, {"checkpoint": "a.ckpt"})
    reports = ran.outputs["reports"]
    assert Path(reports).is_dir()
    assert ran.calls == [["verify", f"--json={reports}/verdict.json", f"--html={reports}/verdict.html",
                          f"--markdown={reports}/verdict.md", f"--junit={reports}/junit.xml", "--", "a.ckpt",
                          "a.keras"]]  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "files"),
    [
        ({"checkpoint": "m/a.ckpt"}, ("m/a.ckpt", "m/a.keras")),
        ({"checkpoint": "v1.2/model"}, ("v1.2/model", "v1.2/model.keras")),
        ({"checkpoint": "a.b.pt"}, ("a.b.pt", "a.b.keras")),
        ({"checkpoint": "demo/digits/"}, ("demo/digits/", "demo/digits.keras")),
        ({"against": "m/a.npz"}, ("m/a.keras",)),
        ({"against": "m/a.npz", "converted": "b.keras"}, ("b.keras",)),
        ({"against": "m/a.npz", "checkpoint": "a.pt"}, ("a.pt", "a.keras")),  # which the command refuses
    ],
)
def test_the_port_beside_it(tmp_path: Path, inputs: dict[str, str], files: tuple[str, ...]) -> None:
    found = run(tmp_path, inputs).params
    assert found["files"] == files
    assert found["against"] == inputs.get("against")


@pytest.mark.parametrize("text", HOSTILE)
def test_inputs_stay_arguments(tmp_path: Path, text: str) -> None:
    """A hostile value in every input, held against what the command's own parser makes of the arguments."""
    names = set(DECLARED) - {*FLAGS, *NUMBERS}
    found = run(tmp_path, dict.fromkeys(names, text)).params
    lines = tuple(text.split("\n"))
    assert found.pop("files") == (text, text)
    assert {found[DECLARED[name].name] for name in LISTS} == {lines}
    given = {DECLARED[name].name for name in names - {"checkpoint", "converted", *LISTS}}
    assert {name: found[name] for name in given} == dict.fromkeys(given, text)
    assert {found[DECLARED[name].name] for name in FLAGS} == {found["force"]} == {found["update_baseline"]} == {False}


@pytest.mark.parametrize(
    ("name", "text"),
    [*((name, "yes") for name in FLAGS),
     *((FLAGS[0], text) for text in ("True", "1", "$(touch owned)", "true\nfalse"))],
)  # fmt: skip
def test_a_flag_is_true_or_false(tmp_path: Path, name: str, text: str) -> None:
    ran = run(tmp_path, {"checkpoint": "a.ckpt", name: text})
    assert (ran.code, ran.calls) == (2, [])
    assert ran.outputs["exit-code"] == "2"
    assert ran.outputs["verdict"] == ""
    assert ran.said == f"::error title=wdport verify::the input {name} is neither true nor false\n"


def test_nothing_to_compare(tmp_path: Path) -> None:
    ran = run(tmp_path, {})
    assert (ran.code, ran.calls, ran.outputs["verdict"]) == (2, [], "")
    assert "give the input checkpoint, or against" in ran.said


@pytest.mark.parametrize(
    ("code", "report", "verdict"),
    [(0, "1", "PASS"), (1, "1", "FAIL"), (6, "1", "INCOMPLETE"), (6, "", "INCOMPLETE"), (1, "", ""), (2, "", ""),
     (3, "", ""), (5, "", ""), (70, "", ""), (127, "", "")],
)  # fmt: skip
def test_outputs(tmp_path: Path, code: int, report: str, verdict: str) -> None:
    """The step ends with the command's code; a FAIL is one only where there is a verdict to read."""
    ran = run(tmp_path, {"checkpoint": "a.ckpt"}, CODE=str(code), REPORT=report)
    assert ran.code == code
    assert set(ran.outputs) == set(ACTION["outputs"])
    assert (ran.outputs["verdict"], ran.outputs["exit-code"]) == (verdict, str(code))
    assert ran.said.startswith("::error title=wdport verify::") is (code != 0)


def test_reports_are_kept_whatever_the_verdict() -> None:
    kept = STEPS[-1]
    assert kept["if"].startswith("always()")
    assert kept["with"]["path"] == "${{ steps.verify.outputs.reports }}"
    for name, each in ACTION["outputs"].items():
        assert each["value"] == f"${{{{ steps.verify.outputs.{name} }}}}"


@pytest.mark.parametrize(
    ("inputs", "extra"),
    [
        ({"checkpoint": "a.ckpt"}, "[torch]"),
        ({"against": "a.npz"}, ""),
        ({"against": "a.npz", "policy": "parity.toml"}, "[torch]"),  # which the known faults need
        ({"against": "a.npz", "baseline": "b.json", "no-canary": "true"}, ""),
    ],
)
def test_it_installs_its_own_version(tmp_path: Path, inputs: dict[str, str], extra: str) -> None:
    assert (FILE.parent / "pyproject.toml").is_file()
    assert (FILE.parent / "constraints.txt").is_file()
    ran = Ran(INSTALL, tmp_path, {**inputs, "requirements": "$(touch owned) -r x"})
    assert ran.code == 0
    assert ran.calls == [
        ["-I", "-m", "venv", str(ran.temp / "wdport-venv")],
        ["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         f"--constraint={FILE.parent}/constraints.txt", f"{FILE.parent}{extra}",
         "--requirement=$(touch owned) -r x"],
    ]  # fmt: skip


def test_actions_are_pinned_by_commit() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert len(used) == 2
    for each in used:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", each)
