"""Refusals of conversions that need a checkpoint, a table or an option put together here."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch

import wdport
from tests.command import Cli
from tests.families.test_custom import files
from wdport.base.errors import UsageError, WdportError
from wdport.conversion import stream_writer
from wdport.conversion.check import settings_report
from wdport.conversion.prepare import Settings

Tensors = dict[str, torch.Tensor]
WEIGHT = "conv1.weight"

CHANGES: list[tuple[Callable[[Tensors], object], dict[str, Any], str]] = [
    (lambda tensors: tensors.update({WEIGHT: tensors[WEIGHT].long()}), {"dtype": "float16"},
     f"{WEIGHT}: is int64, not floating point; check the table's row for it"),
    (lambda tensors: tensors.update({WEIGHT: tensors[WEIGHT].double() + 1e-12}), {"max_memory": 1 << 30},
     f"{WEIGHT}: has float64 values that float32 cannot hold; accept the rounding with cast=True"),
    (lambda tensors: tensors.pop("head.bias"), {}, "missing head.bias (5,); correct the table, or the Keras model"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "options", "said"), CHANGES)
def test_a_checkpoint_that_is_not_converted(
    change: Callable[[Tensors], object], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    checkpoint, table = files(tmp_path, "image")
    tensors = torch.load(checkpoint)
    change(tensors)
    torch.save(tensors, checkpoint)
    before = set(tmp_path.iterdir())
    with pytest.raises(WdportError) as caught:
        wdport.convert(checkpoint, tmp_path / "a.safetensors", mapping=table, **options)
    assert said in str(caught.value)
    assert set(tmp_path.iterdir()) == before


def test_a_disk_that_returns_other_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, table = files(tmp_path, "image")
    real = stream_writer.stored_digests
    monkeypatch.setattr(stream_writer, "stored_digests", lambda *given: {**real(*given), "conv1/bias": "0"})
    with pytest.raises(WdportError, match=r"a\.npz: conv1/bias: differs when read back; check the disk"):
        wdport.convert(checkpoint, tmp_path / "a.npz", mapping=table)
    assert not (tmp_path / "a.npz").exists()


def test_a_changed_value_in_a_file_of_the_users_own_model(tmp_path: Path) -> None:
    """Keras reads its values; nothing but the digests in the manifest is against them."""
    checkpoint, table = files(tmp_path, "image")
    output = wdport.convert(checkpoint, tmp_path / "a.keras", mapping=table).output
    with zipfile.ZipFile(output) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    weights = BytesIO(members["model.weights.h5"])
    with h5py.File(weights, "r+") as opened:
        opened["layers/conv2d/vars/0"][0, 0] += 1
    with zipfile.ZipFile(output, "w") as archive:
        for name, data in {**members, "model.weights.h5": weights.getvalue()}.items():
            archive.writestr(name, data)
    with pytest.raises(WdportError, match="conv1/kernel: is damaged: its SHA-256 differs from the written one; conv"):
        wdport.load_model(output, mapping=table)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WdportError, match=r"a\.keras: no such file; check the path"):
        wdport.load_model(tmp_path / "a.keras")


def test_settings_of_models_that_need_a_configuration(tmp_path: Path) -> None:
    _, table = files(tmp_path, "image")
    table.write_text(table.read_text() + "config: [size]\n")
    with pytest.raises(UsageError, match=r"settings: the models need configuration values; give config=FILE, or a ch"):
        settings_report(table, Settings())


def test_the_way_back_needs_the_same_table_and_family(tmp_path: Path, cli: Cli) -> None:
    checkpoint, table = files(tmp_path, "image")
    output = wdport.convert(checkpoint, tmp_path / "a.safetensors", mapping=table).output
    other = tmp_path / "other.yaml"
    other.write_text(table.read_text() + "\n")
    error = cli("export", output, "--to", "torch", "--mapping", other, "-o", tmp_path / "b.pt", code=4).err
    assert f"a.safetensors: was converted with another my.yaml than {other}; give the table that" in error
