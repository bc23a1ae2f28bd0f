"""What `train` refuses before it computes anything, and the folder of a run, in which nothing else is replaced."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import jax
import keras
import numpy as np
import pytest

import wdport
from tests.command import Cli, Refused
from tests.uses.training.points import points_in
from tests.uses.unet2d.make import fields_of
from wdport.base.errors import InputError, MachineError, MisfitError, UsageError, WdportError
from wdport.files.outputs import writable
from wdport.models.interface import Recipe
from wdport.optimizers.torch_like import Adam
from wdport.uses.diffusion.scheduler_config import Scheduler
from wdport.uses.training.model import training_model
from wdport.uses.training.run import train
from wdport.uses.training.run_folder import WRITTEN, require_run_folder, run_folder
from wdport.uses.training.run_state import NAME, read_state, write_state
from wdport.uses.unet2d.config import Config
from wdport.uses.unet2d.family import FAMILY
from wdport.uses.waveletdiff.family import FAMILY as FRESH

STATES = np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(64, 2)).astype(np.float32)


def broken(at: int) -> np.ndarray:
    states = STATES.copy()
    states[at] = np.nan
    return states


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "epochs": (STATES, {"epochs": 0}, "epochs: invalid value 0; give a whole number from 1"),
    "batch size": (STATES, {"batch_size": True}, "batch_size: invalid value True; give a whole number from 1"),
    "save every": (STATES, {"save_every": 2.0}, "save_every: invalid value 2.0; give a whole number from 1"),
    "seed": (STATES, {"seed": -1}, "seed: invalid value -1; give a whole number from 0 to 4294967295"),
    "average": (STATES, {"ema": 1.0}, "ema: invalid value 1.0; give a number above 0 and below 1"),
    "optimizer": (STATES, {"optimizer": "adma"}, "optimizer: 'adma' is unknown; give one of"),
    "no optimizer": (STATES, {"optimizer": lambda steps: None}, "optimizer: is a NoneType; give one of"),
    "class of one": (STATES, {"optimizer": keras.optimizers.SGD}, "optimizer: is a type; give one of"),
    "average by Keras": (STATES, {"optimizer": "sgd", "ema": 0.9}, "ema: optimizers of Keras replace the weights"),
    "NaN split": (STATES, {"validation_split": np.nan}, "validation_split: invalid value nan; give a number from 0"),
    "targets": (STATES, {"targets": STATES}, "targets: the objective of this model takes none; leave it out"),
    "a list": (STATES.tolist(), {}, "data: is a list, and this model has no series"),
    "another shape": (STATES[:, :1], {}, r"data: have shape \(64, 1\)"),
    "nothing": (STATES[:0], {}, r"data: have shape \(0, 2\)"),
    "missing values": (broken(3), {}, "data: have NaN or infinite values, first in sample 3, counted from 0; give"),
    "a file with one": ("broken.npy", {}, "broken.npy: has NaN or infinite values, first in sample 60, counted from 0"),
    "a streamed one": ("broken.npy", {"stream": True}, "broken.npy: has NaN or infinite values, first in sample 60,"),
    "no full step": (
        STATES,
        {"optimizer": partial(Adam, [{}], gradient_accumulation_steps=3)},
        "gradient_accumulation_steps=: is 3, and the run has 2 batches, so that no step is taken; give",
    ),
    "no step of a recipe": (
        STATES,
        {"recipe": Recipe(schedule="onecycle", gradient_accumulation_steps=3)},
        "gradient_accumulation_steps=: is 3, and the run has 2 batches",
    ),
    "a short schedule": (
        STATES,
        {"recipe": Recipe(schedule="onecycle")},
        "schedule=: onecycle is for more than the 2 steps of this run; choose another, or train",
    ),
    "a table": ("states.csv", {}, "states.csv: is not an .npy file, and this model has no series"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with points_in(tmp_path_factory.mktemp("points")) as load:
        return load()


@pytest.mark.parametrize("case", REFUSED)
def test_data_and_numbers(case: str, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, options, said = REFUSED[case]
    # An optimizer starts JAX, which the import of a test must not: `make guards` copies the process after it.
    options = {name: value() if isinstance(value, partial) else value for name, value in options.items()}
    monkeypatch.chdir(tmp_path)
    Path("states.csv").write_text("a,b\n1,2\n")
    np.save("broken.npy", broken(60))
    monkeypatch.setattr("wdport.uses.training.training_data._BLOCK", 32)
    with pytest.raises(WdportError, match=said) as raised:
        train(model, data, "out", **{"epochs": 1, "batch_size": 32, **options})
    assert isinstance(raised.value, InputError if str(data).endswith((".csv", ".npy")) else UsageError)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"energy": 0.1}, r"energy: .* has no energy term"),
     ({"drop_condition": 0.1}, "drop_condition: the model has no value that means no condition; name it in"),
     *(({"drop_condition": share}, r"drop_condition: invalid value .*; give a number from 0 and below 1")
       for share in (-0.1, 1.0, np.nan))],
)  # fmt: skip
def test_arguments_that_the_model_does_not_take(arguments: dict[str, float], says: str, model: Any) -> None:
    with pytest.raises(UsageError, match=says):
        training_model(model, **arguments)


def test_devices_of_several_processes_and_batches_that_they_cannot_divide(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(UsageError, match='devices: are not given, and there are several processes; give "all"'):
        train(model, STATES, tmp_path / "out")
    monkeypatch.setattr("wdport.uses.training.run.placement_of", lambda *_: SimpleNamespace(count=3))
    with pytest.raises(UsageError, match="batch_size: is 32, on 3 devices; give a multiple of 3"):
        train(model, STATES, tmp_path / "out")


@pytest.mark.parametrize(("count", "said"), [(0, "is of no family that"), (2, "could be of the families a and a; ")])
def test_a_configuration_of_no_family_or_of_several(
    count: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of others may have families that are trained from scratch."""
    family = Mock(spec=FRESH, is_configuration=lambda _: True)
    family.name = "a"
    monkeypatch.setattr("wdport.uses.training.model.all_families", lambda: [family] * count)
    (tmp_path / "a.yaml").write_text("{a: 1}")
    with pytest.raises(MisfitError, match=f"a.yaml: {said}"):
        wdport.new_model(tmp_path / "a.yaml", np.zeros((9, 2)))


