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


def converted(folder: Path, twin: str) -> tuple[Path, Path, Path]:
    """The checkpoint, the converted file and the table."""
    checkpoint, table = folder / "ck.pt", folder / "my.yaml"
    torch.save(randomised(padded.build()).state_dict(), checkpoint)
    table.write_text(TABLE.format(twin))
    return checkpoint, wdport.convert(checkpoint, folder / "out.keras", mapping=table).output, table


def test_it_passes(tmp_path: Path) -> None:
    checkpoint, output, table = converted(tmp_path, "twin")
    verdict = wdport.verify(checkpoint, output, mapping=table)
    assert verdict.exit_code == 0
    assert {"conv", "attn", "attn.query"} <= {tap.reference for tap in verdict.taps}


def test_zeros_are_another_padding(tmp_path: Path) -> None:
    """The fault is the padding before the convolution, whose own settings are right."""
    checkpoint, output, table = converted(tmp_path, "zeros")
    verdict = wdport.verify(checkpoint, output, mapping=table)
    assert verdict.exit_code == 1
    assert [fault.feeds for fault in verdict.faults] == ["conv"]
    assert "padding_mode" not in str(verdict.causes)


@pytest.mark.parametrize(("twin", "code"), [("twin", 0), ("zeros", 1)])
def test_a_recording_does_not_say_how_it_pads(tmp_path: Path, twin: str, code: int) -> None:
    """So what the convolution makes of it is compared alone."""
    checkpoint, output, table = converted(tmp_path, twin)
    recording = tmp_path / "run.npz"
    assert main(["record", str(checkpoint), "--mapping", str(table), "-o", str(recording)]) == 0
    verdict = wdport.verify_recording(output, recording, mapping=table)
    assert verdict.exit_code == code
    assert {fault.reference for fault in verdict.faults} == ({"conv"} if code else set())
