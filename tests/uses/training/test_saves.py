"""How states are kept, Orbax and events among them; streamed data; the command in two processes."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from tests.make import SMALL
from tests.uses.sampling.test_devices import RUN, ended, free_address, start
from tests.uses.training.test_condition import model_about
from tests.uses.training.test_devices import assert_same, begin, runs
from tests.uses.training.test_run import GIVEN, STATES, Stop, weights
from wdport.base.errors import InputError, MachineError
from wdport.cli.main import main
from wdport.optimizers.torch_like import Adam
from wdport.uses.training import run
from wdport.uses.training import training_data as source
from wdport.uses.training.run_state import _digest
from wdport.uses.training.training_data import source_of
from wdport.uses.waveletdiff.family import FAMILY


def stopped(model: Any, folder: Path, stop: int, **given: Any) -> None:
    def report(done: int, total: int, loss: object) -> None:
        if done == stop:
            raise Stop

    with pytest.raises(Stop):
        wdport.train(model, STATES, folder, optimizer=Adam([{"lr": 1e-2}]), report=report, **GIVEN, **given)


def test_a_run_goes_on_from_an_orbax_checkpoint_bit_for_bit(points: Any, tmp_path: Path) -> None:
    pytest.importorskip("orbax.checkpoint")
    whole, again = points(), points()
    told = wdport.train(whole, STATES, tmp_path / "npz", optimizer=Adam([{"lr": 1e-2}]), **GIVEN)
    stopped(points(), tmp_path / "run", 11, orbax=True)
    found = wdport.train(again, STATES, tmp_path / "run", optimizer=Adam([{"lr": 1e-2}]), orbax=True, **GIVEN)
    assert found.losses == told.losses
    assert all(np.array_equal(one, other) for one, other in zip(weights(whole), weights(again), strict=True))
    with pytest.raises(InputError, match=r"has a state in state\.orbax, and the run does not keep it with Orbax"):
        wdport.train(points(), STATES, tmp_path / "run", **GIVEN)
    with pytest.raises(InputError, match=r"has a state in state\.npz, and the run keeps it with Orbax"):
        wdport.train(points(), STATES, tmp_path / "npz", orbax=True, **GIVEN)


ORBAX = "run('orbax', devices='all', shard_weights=True, orbax=True, save_every=3)"
HALF = """
def report(done, total, loss):
    if done == 11:
        os._exit(0)
