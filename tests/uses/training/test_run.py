"""Runs: what they take of the data, and that an interrupted one goes on as if nothing had happened."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import torch

import wdport
from tests.make import SMALL
from wdport.base.errors import InputError, UsageError
from wdport.optimizers.torch_like import SGD, Adam
from wdport.uses.data.pipeline import transform_dataset
from wdport.uses.training.batches import TrainingBatches
from wdport.uses.training.placement import Placement
from wdport.uses.training.run_state import NAME
from wdport.uses.training.training_data import StateSource, source_of
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.wavelets import WaveletTransform

STATES = np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(70, 2)).astype(np.float32)
SOURCE = StateSource(STATES, "float32")
GIVEN: dict[str, Any] = {"epochs": 4, "batch_size": 16, "ema": 0.9, "save_every": 3, "seed": 5}


class Stop(Exception):
    pass


def weights(model: Any) -> list[np.ndarray]:
    return [np.asarray(variable.value) for variable in model.trainable_variables]


def test_an_interrupted_run_goes_on_bit_for_bit(points: Any, tmp_path: Path) -> None:
    whole = points()
    told = wdport.train(whole, STATES, tmp_path / "whole", optimizer=Adam([{"lr": 1e-2}]), **GIVEN)
    assert told.steps == 20
    assert told.losses[-1] < told.losses[0]
    for stop in (2, 7, 11):  # before anything is saved, after a save within an epoch, after one at its end
        parted, folder = points(), tmp_path / f"parted{stop}"

        def report(done: int, total: int, loss: object, stop: int = stop) -> None:
            assert total == 20
            if done == stop:
                raise Stop

        with pytest.raises(Stop):
            wdport.train(parted, STATES, folder, optimizer=Adam([{"lr": 1e-2}]), report=report, **GIVEN)
        again = points()
        found = wdport.train(again, STATES, folder, optimizer=Adam([{"lr": 1e-2}]), **GIVEN)
        assert found.losses == told.losses
        assert found.averaged is not None
        assert told.averaged is not None
        for one, other in zip([*weights(whole), *told.averaged.values()], [*weights(again), *found.averaged.values()],
                              strict=True):  # fmt: skip
            assert np.array_equal(one, other)
    more = points()
    longer = wdport.train(more, STATES, tmp_path / "whole", optimizer=Adam([{"lr": 1e-2}]), **{**GIVEN, "epochs": 5})
    assert longer.losses[:4] == told.losses
    with (tmp_path / "whole" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == longer.losses
    assert [int(row["steps"]) for row in rows] == [5, 10, 15, 20, 25]


def test_the_step_is_compiled_once(points: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keras replaces the metrics at the beginning of every epoch."""
    for devices in (None, 1):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level("WARNING"):
            wdport.train(points(), STATES, tmp_path / f"run{devices}", devices=devices, epochs=2, batch_size=16)
        assert sum("Compiling jit(train_step)" in text for text in caplog.messages) == 1


def test_optimizers_of_keras(points: Any, tmp_path: Path) -> None:
    given = {"epochs": 4, "batch_size": 16}
    ours = wdport.train(points(), STATES, tmp_path / "ours", optimizer=SGD([{"lr": 1e-3}]), **given)
    theirs = wdport.train(points(), STATES, tmp_path / "theirs", optimizer=keras.optimizers.SGD(1e-3), **given)
    np.testing.assert_allclose(theirs.losses, ours.losses, rtol=1e-6)
    assert [row["learning_rate"] for row in theirs.epochs] == [row["learning_rate"] for row in ours.epochs]

    def adam(steps: int) -> Any:
        return keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.01, steps), clipnorm=1.0)

    models = [points(), points()]
    told = wdport.train(models[0], STATES, tmp_path / "whole", optimizer=adam, **given)
    stopping = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: (_ for _ in ()).throw(Stop()))
    with pytest.raises(Stop):
        wdport.train(points(), STATES, tmp_path / "parted", optimizer=adam, callbacks=[stopping], **given)
    with pytest.raises(Stop):
        wdport.train(points(), STATES, tmp_path / "parted", optimizer=adam, save_every=1,
                     report=lambda done, *_: (_ for _ in ()).throw(Stop()) if done == 8 else None, **given)  # fmt: skip
    found = wdport.train(models[1], STATES, tmp_path / "parted", optimizer=adam, **given)
    assert found.losses == told.losses
    for one, other in zip(*map(weights, models), strict=True):
        assert np.array_equal(one, other)


