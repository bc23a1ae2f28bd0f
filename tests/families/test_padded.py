"""A port that pads apart as the reference's convolution does, and takes once what its attention takes three times."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from tests.families.toys import padded
from tests.families.toys.nets import randomised
from wdport.cli.main import main

pytestmark = pytest.mark.usefixtures("one_case")

TABLE = """format: 2
torch: tests.families.toys.padded:build
keras: tests.families.toys.padded:{}
inputs: ["x: b c=3 t=12 -> b t c"]
layers:
  - {{torch: conv, keras: conv, kind: conv1d}}
  - {{torch: attn, keras: attn, kind: attention_packed}}
  - {{torch: head, keras: head, kind: linear}}
"""


@pytest.mark.parametrize("twin", ["twin", "zeros"])
def test_padding_apart(tmp_path: Path, twin: str) -> None:
    """With zeros the fault is the padding before the convolution, whose own settings are right. A recording does not
    say how it pads, so what the convolution makes of it is compared alone."""
    checkpoint, table, recording = tmp_path / "ck.pt", tmp_path / "my.yaml", tmp_path / "run.npz"
    torch.save(randomised(padded.build()).state_dict(), checkpoint)
    table.write_text(TABLE.format(twin))
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    verdict = wdport.verify(checkpoint, output, mapping=table)
    assert main(["record", str(checkpoint), "--mapping", str(table), "-o", str(recording)]) == 0
    recorded = wdport.verify_recording(output, recording, mapping=table)
    assert verdict.exit_code == recorded.exit_code == (twin == "zeros")
    assert {"conv", "attn", "attn.query"} <= {tap.reference for tap in verdict.taps}
    assert [fault.feeds for fault in verdict.faults] == (["conv"] if twin == "zeros" else [])
    assert "padding_mode" not in str(verdict.causes)
    assert {fault.reference for fault in recorded.faults} == ({"conv"} if twin == "zeros" else set())