def test_models_with_classes_or_without_samples(tmp_path: Path) -> None:
    def made(**fields: Any) -> Any:
        given = {**fields_of("learned, a table of classes"), "scheduler": Scheduler(50), **fields}
        return FAMILY.build(Config(**given), None)

    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)
    with pytest.raises(UsageError, match="condition: the model takes a condition with every state: labels"):
        train(made(), images, tmp_path / "out")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3))
    for dtype in (np.uint8, np.float32):
        with pytest.raises(
            UsageError, match=f"data: have whole numbers up to {pixels.max()}, as pixels are; give floating"
        ):
            train(made(), pixels.astype(dtype), tmp_path / "out", condition=np.zeros(4, int))
    sizeless = made(sample_size=None)
    with pytest.raises(UsageError, match="model: cannot be trained: its sample_size is null"):
        training_model(sizeless)
    with pytest.raises(UsageError, match="model: does not sample: its sample_size is null"):
        wdport.sample(sizeless, 1)
    assert not (tmp_path / "out").exists()


def test_a_state_of_another_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wdport.uses.training.run_state as module

    monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)
    write_state(writable(tmp_path / NAME), {"w": [np.zeros(3)]}, {"steps": 0, "rows": []})
    monkeypatch.undo()
    with pytest.raises(InputError, match="was written by another release of wdport; remove the folder, or start again"):
        read_state(tmp_path)


WORDS = ["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "-o", "run", "--batch-size", "32"]
TINY = {"w": [np.arange(6.0).reshape(2, 3)], "empty": []}
FACTS = {"steps": 3, "rows": [{"epoch": 1, "steps": 3, "loss": 0.1}], "begins": {"model": "a"}}


def contents() -> dict[str, bytes]:
    """The files below the current folder that no library makes."""
    files = [path for path in Path().rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path): path.read_bytes() for path in files}


Unchanged = Callable[..., None]


@pytest.fixture
def unchanged(refused: Refused) -> Unchanged:
    """Fails unless the command is refused with one line that has these words, and no file is another."""

    def run(words: list[str], says: str, code: int = 2) -> None:
        before = contents()
        refused(*words, says=says, code=code)
        assert contents() == before

    return run


@pytest.fixture
def states(points: Any) -> None:
    np.save("states.npy", STATES)