run('orbax', devices='all', shard_weights=True, orbax=True, save_every=3, report=report)
"""


@pytest.mark.full
def test_two_processes_write_one_orbax_checkpoint_and_go_on_from_it(points: Any, tmp_path: Path) -> None:
    pytest.importorskip("orbax.checkpoint")
    (alone,) = runs(tmp_path, ("run('one')", 1, ""))
    address = free_address()
    ended(*(begin(tmp_path, HALF, 4, address, at) for at in (0, 1)))
    assert list((tmp_path / "orbax" / "state.orbax").iterdir())
    address = free_address()
    for found in runs(tmp_path, (ORBAX, 4, address), (ORBAX, 4, address)):
        assert_same(found["orbax"], alone["one"])


def test_without_the_packages(points: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    absent = ("orbax.checkpoint", "tensorboardX")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in absent else found(name))
    with pytest.raises(MachineError, match=r"needs orbax-checkpoint; install wdport\[orbax\]"):
        wdport.train(points(), STATES, tmp_path / "run", orbax=True)
    with pytest.raises(MachineError, match=r"events need tensorboardX; install wdport\[tensorboard\]"):
        wdport.train(points(), STATES, tmp_path / "run", tensorboard=True)


def test_tensorboard_reads_the_metrics_and_forgets_interrupted_epochs(points: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    stopped(points(), tmp_path / "run", 8, tensorboard=True)
    told = wdport.train(points(), STATES, tmp_path / "run", optimizer=Adam([{"lr": 1e-2}]), tensorboard=True, **GIVEN)
    events = reader.EventAccumulator(str(tmp_path / "run" / "events"))
    events.Reload()
    scalars = events.Scalars("loss")
    assert [each.step for each in scalars] == [5, 10, 15, 20]
    np.testing.assert_allclose([each.value for each in scalars], told.losses, rtol=1e-6)


def test_streamed_states_give_the_same_run(points: Any, tmp_path: Path) -> None:
    np.save("states.npy", STATES.astype(np.float64))
    whole, streamed = points(), points()
    told = wdport.train(whole, STATES, tmp_path / "a", optimizer=Adam([{"lr": 1e-2}]), **GIVEN)
    found = wdport.train(streamed, "states.npy", tmp_path / "b", optimizer=Adam([{"lr": 1e-2}]), stream=True, **GIVEN)
    assert found.losses == told.losses
    assert all(np.array_equal(one, other) for one, other in zip(weights(whole), weights(streamed), strict=True))


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_a_run_of_streamed_data_is_that_of_data_on_the_device(
    block: int, points: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wdport.uses.training.training_data._BLOCK", block)
    np.save("states.npy", np.asfortranarray(STATES.astype(">f8")))
    for epochs, stream in ((1, False), (2, True), (3, False)):
        given = {"epochs": epochs, "batch_size": 16, "stream": stream}
        assert wdport.train(points(), "states.npy", tmp_path / "run", **given).steps == 5 * epochs
    # As releases before this one have it.
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"] == _digest([STATES, None])


def test_a_streamed_file_is_not_read_whole(points: Any) -> None:
    np.save("states.npy", STATES)
    about = model_about(points())
    found = source_of("states.npy", about, "float32", stream=True)
    assert found.streamed
    assert isinstance(found.data, np.memmap)
    assert found.held.size == 0
    assert np.array_equal(found.feed(np.array([69, 3])), STATES[[69, 3]])
    assert not source_of("states.npy", about, "float32").streamed
    whole = Path("states.npy").read_bytes()
    Path("states.npy").write_bytes(whole[:-8])
    with pytest.raises(InputError, match=r"declares an array of shape \(70, 2\) and float32, but has 552 bytes"):
        source_of("states.npy", about, "float32", stream=True)
    np.save("states.npy", np.where(STATES[7, 1] == STATES, np.nan, STATES))
    broken = source_of("states.npy", about, "float32", stream=True)
    with pytest.raises(InputError, match=r"states\.npy: has NaN or infinite values, first in sample 7, counted from 0"):
        broken.feed(np.array([3, 7]))


def test_streamed_windows_are_those_on_the_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    about = FAMILY.diffused(SMALL)
    series = np.random.default_rng(0).normal(size=(60, 3))
    windows = tmp_path / "windows.npy"
    np.save(windows, np.lib.stride_tricks.sliding_window_view(series, 24, axis=0).swapaxes(1, 2))
    for data in (series, windows):
        held, streamed = (source_of(data, about, "float32", stream) for stream in (False, True))
        assert (held.streamed, streamed.streamed) == (False, True)
        numbers = np.array([0, 36, 17])
        one, other = (jax.jit(each.take)(each.held, each.feed(numbers)) for each in (held, streamed))
        assert np.array_equal(one, other)
    monkeypatch.setattr(source, "SHARE", 1e-12)
    assert source_of(series, about, "float32").streamed


WORDS = ["train", "states.npy", "--resume", "a.keras", "--mapping", "flow.yaml", "--lr", "0.001", "--ema", "0.9"]
SHORT = [*WORDS, "-o", "out", "--epochs", "3", "--batch-size", "16"]
LONG = [*WORDS, "-o", "out", "--epochs", "40", "--batch-size", "16", "--save-every", "50"]


def save_states(count: int) -> None:
    np.save("states.npy", np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(count, 2)).astype(np.float32))


def begin_command(address: str, process: int, words: list[str]) -> Any:
    """The command as it is given on two machines, in the working directory."""
    text = f"import os; os.chdir({str(Path.cwd())!r}); import sys; sys.path.insert(0, ''); {RUN}"
    return start(1, "-c", text, *words, "--distributed", f"{address},{process}/2")


def losses(folder: str = "out") -> list[float]:
    return [float(line.split(",")[2]) for line in (Path(folder) / "metrics.csv").read_text().splitlines()[1:]]


def test_two_processes_write_one_run(
    points: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_states(70)
    address = free_address()
    said = ended(*(begin_command(address, at, SHORT) for at in (0, 1)))
    assert [code for code, _, _ in said] == [0, 0], said
    assert "trained    15 steps in 3 epochs" in said[0][1]
    assert "trained" not in said[1][1]
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "metrics.csv", "model.ema.keras", "model.keras", "run.json", "state.npz"]  # fmt: skip
    words = [*WORDS, "-o", "alone", "--epochs", "3", "--batch-size", "16", "--json"]
    compared: list[dict[str, Any]] = []
    monkeypatch.setattr(run, "require_same", lambda facts, _: compared.append(facts))
    assert main(words) == 0
    assert {"seed": 0, "batch_size": 16, "epochs": 3}.items() <= compared[0].items()
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(losses(), [each["loss"] for each in told["epochs"]], rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies_ends_the_other_and_the_run_goes_on(points: Any, victim: int) -> None:
    save_states(2000)
    address = free_address()
    both = [begin_command(address, at, LONG) for at in (0, 1)]
    while both[1 - victim].poll() is None and not Path("out/state.npz").exists():
        time.sleep(0.05)
    both[victim].kill()
    killed = time.monotonic()
    said = ended(*both)
    assert time.monotonic() - killed < 60
    assert (said[victim][0], said[1 - victim][0]) == (-9, 5), said
    assert "error: --distributed: another process has ended (" in said[1 - victim][2]
    assert "start all processes again: the run resumes from its last saved state" in said[1 - victim][2]
    assert len(losses() if Path("out/metrics.csv").exists() else []) < 40
    address = free_address()
    again = ended(*(begin_command(address, at, LONG) for at in (0, 1)))
    assert [code for code, _, _ in again] == [0, 0], again
    interrupted = losses()
    Path("out").rename("parted")
    address = free_address()
    whole = ended(*(begin_command(address, at, LONG) for at in (0, 1)))
    assert [code for code, _, _ in whole] == [0, 0], whole
    assert losses() == interrupted
