"""What `train` refuses, before it computes anything: data, options and folders that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.families.unet2d.make import fields_of
from tests.training.points import points_in
from wdport.cli.main import main
from wdport.diffusion.scheduler import Scheduler
from wdport.errors import InputError, UsageError, WdportError
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.family import FAMILY
from wdport.files.outputs import writable
from wdport.training.model import training_model
from wdport.training.run import train
from wdport.training.saves import NAME, read_state, write_state

STATES = np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(64, 2)).astype(np.float32)


def broken(at: int) -> np.ndarray:
    states = STATES.copy()
    states[at] = np.nan
    return states


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "epochs": (STATES, {"epochs": 0}, "epochs: is 0; give a whole number from 1"),
    "batch size": (STATES, {"batch_size": True}, "batch_size: is True; give a whole number from 1"),
    "save every": (STATES, {"save_every": 2.0}, "save_every: is 2.0; give a whole number from 1"),
    "a list": (STATES.tolist(), {}, "data: is a list, and this model has no series"),
    "another shape": (STATES[:, :1], {}, r"data: have shape \(64, 1\)"),
    "nothing": (STATES[:0], {}, r"data: have shape \(0, 2\)"),
    "missing values": (broken(3), {}, "data: have NaN or infinite values"),
    "a table": ("states.csv", {}, "states.csv: is not an .npy file, and this model has no series"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with points_in(tmp_path_factory.mktemp("points")) as load:
        return load()


@pytest.mark.parametrize("case", REFUSED)
def test_data_and_numbers(case: str, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, options, said = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    Path("states.csv").write_text("a,b\n1,2\n")
    with pytest.raises(WdportError, match=said):
        train(model, data, "out", **{"epochs": 1, "batch_size": 32, **options})
    assert not Path("out").exists()


def test_an_energy_term_that_the_family_does_not_have(model: Any) -> None:
    with pytest.raises(UsageError, match=r"energy: .* has no energy term"):
        training_model(model, energy=0.1)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_of_dropped_conditions_that_is_none(share: float, model: Any) -> None:
    with pytest.raises(UsageError, match=r"drop_condition: is .*; give a number from 0 and below 1"):
        training_model(model, drop_condition=share)


def test_models_with_classes_or_without_samples(tmp_path: Path) -> None:
    def made(**fields: Any) -> Any:
        given = {**fields_of("learned, a table of classes"), "scheduler": Scheduler(50), **fields}
        return FAMILY.build(Config(**given), None)

    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)
    with pytest.raises(UsageError, match="condition: the model takes a condition with every state: labels"):
        train(made(), images, tmp_path / "out")
    sizeless = made(sample_size=None)
    with pytest.raises(UsageError, match="model: cannot be trained: its sample_size is null"):
        training_model(sizeless)
    with pytest.raises(UsageError, match="model: does not sample: its sample_size is null"):
        wdport.sample(sizeless, 1)
    assert not (tmp_path / "out").exists()


def test_a_file_where_the_folder_should_be(points: Any, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("states.npy", STATES)
    Path("out").write_text("mine")
    assert main(["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "out"]) == 2
    assert capsys.readouterr().err == "error: out: is not a folder; give another name with -o\n"
    assert Path("out").read_text() == "mine"


def test_a_state_of_another_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wdport.training.saves as module

    monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)
    write_state(writable(tmp_path / NAME), {"w": [np.zeros(3)]}, {"steps": 0, "rows": []})
    monkeypatch.undo()
    with pytest.raises(InputError, match="was written by another release of wdport; remove the folder, or start again"):
        read_state(tmp_path)
