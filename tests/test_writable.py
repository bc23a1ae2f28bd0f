"""What is refused before any work is done for it; that every verb asks is in `tests/cli/test_outputs.py`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.command import Cli
from wdport.base.errors import MachineError, UsageError
from wdport.cli.documents import reports, require_reports
from wdport.files.outputs import writable
from wdport.files.report_formats import FORMATS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "there").write_text("old")
    (tmp_path / "source").write_text("input")
    (tmp_path / "linked").symlink_to(tmp_path / "source")
    (tmp_path / "folder").mkdir()
    return tmp_path


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("folder", {}, "is a directory; give a file name with output="),
    ("no/file", {}, "its folder does not exist; create the folder first"),
    ("there/file", {}, "its folder does not exist; create the folder first"),
    ("linked", {"source": "source"}, "is an input (source); give another name with output="),
    ("there", {"force": False},
     "exists already; give another name with output=, or force=True to replace it"),
    ("there", {"force": False, "option": None},
     "exists already; give another name, or force=True to replace it"),
    ("folder", {"option": "--json"}, "is a directory; give a file name with --json"),
    ("folder", {"option": None}, "is a directory; give a file name"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asked", "said"), REFUSED)
def test_refusals(folder: Path, name: str, asked: dict[str, Any], said: str) -> None:
    if "source" in asked:
        asked = {"inputs": {"source": folder / asked["source"]}}
    with pytest.raises(UsageError) as raised:
        writable(folder / name, **asked)
    assert str(raised.value).endswith(f"{name}: {said}")


def test_a_closed_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The superuser may write everywhere, so the question itself is answered."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder)
    with pytest.raises(MachineError, match="its folder cannot be written to; choose another folder with output="):
        writable(folder / "new")


def test_what_may_be_written(folder: Path) -> None:
    writable(folder / "new", {"source": folder / "source"}, force=False)
    writable(folder / "there", {"source": folder / "source"})
    writable(folder / "new", {"source": folder / "missing"})
    assert {path.name for path in folder.iterdir()} == {"there", "source", "linked", "folder"}


def test_a_report_may_go_into_what_is_no_file() -> None:
    require_reports(reports(json="/dev/null", html=None), {}, force=False)
    with pytest.raises(UsageError, match="/dev/null: is not a regular file; give another name with output="):
        writable(Path("/dev/null"))


@pytest.mark.parametrize("options", [*map("--{}".format, FORMATS), "--update-baseline --baseline"])
def test_verify_asks_before_it_runs(folder: Path, options: str, cli: Cli) -> None:
    report = str(folder / "no" / "report")
    shown = cli("verify", folder / "a.pt", folder / "a.keras", *options.split(), report, code=2)
    assert shown.err == f"error: {report}: its folder does not exist; create the folder first\n"
