"""Data that are streamed give the run that data on the device give; 16-bit products change it little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from tests.make import SMALL
from tests.training.test_condition import model_about
from tests.training.test_run import GIVEN, STATES, weights
from wdport.errors import InputError, UsageError
from wdport.families.waveletdiff.family import FAMILY
from wdport.optimizers.torch_like import Adam
from wdport.training import training_data as source
from wdport.training.training_data import source_of


def test_streamed_states_give_the_same_run(points: Any, tmp_path: Path) -> None:
    np.save("states.npy", STATES.astype(np.float64))
    whole, streamed = points(), points()
    told = wdport.train(whole, STATES, tmp_path / "a", optimizer=Adam([{"lr": 1e-2}]), **GIVEN)
    found = wdport.train(streamed, "states.npy", tmp_path / "b", optimizer=Adam([{"lr": 1e-2}]), stream=True, **GIVEN)
    assert found.losses == told.losses
    assert all(np.array_equal(one, other) for one, other in zip(weights(whole), weights(streamed), strict=True))


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
    with pytest.raises(UsageError, match="have NaN or infinite values"):
        broken.feed(np.array([7]))


def test_streamed_windows_are_those_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    about = FAMILY.diffused(SMALL)
    series = np.random.default_rng(0).normal(size=(60, 3))
    held, streamed = (source_of(series, about, "float32", stream) for stream in (False, True))
    assert (held.streamed, streamed.streamed) == (False, True)
    numbers = np.array([0, 36, 17])
    one, other = (jax.jit(each.take)(each.held, each.feed(numbers)) for each in (held, streamed))
    assert np.array_equal(one, other)
    monkeypatch.setattr(source, "SHARE", 1e-12)
    assert source_of(series, about, "float32").streamed
