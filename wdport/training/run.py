"""`wdport.train`: train a converted model on data, with checkpoints from which a run goes on bit for bit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.data.series import Series
from wdport.diffusion.loss import Errors
from wdport.errors import InputError, UsageError
from wdport.families.registry import known_model
from wdport.files.atomic import write_text
from wdport.keras_runtime import set_variable, variables_by_path
from wdport.model import Array, KerasModel
from wdport.nets.boundary import barrier, compile_options
from wdport.optimisers.torch_like import Adam, TorchOptimizer
from wdport.training.model import DiffusionTraining, training_model
from wdport.training.source import Source, source_of
from wdport.training.state_file import read_state, write_state

METRICS: Final = "metrics.csv"

Values = list[Tensor]
Report = Callable[[int, int, float], None]
"""Called with the steps done, all steps and the mean loss of the epoch so far."""


@dataclass(frozen=True)
class TrainingRun:
    """A finished run: its folder, the steps that it took in all, and the metrics of every epoch by name.

    The model that was given to :func:`train` has the trained weights; ``averaged`` are those of the moving average by
    variable path, if there was one.
    """

    folder: Path
    steps: int
    epochs: tuple[Mapping[str, float], ...]
    averaged: Mapping[str, Array] | None = None

    @property
    def losses(self) -> list[float]:
        """The mean loss of every epoch."""
        return [epoch["loss"] for epoch in self.epochs]


def train(
    model: KerasModel,
    data: Array | Series | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    epochs: int = 1,
    batch_size: int = 32,
    optimizer: TorchOptimizer | Callable[[int], TorchOptimizer] | None = None,
    seed: int = 0,
    ema: float | None = None,
    energy: float = 0.0,
    min_snr: float | None = None,
    save_every: int | None = None,
    report: Report | None = None,
) -> TrainingRun:
    """Train a converted model that draws samples, in place.

    Every epoch takes all windows of a series, or all states, in a new order. The last batch of an epoch is filled up,
    with weight 0, so one program serves the run. If ``folder`` has the state of an unfinished run with these
    settings, the run goes on from it, with the losses that it would have had.

    Args:
        model: from :func:`wdport.load_model`.
        data: a data file or a series, whose windows are transformed on the device, or clean states (n, *shape).
        folder: for the state, and for ``metrics.csv`` with the losses of every epoch.
        epochs: epochs in all.
        batch_size: states in a step.
        optimizer: from :func:`wdport.load_optimizer`, or one of :mod:`wdport.optimisers.torch_like`, or a function of
            the number of all steps that makes one; by default AdamW with a rate of 1e-4.
        seed: determines the order of the data, and noise and times.
        ema: decay of a moving average of the weights, such as 0.999.
        energy: weight of the energy term, as for :func:`wdport.training_model`.
        min_snr: gamma of Min-SNR weighting.
        save_every: save the state after so many steps, besides the end of every epoch.
        report: called after every step, for a progress display.

    Returns:
        A :class:`TrainingRun`.

    Raises:
        UsageError: the model is not trained by wdport, data or settings do not fit it, or the loss is no longer finite;
            the state of the last save is kept.
        InputError: the data or the state in ``folder`` cannot be read, or it is that of another run.
    """
    _require(epochs=epochs, batch_size=batch_size, save_every=save_every)
    trained = training_model(model, energy=energy, min_snr=min_snr, seed=seed)
    known: Any = known_model(model)
    if trained.labelled:
        raise UsageError("model", "has classes", "train it with wdport.training_model(model).fit((states, labels))")
    source = source_of(data, known[0].diffused(known[1]), trained.variable_dtype)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if callable(optimizer):
        optimizer = optimizer(epochs * -(-source.count // batch_size))
    run = _Run(trained, source, target, optimizer or Adam([{"lr": 1e-4}]), batch_size, seed, ema)
    return run.go(epochs, save_every, report)


class _Run:
    """One run; its state are lists of arrays, which the compiled step maps to the next ones."""

    def __init__(
        self,
        trained: DiffusionTraining,
        source: Source,
        folder: Path,
        optimizer: TorchOptimizer,
        batch: int,
        seed: int,
        ema: float | None,
    ) -> None:
        self.trained, self.source, self.folder, self.optimizer = trained, source, folder, optimizer
        self.batch, self.seed, self.ema = batch, seed, ema
        if not optimizer.built:
            optimizer.build(trained.trainable_variables)
        self.parts = [part.name for part in trained.diffusion_loss.parts]
        self.held = jax.device_put(source.held)
        self.step = jax.jit(self._step, donate_argnums=0, compiler_options=compile_options())
        self.state: dict[str, Any] = {
            "trained": [variable.value for variable in trained.trainable_variables],
            "other": [variable.value for variable in trained.non_trainable_variables],
            "optimizer": [variable.value for variable in optimizer.variables],
            "averaged": [variable.value for variable in trained.trainable_variables] if ema is not None else [],
            "sums": [jnp.zeros(2 + len(self.parts), trained.variable_dtype)],
        }
        self.state = jax.tree.map(jnp.array, self.state)  # owned copies: the step takes their memory

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        return -(-self.source.count // self.batch)

    def go(self, epochs: int, save_every: int | None, report: Report | None) -> TrainingRun:
        done, rows = self._resumed(epochs)
        total = epochs * self.per_epoch
        numbers, counted, since = np.zeros(0), np.zeros(0), time.monotonic()
        for at in range(done, total):
            epoch, step = divmod(at, self.per_epoch)
            if step == 0 or at == done:
                numbers, counted = self._order(epoch)
                since = time.monotonic()
            part = slice(step * self.batch, (step + 1) * self.batch)
            self.state = self.step(self.state, self.held, numbers[part], counted[part])
            ends = step + 1 == self.per_epoch
            saves = ends or (save_every is not None and (at + 1) % save_every == 0)
            if saves:
                self._require_finite(at + 1)
            if ends:
                rows.append(self._row(epoch, at + 1, time.monotonic() - since))
                self.state["sums"] = [jnp.zeros_like(self.state["sums"][0])]
            if saves:
                self._save(at + 1, rows)
            if report is not None:
                sums = np.asarray(self.state["sums"][0])
                report(at + 1, total, rows[-1]["loss"] if ends else float(sums[1] / max(sums[0], 1.0)))
        self._fill()
        return TrainingRun(self.folder, total, tuple(rows), self._averaged())

    def _step(self, state: dict[str, Any], held: Tensor, numbers: Tensor, counted: Tensor) -> dict[str, Any]:
        clean = self.source.take(held, numbers)
        loss_of = jax.value_and_grad(self._loss, has_aux=True)
        (_, (other, told)), slopes = loss_of(state["trained"], state["other"], clean, counted)
        slopes = barrier(slopes)
        trained, optimizer = self.optimizer.stateless_apply(state["optimizer"], slopes, state["trained"])
        averaged = state["averaged"]
        if self.ema is not None:
            averaged = [self.ema * old + (1.0 - self.ema) * new for old, new in zip(averaged, trained, strict=True)]
        count = counted.sum().astype(told.dtype)
        sums = [state["sums"][0] + count * jnp.concatenate([jnp.ones(1, told.dtype), told])]
        return {"trained": trained, "other": other, "optimizer": optimizer, "averaged": averaged, "sums": sums}

    def _loss(self, values: Values, other: Values, clean: Tensor, counted: Tensor) -> Any:
        errors, changed = self.trained.stateless_call(values, other, clean, training=True)
        loss = self.trained.compute_loss(y=counted, y_pred=errors)
        by_part = self.trained.diffusion_loss.by_part(Errors(**errors), counted)
        return loss, (changed, jnp.stack([loss, *by_part.values()]))

    def _order(self, epoch: int) -> tuple[Array, Array]:
        """The numbers of all states in the order of an epoch, filled up to whole batches, and which count."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.source.count)
        fill = self.per_epoch * self.batch - self.source.count
        numbers = np.concatenate([order, np.resize(order, fill)]).astype(np.int32)
        return numbers, (np.arange(len(numbers)) < self.source.count).astype(np.float32)

    def _row(self, epoch: int, step: int, seconds: float) -> dict[str, float]:
        count, *sums = np.asarray(self.state["sums"][0], np.float64).tolist()
        means = dict(zip(["loss", *self.parts], [each / count for each in sums], strict=True))
        return {"epoch": epoch + 1, "steps": step, **means, "learning_rate": self._rate(),
                "seconds": round(seconds, 3)}  # fmt: skip

    def _rate(self) -> float:
        """The first group's learning rate in the last step."""
        taken, *rest = self.state["optimizer"]  # Keras's counter, then its rate if that is a variable
        rates = self.optimizer.rates
        if rates is None:
            return float(np.asarray(rest[0]))
        return float(rates[min(max(int(taken) - 1 - self.optimizer.start, 0), len(rates) - 1), 0])

    def _require_finite(self, step: int) -> None:
        if not isfinite(float(self.state["sums"][0][1])):
            kept = "the state of the last save is kept" if read_state(self.folder) else "nothing was saved"
            fix = "lower the learning rate, clip gradients, or look at the data"
            raise UsageError("loss", f"is not a finite number after {step} steps; {kept}", fix)

    def _settings(self) -> dict[str, Any]:
        loss = self.trained.diffusion_loss
        return {"batch_size": self.batch, "seed": self.seed, "ema": self.ema, "states": self.source.count,
                "energy": loss.energy, "min_snr": loss.min_snr, "optimizer": type(self.optimizer).__name__,
                "optimizer_settings": self._digest()}  # fmt: skip

    def _digest(self) -> str:
        """A hash of the optimizer's settings; rates of a schedule may be many."""
        config = {name: value for name, value in self.optimizer.get_config().items() if name != "name"}
        return sha256(json.dumps(config).encode()).hexdigest()

    def _save(self, done: int, rows: list[dict[str, float]]) -> None:
        facts = {"steps": done, "rows": rows, "settings": self._settings()}
        write_state(self.folder, self.state, facts)
        lines = [list(rows[0])] if rows else []
        lines += [[str(value) for value in row.values()] for row in rows]
        text = "\n".join(",".join(map(str, line)) for line in lines)
        write_text(self.folder / METRICS, f"{text}\n")

    def _resumed(self, epochs: int) -> tuple[int, list[dict[str, float]]]:
        """The steps that were done, and the rows of their epochs; the state is that of the file."""
        found = read_state(self.folder)
        if found is None:
            return 0, []
        arrays, facts = found
        done = int(facts["steps"])
        if done > epochs * self.per_epoch:
            raise UsageError("epochs", f"are fewer than the run in {self.folder} has", "give more")
        held, ours = facts["settings"], self._settings()
        if wrong := next((name for name, value in ours.items() if held.get(name) != value), ""):
            told = f"{wrong} {held.get(wrong)}, not {ours[wrong]}"
            told = f"other settings of {ours['optimizer']}" if wrong == "optimizer_settings" else told
            raise InputError(self.folder, f"has a run with {told}", "give the same settings, or another folder")
        shapes = {role: [each.shape for each in several] for role, several in arrays.items() if several}
        if shapes != {role: [each.shape for each in several] for role, several in self.state.items() if several}:
            raise InputError(self.folder, "has the run of another model", "give another folder")
        self.state = {role: [jnp.array(each) for each in arrays.get(role, [])] for role in self.state}
        return done, list(facts["rows"])

    def _fill(self) -> None:
        """Give all variables the values of the run."""
        for variables, role in ((self.trained.trainable_variables, "trained"), (self.optimizer.variables, "optimizer"),
                                (self.trained.non_trainable_variables, "other")):  # fmt: skip
            for variable, value in zip(variables, self.state[role], strict=True):
                set_variable(variable, np.array(value))

    def _averaged(self) -> dict[str, Array] | None:
        if self.ema is None:
            return None
        places = {id(variable): path for path, variable in variables_by_path(self.trained.network).items()}
        names = [places[id(variable)] for variable in self.trained.trainable_variables]
        return dict(zip(names, map(np.asarray, self.state["averaged"]), strict=True))


def _require(**numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise UsageError(name, f"is {value!r}", "give a whole number from 1")
