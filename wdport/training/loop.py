"""The loop of a training run: a compiled step that maps its state to the next one, and when that is saved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.diffusion.loss import Errors
from wdport.diffusion.process import UNIFORM
from wdport.errors import InputError, UsageError
from wdport.jax_settings import chosen_numerics, weakly
from wdport.keras_runtime import set_variable, variables_by_path
from wdport.model import Array
from wdport.optimizers.torch_like import TorchOptimizer
from wdport.training.model import DiffusionTraining, step_options
from wdport.training.placement import Placement, require_alike
from wdport.training.run_folder import Events
from wdport.training.saves import Saves
from wdport.training.training_data import StateSource

Values = list[Tensor]
Report = Callable[[int, int, Callable[[], float]], None]
"""Called with the steps done, all steps, and a function that waits for the device and returns the epoch's mean loss so
far."""


@dataclass(frozen=True)
class TrainingRun:
    """A finished run: its folder, its total steps, and the metrics of every epoch by name.

    The model passed to :func:`train` holds the trained weights; ``averaged`` holds those of the moving average, by
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


class Loop:
    """One run; its state are lists of arrays, which the compiled step maps to the next ones."""

    def __init__(
        self,
        trained: DiffusionTraining,
        source: StateSource,
        saves: Saves,
        optimizer: TorchOptimizer,
        batch: int,
        seed: int = 0,
        ema: float | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.trained, self.source, self.saves, self.optimizer = trained, source, saves, optimizer
        self.batch, self.seed, self.ema = batch, seed, ema
        self.placement = placement or Placement()
        if not optimizer.built:
            optimizer.build(trained.trainable_variables)
        self.parts = [part.name for part in trained.diffusion_loss.parts]
        self.held = self.placement.everywhere(source.held)
        values = [variable.value for variable in trained.trainable_variables]
        begin: dict[str, Any] = {
            "trained": values,
            "other": [variable.value for variable in trained.non_trainable_variables],
            "optimizer": [variable.value for variable in optimizer.variables],
            "averaged": values if ema is not None else [],
            # The number of states, the loss, and the loss of every part.
            "sums": [np.zeros(2 + len(self.parts), trained.variable_dtype)],
        }
        weights = {id(variable) for variable in variables_by_path(trained.network).values()}
        self._weights = [id(variable) in weights for variable in trained.non_trainable_variables]
        self.begins = self._starts(begin)
        self.state: dict[str, Any] = self.placement.state(begin)
        options, shardings = step_options(trained.network.compute_dtype), self.placement.shardings(self.state)
        step = weakly(self._step)
        # The state is donated: a step writes the new one into the memory of the old one.
        self.step = jax.jit(step, donate_argnums=0, compiler_options=options, out_shardings=shardings)

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        return -(-self.source.count // self.batch)

    def go(self, epochs: int, save_every: int | None, report: Report | None, events: Events) -> TrainingRun:
        """Take the steps that are missing, and give the model's and the optimizer's variables their values."""
        require_alike({**self._settings(), **self.begins, "epochs": epochs, "save_every": save_every,
                       "devices": self.placement.count, "data": _digest(_sample(self.source))})  # fmt: skip
        done, rows = self._resumed(epochs)
        require_alike({"done": done})
        events.begin(rows)
        total = epochs * self.per_epoch
        numbers, counted, since = np.zeros(0), np.zeros(0), time.monotonic()
        for index in range(done, total):
            epoch, step = divmod(index, self.per_epoch)
            # Also where a run resumes within an epoch.
            if step == 0 or index == done:
                numbers, counted = self._order(epoch)
                since = time.monotonic()
            part = slice(step * self.batch, (step + 1) * self.batch)
            ends = step + 1 == self.per_epoch
            saves = ends or (save_every is not None and (index + 1) % save_every == 0)
            with self.placement.answering():
                self._take(numbers[part], counted[part])
                if saves:
                    self._require_finite(index + 1)
            if ends:
                rows.append(self._row(epoch, index + 1, time.monotonic() - since))
                events.epoch(rows)
                # After the row was read, and before the state is saved: a resumed run begins the next epoch with zeros.
                self.state["sums"] = self.placement.state([np.zeros_like(self.state["sums"][0])])
            if saves:
                self.saves.write(self.state, {"steps": index + 1, "rows": rows, "begins": self.begins})
            if report is not None:
                report(index + 1, total, (lambda: rows[-1]["loss"]) if ends else self._mean)
        with self.placement.answering():
            self._fill()
            return TrainingRun(self.saves.folder, total, tuple(rows), self._averaged())

    def _take(self, numbers: Array, counted: Array) -> None:
        """One step, on the states of these numbers."""
        fed = self._fed(numbers)
        weights = self.placement.batch(counted, _itself)
        self.state = self.step(self.state, self.held, fed, weights)
        self.placement.settle(self.state)

    def _fed(self, numbers: Array) -> Any:
        """What the compiled step gets for the states of these numbers; with a condition, its values as well."""
        states = self.placement.batch(numbers, self.source.feed)
        if self.source.condition is None:
            return states
        return states, self.placement.batch(numbers, self.source.condition.__getitem__)

    def _mean(self) -> float:
        sums = np.asarray(self.state["sums"][0])
        # Before the first step of an epoch the count is zero.
        return float(sums[1] / max(sums[0], 1.0))

    def _step(self, state: dict[str, Any], held: Tensor, fed: Any, counted: Tensor) -> dict[str, Any]:
        if self.source.condition is None:
            clean: Any = self.source.take(held, fed)
        else:
            clean = self.source.take(held, fed[0]), fed[1]
        loss_of = jax.value_and_grad(self._loss, has_aux=True)
        (_, (other, part_means)), slopes = loss_of(state["trained"], state["other"], clean, counted)
        trained, optimizer = self.optimizer.stateless_apply(state["optimizer"], slopes, state["trained"])
        averaged = state["averaged"]
        if self.ema is not None:
            decay = _decay(self.ema, state["optimizer"][0] - self.optimizer.start)
            averaged = [(decay * old + (1.0 - decay) * new).astype(old.dtype)
                        for old, new in zip(averaged, trained, strict=True)]  # fmt: skip
        # Sums stay on the device; reading the loss of every step would make the host wait for it.
        count = counted.sum().astype(part_means.dtype)
        sums = [state["sums"][0] + count * jnp.concatenate([jnp.ones(1, part_means.dtype), part_means])]
        return {"trained": trained, "other": other, "optimizer": optimizer, "averaged": averaged, "sums": sums}

    def _loss(self, values: Values, other: Values, clean: Any, counted: Tensor) -> Any:
        errors, changed = self.trained.stateless_call(values, other, clean, training=True)
        loss = self.trained.compute_loss(y=counted, y_pred=errors)
        by_part = self.trained.diffusion_loss.by_part(Errors(**errors), counted)
        return loss, (changed, jnp.stack([loss, *by_part.values()]))

    def _order(self, epoch: int) -> tuple[Array, Array]:
        """The numbers of all states in the order of an epoch, filled up to whole batches, and which count."""
        # From seed and epoch only, so that a resumed run needs no state of the generator.
        order = np.random.default_rng([self.seed, epoch]).permutation(self.source.count)
        fill = self.per_epoch * self.batch - self.source.count
        numbers = np.concatenate([order, np.resize(order, fill)]).astype(np.int32)
        # States that fill up the last batch have weight 0, so that every step has the same shapes.
        return numbers, (np.arange(len(numbers)) < self.source.count).astype(np.float32)

    def _row(self, epoch: int, step: int, seconds: float) -> dict[str, float]:
        count, *sums = np.asarray(self.state["sums"][0], np.float64).tolist()
        means = dict(zip(["loss", *self.parts], [total / count for total in sums], strict=True))
        return {"epoch": epoch + 1, "steps": step, **means, "learning_rate": self._rate(),
                "seconds": round(seconds, 3)}  # fmt: skip

    def _rate(self) -> float:
        """The first group's learning rate in the last step."""
        iterations, *rest = self.state["optimizer"]  # Keras's counter, then its rate if that is a variable
        rates = self.optimizer.rates
        if rates is None:
            return float(np.asarray(rest[0]))
        # Beyond the last rate, it holds.
        return float(rates[min(max(int(iterations) - 1 - self.optimizer.start, 0), len(rates) - 1), 0])

    def _require_finite(self, step: int) -> None:
        # Looked at when a state is saved, as it waits for the device; NaN stays in the sum of the epoch.
        if not isfinite(float(self.state["sums"][0][1])):
            fate = "the state of the last save is kept" if self.saves.exist() else "nothing was saved"
            fix = "lower the learning rate, clip gradients, or look at the data"
            raise UsageError("loss", f"is not a finite number after {step} steps; {fate}", fix)

    def facts(self, epochs: int | None = None) -> dict[str, object]:
        """Everything that determines the run, except for the number of epochs, which is checked if it is given.

        A model and an optimizer with the values of the last saved state count as those that the run began with.
        """
        begins = dict(self.begins)
        if jax.process_count() == 1 and self.saves.exist():
            with suppress(InputError):
                if (saved := self.saves.read(self.placement.like(self.state))) is not None:
                    if epochs is not None:
                        self._require_more(int(saved[1]["steps"]), epochs)
                    now = self._starts({role: saved[0].get(role, []) for role in self.state})
                    begins = {name: saved[1]["begins"][name] if now[name] == digest else digest
                              for name, digest in begins.items()}  # fmt: skip
        self.begins = begins
        policy = self.trained.network.dtype_policy.name
        return {
            "dtype": policy,
            **self._settings(),
            **begins,
            "data": _digest([self.source.data, *_of(self.source.condition)]),
        }

    def _require_more(self, done: int, epochs: int) -> None:
        if done > epochs * self.per_epoch:
            raise UsageError("epochs", f"are fewer than the run in {self.saves.folder} has", "give more")

    def _starts(self, state: Mapping[str, list[Any]]) -> dict[str, str]:
        """Digests of the values of a model, without the states of random generators, and of an optimizer."""
        # The states of random generators differ for every seed, which is compared by itself.
        weights = [value for value, is_weight in zip(state["other"], self._weights, strict=False) if is_weight]
        return {"model": _digest([state["trained"], weights]), "optimizer_state": _digest(state["optimizer"])}

    def _settings(self) -> dict[str, Any]:
        loss = self.trained.diffusion_loss
        law = {} if self.trained.law == UNIFORM else {"law": self.trained.law}
        return {"batch_size": self.batch, "seed": self.seed, "ema": self.ema, "states": self.source.count,
                "energy": loss.energy, "min_snr": loss.min_snr, "optimizer": type(self.optimizer).__name__,
                "optimizer_settings": self._digest(), "jax": chosen_numerics(), **law}  # fmt: skip

    def _digest(self) -> str:
        """A hash of the optimizer's settings; rates of a schedule may be many."""
        # Keras numbers the names of optimizers within a process: adam, adam_1.
        config = {name: value for name, value in self.optimizer.get_config().items() if name != "name"}
        return sha256(json.dumps(config).encode()).hexdigest()[:16]

    def _resumed(self, epochs: int) -> tuple[int, list[dict[str, float]]]:
        """The steps that were done, and the rows of their epochs; the state is that of the file."""
        saved = self.saves.read(self.placement.like(self.state))
        if saved is None:
            return 0, []
        arrays, facts = saved
        done = int(facts["steps"])
        self._require_more(done, epochs)
        self.state = self.placement.state({role: arrays.get(role, []) for role in self.state})
        return done, list(facts["rows"])

    def _fill(self) -> None:
        """Give all variables the values of the run."""
        values = self.placement.whole(self.state)
        for variables, role in ((self.trained.trainable_variables, "trained"), (self.optimizer.variables, "optimizer"),
                                (self.trained.non_trainable_variables, "other")):  # fmt: skip
            for variable, value in zip(variables, values[role], strict=True):
                set_variable(variable, value)

    def _averaged(self) -> dict[str, Array] | None:
        if self.ema is None:
            return None
        places = {id(variable): path for path, variable in variables_by_path(self.trained.network).items()}
        names = [places[id(variable)] for variable in self.trained.trainable_variables]
        return dict(zip(names, self.placement.whole(self.state["averaged"]), strict=True))


def _decay(ema: float, steps: Tensor) -> Tensor:
    """The decay of the moving average after ``steps`` steps, as diffusers' ``EMAModel`` computes it: it rises from 0 to
    ``ema``. With the same decay everywhere, 91 % of the average after 96 steps would be the random initial weights."""
    return jnp.where(steps > 0, jnp.minimum(ema, (1.0 + steps) / (10.0 + steps)), 0.0)


def _sample(source: StateSource) -> list[Array]:
    """The data on the device, or some of those that are streamed."""
    # All of a streamed data set would have to be read for a digest.
    some = source.feed(np.linspace(0, source.count - 1, 64).astype(np.int64))
    return [source.held, some, *_of(source.condition)]


def _of(condition: Array | None) -> list[Array]:
    return [] if condition is None else [condition]


def _itself(counted: Array) -> Array:
    return counted


def _digest(tree: Any) -> str:
    """A digest of all values that are in this process; others are one array of all processes already."""
    digest = sha256()
    for leaf in jax.tree.leaves(tree):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
            array = np.ascontiguousarray(leaf)
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:16]
