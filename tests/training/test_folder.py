"""The folder of a run: no input or other file is replaced, one run writes to it, and no other run is resumed."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from wdport.cli.main import main
from wdport.errors import InputError, MachineError, UsageError
from wdport.files.outputs import writable
from wdport.training.run_folder import WRITTEN, require_run_folder, run_folder
from wdport.training.saves import NAME, read_state, write_state

STATES = np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(64, 2)).astype(np.float32)
WORDS = ["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "run", "--batch-size", "32"]
TINY = {"w": [np.arange(6.0).reshape(2, 3)], "empty": []}
FACTS = {"steps": 3, "rows": [{"epoch": 1, "steps": 3, "loss": 0.1}], "begins": {"model": "a"}}


def contents() -> dict[str, bytes]:
    """The files below the current folder that no library makes."""
    files = [path for path in Path().rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path): path.read_bytes() for path in files}


def refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str], code: int = 2) -> None:
    """The command fails with one line that has ``said``, and no file is another."""
    before = contents()
    assert main(words) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert contents() == before


def test_other_data_and_options_are_refused(points: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Other models: test_the_state_of_another_run_is_refused."""
    np.save("states.npy", STATES)
    np.save("other.npy", STATES + 1e-6)
    assert main(WORDS) == 0
    capsys.readouterr()
    refused([WORDS[0], "other.npy", *WORDS[2:]], "run: holds the state of another run, with data", capsys)
    refused([*WORDS, "--dtype", "mixed_bfloat16"], "with dtype float32 instead of mixed_bfloat16", capsys)
    assert main([WORDS[0], "other.npy", *WORDS[2:], "--force"]) == 0
    assert "trained" in capsys.readouterr().out


def test_inputs_and_other_files_are_not_replaced(points: Any, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("states.npy", STATES)
    os.mkdir("run")
    os.link("a.keras", "run/model.keras")
    refused(WORDS, "run/model.keras: is an input (model)", capsys)
    os.unlink("run/model.keras")
    points().save("run/model.keras")
    refused(WORDS, "run: has model.keras, and no run of wdport train (run.json)", capsys)
    os.unlink("run/model.keras")
    Path("notes.txt").write_text("mine")
    refused([*WORDS, "--json", "notes.txt"], "exists already and is not JSON of wdport", capsys)
    refused([*WORDS, "--json", "run/model.keras"], "is also an output", capsys)
    assert main([*WORDS, "--json", "told.json"]) == 0
    capsys.readouterr()
    refused([*WORDS[:3], "run/model.keras", *WORDS[4:]], "run/model.keras: is an input (model)", capsys)


@pytest.mark.parametrize("name", WRITTEN)
def test_outputs_are_checked_before_the_work(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=f"{name}: is a directory"):
        require_run_folder(tmp_path)
    (tmp_path / name).rmdir()
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rename(tmp_path.with_name("elsewhere"))
    with pytest.raises(UsageError, match=f"{name}: is a symbolic link"):
        require_run_folder(tmp_path)


def test_a_file_of_another_kind_with_a_name_of_a_run_stays(points: Any, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("states.npy", STATES)
    assert main(WORDS) == 0
    capsys.readouterr()
    for name in ("model.ema.keras", "model.keras", "metrics.csv"):  # the last one is looked at first
        (Path("run") / name).write_text("mine")
        refused([*WORDS, "--epochs", "2"], f"{name}: is not a file that wdport train writes", capsys)


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with run_folder(tmp_path / "run", True), pytest.raises(MachineError, match="another process is writing to it"):
        run_folder(tmp_path / "run", True).__enter__()
    with run_folder(tmp_path / "run", True) as held:
        assert held is not None


CHANGES: dict[str, Callable[[dict[str, bytes]], object]] = {
    "a value": lambda members: members.update({"w/0.npy": members["w/0.npy"][:-1] + b"\1"}),
    "a metric": lambda members: members.update({"rows/0.npy": members["rows/0.npy"][:-1] + b"\1"}),
    "the facts": lambda members: members.update(
        {"facts.npy": members["facts.npy"].replace(b'"steps":3', b'"steps":4')}
    ),
    "no array": lambda members: members.pop("w/0.npy"),
    "one more": lambda members: members.update({"w/1.npy": members["w/0.npy"]}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_state_is_found_whatever_its_checksums_say(change: str, tmp_path: Path) -> None:
    write_state(writable(tmp_path / "state.npz"), TINY, FACTS)
    arrays, facts = read_state(tmp_path) or ({}, {})
    assert facts == FACTS
    assert np.array_equal(arrays["w"][0], TINY["w"][0])
    with zipfile.ZipFile(tmp_path / NAME) as file:
        members = {name: file.read(name) for name in file.namelist()}
    CHANGES[change](members)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    (tmp_path / NAME).write_bytes(made.getvalue())
    with pytest.raises(InputError, match=r"state\.npz"):
        read_state(tmp_path)


def test_the_python_interface_keeps_other_files(points: Any, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "metrics.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"mine: has metrics\.csv, and no run of wdport train"):
        wdport.train(points(), STATES, folder)
    assert (folder / "metrics.csv").read_text() == "mine"


def losses(folder: str) -> list[str]:
    return [line.split(",")[2] for line in (Path(folder) / "metrics.csv").read_text().splitlines()]


def test_settings_of_jax_in_the_environment_change_no_loss(points: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The precision of matrix products, which a user may choose, is a fact of the run."""
    np.save("states.npy", STATES)
    assert main(WORDS) == 0
    others = {"jax_enable_x64": True, "jax_default_prng_impl": "rbg", "jax_threefry_partitionable": False,
              "jax_random_seed_offset": 3, "jax_numpy_rank_promotion": "raise"}  # fmt: skip
    for name, value in others.items():
        jax.config.update(name, value)
    assert main([word if word != "run" else "other" for word in WORDS]) == 0
    assert losses("other") == losses("run")
    capsys.readouterr()
    with jax.default_matmul_precision("bfloat16"):
        refused([*WORDS, "--epochs", "2"], "holds the state of another run, with jax None instead of", capsys)


def test_a_lock_and_an_unfinished_file_of_others_stay(points: Any, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("states.npy", STATES)
    Path("run").mkdir()
    (Path("run") / "lock").write_text("mine")
    refused(WORDS, "lock: is not a lock of wdport", capsys)
    (Path("run") / "lock").unlink()
    name = "run/.model.keras.0123456789abcdef.wdport-tmp.keras"
    Path("a.keras").rename(name)
    refused([name if word == "a.keras" else word for word in WORDS], "is an input (model) with the name of an", capsys)
    name = ".x.npz.0123456789abcdef.wdport-tmp.npz"
    np.savez(name, x=STATES)
    with pytest.raises(UsageError, match="with the name of an unfinished output"):
        writable(Path("x.npz"), {"known": Path(name)})
