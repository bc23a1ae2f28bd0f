"""Writing never harms: refusals before anything is created, old files intact, no leftovers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import wdport
from tests.bad.ground import ground
from tests.make import SETTINGS, make_state, save
from wdport.base.errors import InputError, MachineError, UsageError
from wdport.files import model_files as files


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tmp_path / "small.ckpt", make_state())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def convert(checkpoint: Path, output: Path | None = None, **options: Any) -> None:
    wdport.convert(checkpoint, output, values=SETTINGS, **options)


def test_default_output_is_beside_the_input(checkpoint: Path) -> None:
    """And what a dead process left of it goes."""
    checkpoint.with_name(".small.keras.99999999.wdport-tmp.keras").write_bytes(b"half")
    convert(checkpoint)
    assert names(checkpoint.parent) == {"small.ckpt", "small.keras", "small.keras.wdport.json"}


def test_an_ending_is_no_name(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="unknown output format"):
        convert(checkpoint, checkpoint.with_name(".keras"))


def test_what_reads_back_differently_is_not_kept(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = files.read_variables

    def corrupted(path: Path, variables: Any) -> Any:
        for name, array in read(path, variables):
            yield name, array + 1 if name.endswith("level_1/input_proj/bias") else array

    monkeypatch.setattr(files, "read_variables", corrupted)
    with pytest.raises(MachineError, match="differs when read back"):
        convert(checkpoint)
    assert names(checkpoint.parent) == {"small.ckpt"}


BIAS = "level_1/input_proj/vars/1"
DAMAGES = {
    "is missing": (lambda file: file.__delitem__(BIAS), "variables, but the model has"),
    "is renamed": (lambda file: file.move(BIAS, "level_1/input_proj/vars/7"), "level_1/input_proj/bias: is missing"),
    "is one too many": (lambda file: file.create_dataset("level_1/more", data=1.0), "variables, but the model has"),
    "has another shape": (lambda file: _replace(file, np.zeros(1, "f4")),
                          r"level_1/input_proj/bias: is float32 \(1,\)"),
    "is empty": (lambda file: _replace(file, h5py.Empty("f4")), "level_1/input_proj/vars/1: has an HDF5 dataspace of"),
}  # fmt: skip


def _replace(file: h5py.File, data: Any) -> None:
    del file[BIAS]
    file[BIAS] = data


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_variable_that_is_not_what_it_should_be(tmp_path: Path, damage: str) -> None:
    """A bias of one number would be broadcast, were it not refused."""
    target, (change, message) = tmp_path / "small.weights.h5", DAMAGES[damage]
    shutil.copy(ground() / "good.weights.h5", target)
    with h5py.File(target, "a") as file:
        change(file)
    with pytest.raises(InputError, match=message):
        wdport.load_model(target)
