"""`wdport.train`: train a converted model on data, with a saved state from which a run resumes bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
from keras.optimizers import Optimizer

from wdport.base.errors import UsageError, require_paths
from wdport.base.options import COUNT, require_number, require_within
from wdport.families.registry import known_model
from wdport.files.atomic import replacing
from wdport.files.locked_folder import RunFolder
from wdport.files.outputs import OutputPath
from wdport.models.interface import PUBLIC, Array, KerasModel, Recipe
from wdport.models.keras_runtime import set_variable, variables_by_path
from wdport.optimizers.recipe import optimizer_of, require_step
from wdport.optimizers.torch_like import TorchOptimizer, last_rate
from wdport.uses.devices import require_same
from wdport.uses.diffusion.noise import check_seed
from wdport.uses.diffusion.process import UNIFORM
from wdport.uses.roles import Fresh
from wdport.uses.training.batches import TrainingBatches, split
from wdport.uses.training.model import family_recipe, training_model
from wdport.uses.training.network_training import NetworkTraining
from wdport.uses.training.placement import KEPT, placement_of
from wdport.uses.training.run_folder import Events, run_folder
from wdport.uses.training.run_state import RunState, Saves
from wdport.uses.training.training_data import Data

Report = Callable[[int, int, Callable[[], float]], None]
"""Called with the steps done, all steps, and a function that waits for the device and returns the epoch's mean loss so
far, or raises :class:`UsageError` if it is not finite."""


@dataclass(frozen=True)
class TrainingRun:
    """A finished run: its folder, its total steps, and the metrics of every epoch by name.

    The model passed to :func:`train` holds the trained weights; ``averaged`` holds those of the moving average, by
    variable path, if there was one, and ``best`` those of the epoch with the lowest ``val_loss``, with a validation
    split.
    """

    folder: Path
    steps: int
    epochs: tuple[Mapping[str, float], ...]
    averaged: Mapping[str, Array] | None = None
    best: Mapping[str, Array] | None = None

    @property
    def losses(self) -> list[float]:
        """The mean loss of every epoch."""
        return [epoch["loss"] for epoch in self.epochs]


def save_trained(model: KerasModel, output: OutputPath, values: Mapping[str, Array] | None = None) -> None:
    """Save ``model`` to a ``.keras`` file, with these ``values`` of its variables instead of its own if given.

    Raises :class:`MachineError` if writing fails.
    """
    named = variables_by_path(model)
    # Keras saves the values of the variables, so others are assigned for a moment and put back, also after an error.
    original = {name: np.array(named[name].value) for name in values or ()}
    try:
        for name, array in (values or {}).items():
            set_variable(named[name], np.array(array))
        with replacing(output) as (temporary,):
            keras.saving.save_model(model, temporary)
    finally:
        for name, array in original.items():
            set_variable(named[name], array)


def train(
    model: KerasModel,
    data: Data,
    folder: str | PathLike[str],
    *,
    epochs: int | None = None,
    batch_size: int | None = None,
    optimizer: Optimizer | Callable[[int], Optimizer] | str | None = None,
    recipe: Recipe | str | None = None,
    seed: int | None = None,
    ema: float | None = None,
    validation_split: float = 0.0,
    patience: int | None = None,
    condition: Array | None = None,
    targets: Array | None = None,
    transform: str | None = None,
    save_every: int | None = None,
    devices: int | str | None = None,
    shard_weights: bool = False,
    stream: bool | None = None,
    orbax: bool = False,
    tensorboard: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    report: Report | None = None,
    force: bool = False,
    finish: Callable[[RunFolder, TrainingRun], None] | None = None,
) -> TrainingRun:
    """Train a model in place. If the run is interrupted or fails, the model has the weights of the last saved state.

    Every epoch takes all windows of a series, or all samples, in a new order. The last batch of an epoch is padded with
    entries of weight 0, so one compiled program serves the whole run. If ``folder`` holds the state of an unfinished
    run with the same settings, model and data, that run is resumed, with the same losses as if it had not been
    interrupted.

    Args:
        model: from :func:`wdport.load_model`, or from :func:`wdport.training_model` for another objective than the
            family's.
        data: a data file or a series, whose windows are transformed on the device, or clean states (n, *shape); a
            folder of images; tokens (n, L) for a masked language model; inputs (n, ...) for a model with ``targets``,
            several of them as a list, a dictionary or an ``.npz`` file by their names.
        folder: folder for the state, and for ``metrics.csv`` with the losses of every epoch.
        epochs: total epochs; by default the recipe's, or 1.
        batch_size: states per step; by default the recipe's, or 32.
        optimizer: from :func:`wdport.load_optimizer`, one of :mod:`wdport.optimizers.torch_like` or of
            :mod:`keras.optimizers`, or a function that takes the total number of steps and returns one; by default the
            recipe's, or AdamW with a rate of 1e-4.
        recipe: "public" trains as the model's public script does, with steps drawn in the same way and the same
            learning rates, weight decay and clipping; alternatively, the recipe that
            :func:`wdport.uses.training.model.recipe_of` reads from a training configuration. Other arguments take
            precedence.
        seed: determines the order of the data, noise, times and dropout; by default that of the training model, or 0.
        ema: decay of a moving average of the weights, such as 0.999; not for optimizers of :mod:`keras.optimizers`.
            At step k it is at most k / (k + 9); the first step copies the weights.
        validation_split: share of the states, the last ones, that are not trained on; ``val_loss`` is their mean loss,
            with the same noise in every epoch.
        patience: number of epochs after which the run ends if ``val_loss`` has not become lower.
        condition: the condition (n, ...) of every state or window, such as labels or scales, for a model that takes
            one; for price windows, it is derived from the data.
        targets: the targets (n, ...) of every sample, for a training model with a ``loss``.
        transform: the transform of the model's data, if it is your own ``module:class``; its code is then run.
        save_every: save the state whenever this many steps have passed, in addition to the end of every epoch.
        devices: divide every batch among "all" devices, or the first N, of every process; ``batch_size`` must be a
            multiple of their number. By default one device, or those of ``keras.distribution``.
        shard_weights: also divide weights, moments and averages among the devices.
        stream: read the data batch by batch, instead of keeping it on the device; the default if it takes more than a
            quarter of the device's memory.
        orbax: save the state as an Orbax checkpoint, of which every process writes its part, instead of one file.
        tensorboard: also write the metrics as events for TensorBoard.
        callbacks: callbacks of Keras, such as ``EarlyStopping(monitor="loss")``.
        report: called after every step, for a progress display.
        force: start again in a folder with the state of another run, or a damaged one.
        finish: called by the first process, with the folder (to which no other run may write yet) and the finished run.

    Returns:
        A :class:`TrainingRun`.

    Raises:
        UsageError: wdport cannot train this model, the data or the settings do not fit it, ``folder`` contains a
            different run or other files, or the loss is no longer finite (the last saved state is kept).
        InputError: the data or the state in ``folder`` cannot be read, or a file of data has NaN or infinite values.
        MachineError: another process of the run has ended or another run writes to ``folder``, writing fails, or a
            package is not installed.
    """
    require_paths(folder=folder)
    require_within(COUNT, epochs=epochs, batch_size=batch_size, save_every=save_every, patience=patience)
    require_number("from 0 and below 1", validation_split=validation_split)
    require_within("above 0 and below 1", ema=ema)
    if seed is not None:
        seed = check_seed(seed)
    if not isinstance(callbacks, Sequence) or not all(
        isinstance(callback, keras.callbacks.Callback) for callback in callbacks
    ):
        raise UsageError("callbacks", "are not callbacks of Keras", "give a list of keras.callbacks.Callback")
    if isinstance(model, NetworkTraining):
        trained, plan = model, _recipe(model.network, recipe)
        if seed is not None and seed != trained.seed:
            trained.reseed(seed)
    else:
        plan = _recipe(model, recipe)
        trained = training_model(model, energy=plan.energy or 0.0, law=plan.law or UNIFORM, seed=seed or 0)
    epochs, batch_size = int(epochs or plan.epochs or 1), int(batch_size or plan.batch_size or 32)
    placement = placement_of(devices, shard_weights)
    if batch_size % placement.count:
        what = f"is {batch_size}, on {placement.count} devices"
        raise UsageError("batch_size", what, f"give a multiple of {placement.count}")
    beside = {"condition": condition, "targets": targets}
    for name, array in beside.items():
        if array is not None and name != trained.beside:
            raise UsageError(name, "the objective of this model takes none", "leave it out")
    source = trained.source(data, stream, beside.get(trained.beside), transform)
    target = Path(folder)
    states, others = split(source, validation_split) if validation_split else (None, None)
    batches = TrainingBatches(source, batch_size, trained.seed, placement, states)
    validation = None if others is None else batches.of(others)
    if patience is not None and validation is None:
        raise UsageError("patience", "needs a validation loss", "give a validation split too")
    trained.placement = placement
    # The last batch of an epoch is filled up, so the steps are rounded up.
    chosen = optimizer_of(replace(plan, epochs=epochs)) if optimizer is None else optimizer
    trained.compile(optimizer=_optimizer(chosen, epochs * batches.per_epoch, ema))
    first = jax.process_index() == 0
    if first:
        _ = source.hashed  # which reads streamed data, before the folder is made
    with run_folder(target, first) as held, Events(target, held, tensorboard) as events:
        saves = Saves(target, held, placement, orbax)
        state = RunState(trained, batches, saves, ema)
        if held is not None:
            # Before the first step, so that a run with other settings is refused before it overwrites anything.
            held.begin(state.facts(), (), force, saves.begun, saves.check)
        require_same(state.alike(epochs, save_every), KEPT)
        try:
            if validation is not None:
                state.mark_best()
            metrics = state.restore(epochs)
            require_same({"done": state.done}, KEPT)
            events.begin(state.rows)
            recording = RunCallback(state, events, epochs, metrics, save_every, patience, report)
            finished_run = _fit(state, recording, validation, callbacks, epochs)
        except BaseException as error:
            saved = saves.exist()
            if saved and jax.process_count() == 1:
                # The model as the folder has it: the same call, with the same model, resumes. Another error here would
                # hide the first one.
                with suppress(Exception):
                    state.restore(epochs)
            if not isinstance(error, KeyboardInterrupt):
                raise
            fate = "the last saved state is kept" if saved else "nothing was saved"
            message = f"{fate}; run the same command to {'resume' if saved else 'start again'}"
            # The same class: the command line raises subclasses for other signals.
            raise type(error)(message) from None
        if held is not None and finish is not None:
            finish(held, finished_run)
        return finished_run


def _fit(
    state: RunState, recording: RunCallback, validation: TrainingBatches | None,
    callbacks: Sequence[keras.callbacks.Callback], epochs: int,
) -> TrainingRun:  # fmt: skip
    """Take the steps that are missing."""
    # Keras's own are set only within wdport.training_model(...).fit: these variables and batches are placed already.
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        while state.done < epochs * state.batches.per_epoch and not recording.stopped:
            epoch, skipped = divmod(state.done, state.batches.per_epoch)
            state.batches.begin(epoch, skipped)
            # The rest of an interrupted epoch has fewer batches than the others, and Keras counts them once.
            last = epoch + 1 if skipped else epochs
            calls = _Callbacks(recording, callbacks, state.model, epochs=last, steps=state.batches.num_batches)
            state.model.fit(state.batches, initial_epoch=epoch, epochs=last, shuffle=False, callbacks=calls,
                            validation_data=validation)  # fmt: skip
    finally:
        keras.distribution.set_distribution(distribution)
    return TrainingRun(state.saves.folder, state.done, tuple(state.rows), *state.finish())


class RunCallback(keras.callbacks.Callback):
    """Saves the state of a run and its metrics, and reports its progress."""

    def __init__(
        self, state: RunState, events: Events, epochs: int, metrics: Sequence[Any], save_every: int | None,
        patience: int | None, report: Report | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._state, self._events, self._metrics, self._resumed = state, events, metrics, state.done
        self._save_every, self._patience, self._report = save_every, patience, report
        self._per_epoch = state.batches.per_epoch
        self._total, self._done, self._since = epochs * self._per_epoch, state.done, 0.0
        self.stopped = self._is_late()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Begin the epoch's order, or resume within it."""
        skipped = self._resumed - epoch * self._per_epoch
        if skipped <= 0:
            self._state.batches.begin(epoch)
        else:
            # Keras has just reset them.
            self._state.assign("metrics", self._metrics)
        self._since = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Save the state and report, except after the last batch of an epoch; ``logs`` are arrays of the device."""
        self._done += 1
        if self._done % self._per_epoch == 0:
            return
        if self._save_every is not None and self._done % self._save_every == 0:
            self._state.finite((logs or {})["loss"], self._done)
            self._state.save(self._done)
        if self._report is not None:
            self._report(self._done, self._total, lambda: self._state.finite((logs or {})["loss"], self._done))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Save the state, and the metrics unless a callback has ended the epoch early."""
        metrics = dict(logs or {})
        self._state.finite(metrics["loss"], self._done)
        if self._done % self._per_epoch:
            self._state.save(self._done)
            return
        row = {"epoch": epoch + 1, "steps": self._done, **metrics, "learning_rate": last_rate(self._state.optimizer),
               "seconds": round(time.monotonic() - self._since, 3)}  # fmt: skip
        if "val_loss" in row and all(row["val_loss"] < other["val_loss"] for other in self._state.rows):
            self._state.mark_best()
        self._state.rows.append(row)
        self.model.stop_training = self.model.stop_training or self._is_late()
        self._events.epoch(self._state.rows)
        self._state.save(self._done)
        if self._report is not None:
            self._report(self._done, self._total, lambda: row["loss"])

    def _is_late(self) -> bool:
        """Whether the validation loss was lowest more epochs ago than the run's patience."""
        losses = [row["val_loss"] for row in self._state.rows if "val_loss" in row]
        if self._patience is None or not losses:
            return False
        return len(losses) - 1 - int(np.argmin(losses)) >= self._patience

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Note whether a callback has stopped the run."""
        self.stopped = bool(self.model.stop_training)


class _Callbacks(keras.callbacks.CallbackList):
    """Keras's, which reads the losses of every step only if there are callbacks of the user's: it would wait for the
    device before the next batch is read."""

    def __init__(
        self, recording: RunCallback, callbacks: Sequence[keras.callbacks.Callback], model: KerasModel, **params: int
    ) -> None:
        super().__init__([recording, *callbacks], add_history=True, model=model, verbose=0, **params)
        self._recording, self._waits = recording, bool(callbacks)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Call the recording, and the user's callbacks if there are any."""
        if self._waits:
            super().on_train_batch_end(batch, logs)
        else:
            self._recording.on_train_batch_end(batch, logs)


