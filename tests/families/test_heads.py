"""A checkpoint whose every name stands under a training wrapper's attribute, which the table does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from tests.families.test_custom import files
from wdport.cli.main import main
from wdport.errors import MisfitError

pytestmark = pytest.mark.usefixtures("one_case")

SAID = "every name has the prefix 'net.', which is removed"


def wrapped(folder: Path, *, but: str = "", with_too: str = "") -> tuple[Path, Path]:
    """A checkpoint as Lightning writes it, all names under ``net.`` except one; one more if asked for."""
    checkpoint, table = files(folder, "lstm")
    state = {name if name == but else f"net.{name}": each for name, each in torch.load(checkpoint).items()}
    if with_too:
        state[with_too] = torch.zeros(2)
    torch.save({"state_dict": state, "pytorch-lightning_version": "2.0.0"}, checkpoint)
    return checkpoint, table


def test_it_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, table = wrapped(tmp_path)
    assert main(["convert", str(checkpoint), "-o", str(tmp_path / "out.keras"), "--mapping", str(table)]) == 0
    assert capsys.readouterr().out.count(SAID) == 1


def test_beside_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a LightningModule with a loss that has weights: one row drops them, and every verb says so."""
    checkpoint, table = wrapped(tmp_path, with_too="loss.weight")
    output, run, told = tmp_path / "out.keras", tmp_path / "run.npz", ["--mapping", str(table)]
    assert main(["convert", str(checkpoint), "-o", str(output), *told]) == 4
    assert "unexpected loss.weight (2,); " in capsys.readouterr().err
    table.write_text(f"{table.read_text()}\ntensors:\n  - {{torch: loss.weight, drop: only for training}}\n")
    said = "6 of 7 names have the prefix 'net.', which is removed"
    for words in (["convert", str(checkpoint), "-o", str(output)], ["verify", str(checkpoint), str(output)],
                  ["record", str(checkpoint), "-o", str(run)]):  # fmt: skip
        assert main([*words, *told]) == 0
        assert " ".join(capsys.readouterr().out.split()).count(said) == 1
    assert wdport.verify_recording(output, run, mapping=table)


def test_two_tensors_never_get_one_name(tmp_path: Path) -> None:
    checkpoint, table = wrapped(tmp_path, with_too="net.loss.weight")
    state = torch.load(checkpoint)["state_dict"]
    torch.save({"state_dict": {**state, "loss.weight": torch.ones(2)}}, checkpoint)
    table.write_text(f"{table.read_text()}\ntensors:\n  - {{torch: loss.weight, drop: only for training}}\n")
    with pytest.raises(MisfitError, match=r"net\."):
        wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table)


@pytest.mark.parametrize("change", [{"but": "head.bias"}, {"with_too": "net.extra"}])
def test_all_or_nothing(tmp_path: Path, change: dict[str, str]) -> None:
    checkpoint, table = wrapped(tmp_path, **change)
    with pytest.raises(MisfitError, match=r"net\."):
        wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table)


def test_a_table_that_has_it_keeps_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, table = wrapped(tmp_path)
    table.write_text(table.read_text().replace("torch: lstm, ", "torch: net.lstm, ").replace("h: head", "h: net.head"))
    assert main(["convert", str(checkpoint), "-o", str(tmp_path / "out.keras"), "--mapping", str(table)]) == 0
    assert SAID not in capsys.readouterr().out
