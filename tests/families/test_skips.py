"""A row whose layer is there in some blocks, and is nothing in the others on both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from tests.families.toys import skips
from wdport.cli.main import main

pytestmark = pytest.mark.usefixtures("one_case")

TABLE = """format: 2
torch: tests.families.toys.skips:net
keras: tests.families.toys.skips:twin
inputs: ["x: b 5"]
layers:
  - {torch: <n>.main, keras: main<n>, kind: linear}
  - {torch: <n>.skip, keras: skip<n>, kind: linear}
"""


def test_it_is_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, table, output, run = (tmp_path / name for name in ("ck.pt", "my.yaml", "out.keras", "run.npz"))
    torch.save(skips.net().state_dict(), checkpoint)
    table.write_text(TABLE)
    wdport.convert(checkpoint, output, mapping=table)
    assert main(["verify", str(checkpoint), str(output), "--mapping", str(table)]) == 0
    assert "not compared: 0.skip (no tensors, and no skip0 in Keras)" in " ".join(capsys.readouterr().out.split())
    assert main(["record", str(checkpoint), "--mapping", str(table), "-o", str(run)]) == 0
    verdict = wdport.verify_recording(output, run, mapping=table)
    assert verdict
    assert {tap.reference for tap in verdict.taps} == {"0.main", "1.main", "1.skip", "output"}