def test_a_file_where_the_folder_should_be(states: None, unchanged: Unchanged) -> None:
    Path("run").write_text("mine")
    unchanged(WORDS, "error: run: is not a folder; give another name\n")


def test_other_data_and_options_are_refused(states: None, cli: Cli, unchanged: Unchanged) -> None:
    """Other models: test_the_state_of_another_run_is_refused."""
    np.save("other.npy", STATES + 1e-6)
    cli(*WORDS)
    unchanged([WORDS[0], "other.npy", *WORDS[2:]], "run: holds the state of another run, which differs in data")
    unchanged([*WORDS, "--dtype", "mixed_bfloat16"], "with dtype float32 instead of mixed_bfloat16")
    assert "trained" in cli(WORDS[0], "other.npy", *WORDS[2:], "--force").out


def test_a_trained_model_without_its_state_stays(states: None, cli: Cli, unchanged: Unchanged) -> None:
    cli(*WORDS)
    (Path("run") / NAME).unlink()
    message = "error: run: has model.keras, but not the state of its run; remove the folder, or start again with"
    unchanged(WORDS, message, 3)
    unchanged([*WORDS, "--seed", "1"], message, 3)
    assert "trained" in cli(*WORDS, "--force").out
    for name in ("model.keras", NAME):  # as if the run had been interrupted before it saved its first state
        (Path("run") / name).unlink()
    assert "trained" in cli(*WORDS, "--seed", "1").out


def test_inputs_and_other_files_are_not_replaced(points: Any, states: None, cli: Cli, unchanged: Unchanged) -> None:
    os.mkdir("run")
    os.link("a.keras", "run/model.keras")
    unchanged(WORDS, "run/model.keras: is an input (model)")
    os.unlink("run/model.keras")
    points().save("run/model.keras")
    unchanged(WORDS, "run: has model.keras, and no run of wdport train (run.json)")
    os.unlink("run/model.keras")
    Path("notes.txt").write_text("mine")
    unchanged([*WORDS, "--json", "notes.txt"], "exists already and is not JSON of wdport")
    unchanged([*WORDS, "--json", "run/model.keras"], "is also an output")
    cli(*WORDS, "--json", "told.json")
    unchanged([*WORDS[:3], "run/model.keras", *WORDS[4:]], "run/model.keras: is an input (model)")


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


def test_a_file_of_another_kind_with_a_name_of_a_run_stays(states: None, cli: Cli, unchanged: Unchanged) -> None:
    cli(*WORDS)
    for name in ("model.ema.keras", "model.keras", "metrics.csv"):  # the last one is looked at first
        (Path("run") / name).write_text("mine")
        unchanged([*WORDS, "--epochs", "2"], f"{name}: is not a file that wdport train writes")


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


def test_settings_of_jax_in_the_environment_change_no_loss(states: None, cli: Cli, unchanged: Unchanged) -> None:
    """The precision of matrix products, which a user may choose, is a fact of the run."""
    cli(*WORDS)
    others = {"jax_enable_x64": True, "jax_default_prng_impl": "rbg", "jax_threefry_partitionable": False,
              "jax_random_seed_offset": 3, "jax_numpy_rank_promotion": "raise"}  # fmt: skip
    for name, value in others.items():
        jax.config.update(name, value)
    cli(*(word if word != "run" else "other" for word in WORDS))
    assert losses("other") == losses("run")
    with jax.default_matmul_precision("bfloat16"):
        unchanged([*WORDS, "--epochs", "2"], "holds the state of another run, with jax None instead of")


def test_a_lock_and_an_unfinished_file_of_others_stay(states: None, unchanged: Unchanged) -> None:
    Path("run").mkdir()
    (Path("run") / "lock").write_text("mine")
    unchanged(WORDS, "lock: is not a lock of wdport")
    (Path("run") / "lock").unlink()
    name = "run/.model.keras.0123456789abcdef.wdport-tmp.keras"
    Path("a.keras").rename(name)
    unchanged([name if word == "a.keras" else word for word in WORDS], "is an input (model) with the name of an")
    name = ".x.npz.0123456789abcdef.wdport-tmp.npz"
    np.savez(name, x=STATES)
    with pytest.raises(UsageError, match="with the name of an unfinished output"):
        writable(Path("x.npz"), {"known": Path(name)})
