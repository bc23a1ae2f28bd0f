"""`wdport selftest`: refusals before anything runs, the exit code of the result, both files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import Cli
from wdport.cli.main import main
from wdport.families.faults import Kill
from wdport.parity.selftest import known_faults
from wdport.parity.selftest import run as running
from wdport.parity.selftest.result import GroupResult, SelftestResult

KILLED = Kill("small", "epsilon 1e-6", "a/norm", "A", "A", ("a/norm",), True, 5.0)
LOST = Kill("small", "lost", "a/norm", "", "A", (), False, -6.0)


def given(monkeypatch: pytest.MonkeyPatch, *kills: Kill) -> list[bool]:
    """Let the self-test find just these; the list is what ``quick`` it was asked for."""
    asked = []

    def run(quick: bool = False, **_: Any) -> SelftestResult:
        asked.append(quick)
        return SelftestResult((GroupResult("A", "the network", kills),), quick=quick)

    monkeypatch.setattr(running, "run_selftest", run)
    return asked


@pytest.mark.parametrize(("kills", "code"), [([KILLED], 0), ([KILLED, LOST], 1), ([], 6)])
def test_exit_code_and_files(
    kills: list[Kill], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = given(monkeypatch, *kills)
    files = [tmp_path / "out.json", tmp_path / "out.md"]
    assert main(["selftest", "--quick", "--json", str(files[0]), "--markdown", str(files[1])]) == code
    assert asked == [True]
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines()[-1].startswith({0: "PASS  1 of 1", 1: "FAIL  1 of 2", 6: "INCOMPLETE  0 of 0"}[code])
    assert json.loads(files[0].read_text())["exit_code"] == code
    assert files[1].read_text().startswith("# Self-test\n")


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(known_faults, "find_spec", lambda name: None)
    assert "install wdport[torch]" in cli("selftest", "--quick", code=5).err
