"""States kept by Orbax, and events for TensorBoard; they need the extras ``orbax`` and ``tensorboard``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.sampling.test_devices import ended, free_address
from tests.training.test_devices import assert_same, begin, runs
from tests.training.test_run import GIVEN, STATES, Stop, weights
from wdport.errors import InputError, MachineError
from wdport.optimizers.torch_like import Adam


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
