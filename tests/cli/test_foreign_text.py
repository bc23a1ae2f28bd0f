"""Names from files reach the terminal, and the log of a CI, as text: nothing in them is obeyed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.numpy import save_file

import wdport
from tests.command import Cli
from tests.make import make_state
from wdport.cli.console import _inert
from wdport.cli.main import main

NAMES = ["a\x1b[31mred.w", "\n::error::b.w", "::error::c.w", "##[error]d.w", "e\r\x07\x9b2J.w", "::add-mask::f\u202e.w"]
COMMAND = re.compile(r"^\s*::|##\[", re.MULTILINE)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("words", [[], ["--tensors"]])
def test_names_of_tensors(suffix: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = dict.fromkeys(NAMES, torch.zeros(2))
    path = tmp_path / f"m{suffix}"
    if suffix == ".pt":
        torch.save(state, path)
    else:
        save_file({name: value.numpy() for name, value in state.items()}, path)
    assert main(["inspect", str(path), *words]) == 0
    assert main(["convert", str(path)]) != 0
    said = "".join(capsys.readouterr())
    assert "\\x1b[31mred" in said
    assert not COMMAND.search(said)
    assert all(character.isprintable() for line in said.split("\n") for character in line)


def test_our_own_text_is_as_it_is(tmp_path: Path, cli: Cli) -> None:
    torch.save(make_state(), tmp_path / "m.pt")
    assert "\\x" not in cli("inspect", tmp_path / "m.pt").out
    assert _inert("  a: b::c  [x]") == "  a: b::c  [x]"


def test_text_is_printed_by_the_console_alone() -> None:
    """Elsewhere only JSON and click's own help."""
    folder = Path(wdport.__file__).parent
    pattern = re.compile(r"click\.(?:s?echo|echo_via_pager)\(|\bprint\(|sys\.std(?:out|err)\.write\(")
    counts = {str(path.relative_to(folder)): len(pattern.findall(path.read_text(encoding="utf-8")))
              for path in folder.rglob("*.py")}  # fmt: skip
    assert {name: count for name, count in counts.items() if count} == {
        "cli/console.py": 2, "cli/documents.py": 2, "cli/verb.py": 1, "cli/verify.py": 1, "recording/__main__.py": 3,
        "parity/repro.py": 1, "porting/lowering/holes.py": 1,  # programs that are written
    }  # fmt: skip