def test_the_average_is_that_of_diffusers(points: Any, tmp_path: Path) -> None:
    ema = pytest.importorskip("diffusers.training_utils", exc_type=ImportError).EMAModel
    model, folder, steps = points(), tmp_path / "run", list[list[torch.nn.Parameter]]()

    def report(done: int, total: int, loss: object) -> None:
        with np.load(folder / "state.npz") as state:
            steps.append([torch.nn.Parameter(torch.tensor(state[name])) for name in sorted(state) if "trained" in name])

    theirs = ema([torch.nn.Parameter(torch.tensor(each)) for each in weights(model)], decay=0.5)
    given = {**GIVEN, "save_every": 1, "ema": 0.5}
    ours = wdport.train(model, STATES, folder, optimizer=Adam([{"lr": 1e-2}]), report=report, **given)
    for after in steps:
        theirs.step(after)
    assert ours.averaged is not None
    for one, other, last in zip(ours.averaged.values(), theirs.shadow_params, weights(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
        assert np.max(np.abs(one - last)) > 1e-3


def test_callbacks_of_keras_take_part(points: Any, tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    watching = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: counts.append((batch, len(logs))),
        on_epoch_end=lambda epoch, logs: counts.append((epoch, len(logs))),
    )
    stopping = keras.callbacks.EarlyStopping(monitor="loss", min_delta=1e9, patience=2)
    run = wdport.train(points(), STATES, tmp_path / "run", callbacks=[watching, stopping], epochs=9, batch_size=16)
    assert run.steps == 15

    class Halt(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 2

    given = {"epochs": 2, "batch_size": 16}
    halted = wdport.train(points(), STATES, tmp_path / "halted", callbacks=[Halt()], **given)
    assert (halted.steps, halted.losses) == (3, [])
    resumed = wdport.train(points(), STATES, tmp_path / "halted", **given)
    assert resumed.losses == run.losses[:2]
    assert counts == [*((batch, 1) for batch in range(5)), (0, 1), *((batch, 1) for batch in range(5)), (1, 1),
                      *((batch, 1) for batch in range(5)), (2, 1)]  # fmt: skip


def test_an_interruption_tells_what_is_kept(points: Any, tmp_path: Path) -> None:
    for stop, said in (
        (2, "nothing was saved; run the same command to start again"),
        (4, "the last saved state is kept; run the same command to resume"),
    ):

        def report(done: int, total: int, loss: object, stop: int = stop) -> None:
            if done == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) as raised:
            wdport.train(points(), STATES, tmp_path / str(stop), report=report, **GIVEN)
        assert str(raised.value) == said


def test_every_state_is_taken_once_in_an_epoch_and_in_another_order_in_the_next(points: Any) -> None:
    trained, batches = (wdport.training_model(points()), TrainingBatches(SOURCE, 16, 3, Placement()))
    trained.compile(optimizer=Adam([{}]))
    orders = []
    for epoch in range(2):
        batches.begin(epoch)
        trained.fit(batches, shuffle=False, verbose=0)
        assert batches.num_batches == 5
        states, weights = (np.concatenate(each) for each in zip(*batches, strict=True))
        assert len(states) == 80  # the last batch, of 6, is filled up
        taken = states[weights > 0]
        assert sorted(taken.tolist()) == sorted(STATES.tolist())
        orders.append(taken.tolist())
    assert orders[0] != orders[1]
    batches.begin(1, 4)
    assert batches[0][0].tolist() == states[64:].tolist()


def test_windows_are_those_of_the_pipeline() -> None:
    about = FAMILY.diffused(SMALL)
    series = np.random.default_rng(0).normal([5.0, 0.0, -2.0], [3.0, 1.0, 0.1], size=(60, 3))
    source = source_of(series, about, "float32")
    assert not source.streamed
    whole = transform_dataset(series, WaveletTransform(24, "db2", "symmetric", SMALL.groups - 1)).coefficients
    assert source.count == len(whole) == 37
    numbers = np.array([0, 36, 17])
    np.testing.assert_allclose(jax.jit(source.take)(source.held, numbers), whole[numbers], rtol=1e-5, atol=1e-5)
    with pytest.raises(UsageError, match="has 2 columns of numbers, and 3 are needed"):
        source_of(series[:, :2], about, "float32")
    with pytest.raises(UsageError, match="has 20 steps, and a window has 24"):
        source_of(series[:20], about, "float32")
    with pytest.raises(UsageError, match=r"give windows \(n, 24, 3\) or a series"):
        source_of(series[None], about, "float32")


@pytest.mark.parametrize(("save_every", "shown", "steps"), [(3, 0, 3), (None, 0, 5), (None, 4, 4)])
def test_a_loss_that_is_not_finite_stops_the_run(
    points: Any, tmp_path: Path, save_every: int | None, shown: int, steps: int
) -> None:
    """At the next save, which may be that of the epoch's end, or when the loss is shown."""

    def report(done: int, _: int, loss: Callable[[], float]) -> None:
        if done == shown:
            loss()

    given = {**GIVEN, "save_every": save_every, "report": report}
    with pytest.raises(
        UsageError, match=f"training: the loss is not a finite number after {steps} steps; nothing was saved"
    ):
        wdport.train(points(), STATES, tmp_path / "run", optimizer=SGD([{"lr": 1e30}]), **given)
    assert not (tmp_path / "run" / NAME).exists()


def test_the_state_of_another_run_is_refused(points: Any, tmp_path: Path) -> None:
    wdport.train(points(), STATES, tmp_path / "run", epochs=np.int64(1), batch_size=np.int64(16))
    with pytest.raises(UsageError, match="holds the state of another run, with batch_size 16 instead of 32"):
        wdport.train(points(), STATES, tmp_path / "run", epochs=1, batch_size=32)  # fewer steps than the run has
    with pytest.raises(UsageError, match="with seed 0 instead of 1"):
        wdport.train(points(), STATES, tmp_path / "run", epochs=2, batch_size=16, seed=1)
    with pytest.raises(UsageError, match=r"with optimizer lr 0\.0001 instead of 0\.5"):
        wdport.train(points(), STATES, tmp_path / "run", epochs=2, batch_size=16, optimizer=Adam([{"lr": 0.5}]))
    with pytest.raises(UsageError, match=r"which differs in data"):
        wdport.train(points(), STATES + 1e-6, tmp_path / "run", epochs=2, batch_size=16)
    other = points()
    other.trainable_variables[0].assign_add(np.full(other.trainable_variables[0].shape, 1e-6, np.float32))
    with pytest.raises(UsageError, match=r"which differs in model"):
        wdport.train(other, STATES, tmp_path / "run", epochs=2, batch_size=16)
    again = points()
    wdport.train(again, STATES, tmp_path / "run", epochs=2, batch_size=16)
    assert wdport.train(again, STATES, tmp_path / "run", epochs=3, batch_size=16).steps == 15  # its own weights
    with pytest.raises(UsageError, match=r"epochs: are fewer than the run in .*run has; give more"):
        wdport.train(points(), STATES, tmp_path / "run", epochs=2, batch_size=16)
    whole = (tmp_path / "run" / NAME).read_bytes()
    (tmp_path / "run" / NAME).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is damaged"):
        wdport.train(points(), STATES, tmp_path / "run", epochs=2, batch_size=16)
    assert wdport.train(points(), STATES, tmp_path / "run", epochs=1, batch_size=16, force=True).steps == 5


def test_validation_stops_and_resumes(points: Any, tmp_path: Path) -> None:
    given = {"epochs": 30, "batch_size": 16, "validation_split": 0.2, "patience": 2, "seed": 5}
    model, rate = points(), [{"lr": 0.03}]
    run = wdport.train(model, STATES, tmp_path / "run", optimizer=Adam(rate), **given)
    losses = [row["val_loss"] for row in run.epochs]
    assert 3 < len(losses) == np.argmin(losses) + 3 < 30
    assert run.steps == 4 * len(losses)  # 56 states in batches of 16
    assert run.best is not None

    parted, folder = points(), tmp_path / "parted"

    def report(done: int, total: int, loss: object) -> None:
        if done == 4 * int(np.argmin(losses)) + 5:
            raise Stop

    with pytest.raises(Stop):
        wdport.train(parted, STATES, folder, optimizer=Adam(rate), report=report, **given)
    again = wdport.train(points(), STATES, folder, optimizer=Adam(rate), **given)
    assert [row["val_loss"] for row in again.epochs] == losses
    assert again.best is not None
    assert all(np.array_equal(one, other) for one, other in zip(run.best.values(), again.best.values(), strict=True))
    assert wdport.train(points(), STATES, folder, optimizer=Adam(rate), **given).steps == run.steps

    for variable, value in zip(model.trainable_variables, run.best.values(), strict=True):
        variable.assign(value)
    trained = wdport.training_model(model, seed=5)
    trained.compile()
    others = TrainingBatches(SOURCE, 16, None, Placement(), range(56, 70))
    loss = trained.evaluate(others, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(min(losses), rel=1e-6)
    with pytest.raises(UsageError, match="patience: needs a validation loss"):
        wdport.train(points(), STATES, tmp_path / "other", patience=1)
    with pytest.raises(UsageError, match=r"0\.001 of 70 states leaves none for validation"):
        wdport.train(points(), STATES, tmp_path / "other", validation_split=0.001)