def _optimizer(chosen: object, steps: int, ema: float | None) -> Optimizer:
    """The optimizer for this number of steps; raises :class:`UsageError` if it is none, or averages as Keras does."""
    if callable(chosen) and not isinstance(chosen, type):
        chosen = chosen(steps)
    fix = "give one of wdport.optimizers.torch_like or of keras.optimizers, or a function that returns one"
    try:
        optimizer: Optimizer = keras.optimizers.get(chosen) if isinstance(chosen, str) else chosen
    except ValueError:
        raise UsageError("optimizer", f"{chosen!r:.40} is unknown", fix) from None
    if not isinstance(optimizer, Optimizer):
        raise UsageError("optimizer", f"is a {type(chosen).__name__}", fix)
    if (ema is not None or optimizer.use_ema) and not isinstance(optimizer, TorchOptimizer):
        # Keras replaces the weights with their average at the end of every call of `fit`.
        fix = "give one of wdport.optimizers.torch_like, or leave the average out"
        where = "use_ema" if ema is None else "ema"
        raise UsageError(where, "optimizers of Keras replace the weights with their average", fix)
    require_step(optimizer.gradient_accumulation_steps, steps)
    return optimizer


def _recipe(model: KerasModel, recipe: Recipe | str | None) -> Recipe:
    """The recipe that is meant; raises :class:`UsageError`."""
    if isinstance(recipe, Recipe) or recipe is None:
        return recipe or Recipe()
    family: Any = (known_model(model) or (None,))[0]
    if recipe != PUBLIC or not isinstance(family, Fresh):
        what = f"{recipe!r} is unknown" if recipe != PUBLIC else "this model has no public training script"
        raise UsageError("recipe", what, f"give {PUBLIC!r}, or a Recipe of wdport.uses.training.model.recipe_of")
    return family_recipe(family, {}, "recipe", True)
