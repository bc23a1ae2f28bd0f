"""The CNN of the tutorial: its port reads the digits that the PyTorch model reads, without PyTorch and wdport."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from wdport.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "cnn"
ALONE = "import runpy, sys; runpy.run_path(sys.argv[1]); assert not {'torch', 'wdport'} & {*sys.modules}"


def right(*words: str) -> int:
    """How many held-out digits a script reads."""
    told = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) of 450 held-out digits are right", told)
    assert found, told
    return int(found[1])


def test_the_port_reads_the_same_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = right(str(EXAMPLE / "train.py"), str(tmp_path), "--epochs", "2")
    assert theirs > 300
    monkeypatch.chdir(tmp_path)
    table = ["--mapping", "cnn_keras.yaml"]
    assert main(["port", "cnn:CNN", "--input", "image: b 1 8 8", "--no-proof"]) == 0
    assert main(["convert", "cnn.pt", *table]) == 0
    assert right("-c", ALONE, str(EXAMPLE / "check.py")) == theirs
