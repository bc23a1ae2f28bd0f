"""The state of a run: the variables that it changes, what it must have in common with the run that it resumes, and how
it is saved.

The facts in the file are sealed, and state the SHA-256 of every array, so that changed bytes are found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from keras.optimizers import Optimizer

from wdport.base.errors import InputError, UsageError
from wdport.base.jax_settings import chosen_numerics
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.compare.programs import program_text
from wdport.families.custom import description, settings_digest
from wdport.files.atomic import whole_file
from wdport.files.locked_folder import ANEW, RunFolder
from wdport.files.manifest_seal import sealed, unsealed
from wdport.files.orbax_folder import require_orbax
from wdport.files.outputs import OutputPath
from wdport.models.interface import Array, KerasVariable
from wdport.models.keras_runtime import layers_by_path, set_variable, variables_by_path
from wdport.optimizers.torch_like import TorchOptimizer
from wdport.uses.data.arrays import opened_npz
from wdport.uses.training.batches import TrainingBatches
from wdport.uses.training.network_training import NetworkTraining
from wdport.uses.training.placement import Placement
from wdport.uses.training.run_folder import METRICS, WRITTEN
from wdport.uses.training.training_data import add_values

NAME: Final = "state.npz"
FORMAT: Final = 6
WHOLE: Final = ("epoch", "steps")
"""Metrics that are integers."""

MAX_SHOWN: Final = 32
"""Characters of the longest setting of an optimizer that is stated itself, not as a digest."""

_FACTS: Final = "facts"
_ROWS: Final = "rows/0"

Arrays = Mapping[str, Sequence[Array]]
"""Lists of arrays by role: the variables of the network, of the optimizer, and their averages."""


def write_state(output: OutputPath, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    """Write the state; raises :class:`MachineError`."""
    rows = np.array([list(row.values()) for row in facts["rows"]], np.float64)
    header = {**facts, "rows": list(facts["rows"][0]) if len(rows) else []}  # an array, since they may be very many
    flat: dict[str, Any] = {
        f"{role}/{index}": np.asarray(array) for role, several in arrays.items() for index, array in enumerate(several)
    }
    flat[_ROWS] = rows
    text = sealed({"format": FORMAT, "arrays": _described(flat), **header})
    flat[_FACTS] = np.frombuffer(text.encode(), np.uint8)
    with whole_file(output) as file:
        np.savez(file, **flat)


def read_state(folder: Path) -> tuple[dict[str, list[Array]], dict[str, Any]] | None:
    """Read the state of a run, None if it has none; raises :class:`InputError` if the file is damaged."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        with located(path):
            with opened_npz(path) as file:
                facts: dict[str, Any] = unsealed(file[_FACTS].tobytes())
                flat = {name: file[name] for name in file.files if name != _FACTS}
            if facts.pop("format") != FORMAT:
                raise Fault("was written by another release of wdport", "use that release")
            if _described(flat) != facts.pop("arrays"):
                raise Fault("has other arrays than were written", "copy it again")
        names, rows = facts["rows"], flat.pop(_ROWS)
        facts["rows"] = [{name: int(value) if name in WHOLE else value for name, value in zip(names, row, strict=True)}
                         for row in rows.tolist()]  # fmt: skip
    except InputError as error:
        raise InputError(path, error.what, ANEW) from None
    arrays: dict[str, list[Array]] = {}
    # By number: as text, 10 would come before 9.
    for name in sorted(flat, key=lambda name: int(name.rpartition("/")[2])):
        arrays.setdefault(name.rpartition("/")[0], []).append(flat[name])
    return arrays, facts


def _described(flat: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Dtype, SHA-256 and shape of every array."""
    return {name: [array.dtype.str, digest(array), *array.shape] for name, array in flat.items()}


def digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()


FOLDER: Final = "state.orbax"


class Saves:
    """The saved states of the run in ``folder``, of which the last one is kept; the first process has it ``held``."""

    def __init__(self, folder: Path, held: RunFolder | None, placement: Placement, orbax: bool = False) -> None:
        self.folder, self.placement, self.orbax, self._held = folder, placement, orbax, held
        self._other = folder / (NAME if orbax else FOLDER)
        self._opened: Any = None
        if orbax:
            require_orbax(folder / FOLDER)

    @property
    def _manager(self) -> Any:
        """Orbax's, made when it is first needed, since it makes the folder."""
        if self._opened is None:
            import orbax.checkpoint as ocp

            # Synchronous: a state counts as saved when write returns.
            options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
            self._opened = ocp.CheckpointManager((self.folder / FOLDER).resolve(), options=options)
        return self._opened

    def exist(self) -> bool:
        if self._other.exists():
            return True
        if self.orbax:
            return (self.folder / FOLDER).is_dir() and self._manager.latest_step() is not None
        return (self.folder / NAME).exists()

    def begun(self) -> bool:
        """Whether there is a state; raises :class:`InputError` if there are only the models that a run wrote."""
        exist = self.exist()
        models = [name for name in WRITTEN if name != METRICS and (self.folder / name).exists()]
        if models and not exist:
            raise InputError(self.folder, f"has {models[0]}, but not the state of its run", ANEW)
        return exist

    def check(self) -> None:
        """Raise :class:`InputError` if the state was saved otherwise, or is damaged; Orbax opens its folder again."""
        self._opened = None
        if self._other.exists():
            keeps = "keeps" if self.orbax else "does not keep"
            what = f"has a state in {self._other.name}, and the run {keeps} it with Orbax"
            raise InputError(self.folder, what, "start the run as before, or again with `--force`")
        if not self.orbax:
            read_state(self.folder)

    def write(self, state: Any, facts: Mapping[str, Any]) -> None:
        """Save placed arrays and JSON values, whole or not at all; all processes must call it together.

        Raises :class:`MachineError`.
        """
        if self.orbax:
            import orbax.checkpoint as ocp

            args = ocp.args.Composite(state=ocp.args.StandardSave(_named(state)), facts=ocp.args.JsonSave(dict(facts)))
            self._manager.save(facts["steps"], args=args, force=True)
            return
        # In all processes, although only the first writes: collecting the parts is a collective operation.
        full_state = self.placement.whole(state)
        if self._held is not None:
            write_state(self._held.output(NAME), full_state, facts)

    def read(self, like: Any) -> tuple[Any, dict[str, Any]] | None:
        """The last state and its facts; None if there is none.

        Args:
            like: shapes, dtypes and shardings of the arrays.

        Raises :class:`InputError` if it is damaged.
        """
        if not self.orbax:
            return read_state(self.folder)
        step = self._manager.latest_step()
        if step is None:
            return None
        import orbax.checkpoint as ocp

        try:
            facts = dict(self._manager.restore(step, args=ocp.args.Composite(facts=ocp.args.JsonRestore())).facts)
            args = ocp.args.Composite(state=ocp.args.StandardRestore(_named(like)))
            restored = self._manager.restore(step, args=args).state
        except (ValueError, KeyError, OSError) as error:
            what = f"Orbax cannot read it ({str(error).splitlines()[0]})"
            raise InputError(self.folder / FOLDER, what, "start the run as before, or give another folder") from None
        return {role: [restored[role][str(index)] for index in range(len(several))] for role, several in like.items()
                if several}, facts  # fmt: skip


def _named(tree: Any) -> Any:
    """Lists as dictionaries by number; empty ones are left out, as Orbax does not store them."""
    return {role: {str(index): leaf for index, leaf in enumerate(several)} for role, several in tree.items() if several}


class RunState:
    """The variables of a compiled model and its optimizer by role, placed where the run computes."""

    def __init__(
        self, model: NetworkTraining, batches: TrainingBatches, saves: Saves, ema: float | None = None
    ) -> None:
        self.model, self.batches, self.saves, self.placement = model, batches, saves, batches.placement
        optimizer: Optimizer = model.optimizer
        self.optimizer, averages = optimizer, list[KerasVariable]()
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        if isinstance(optimizer, TorchOptimizer) and (ema is not None or optimizer.use_ema):
            optimizer.start_average(optimizer.ema_momentum if ema is None else ema)
            averages = optimizer.averages
        average_ids = {id(variable) for variable in averages}
        self.variables: dict[str, list[KerasVariable]] = {
            "trained": model.trainable_variables,
            "other": model.non_trainable_variables,
            "optimizer": [variable for variable in optimizer.variables if id(variable) not in average_ids],
            "averaged": averages,
            "metrics": model.metrics_variables,
        }
        weights = {id(variable) for variable in variables_by_path(model.network).values()}
        self._weights = [id(variable) in weights for variable in model.non_trainable_variables]
        self.done, self.rows, self.best = 0, list[dict[str, float]](), list[Any]()
        self.begins = self._digests(self.values())
        # Copies: a step takes the memory of the values, which may be that of somebody's array.
        for variables in self.variables.values():
            for variable in variables:
                variable.assign(self.placement.state(variable.value))

    def values(self) -> dict[str, list[Any]]:
        """The current values, also while ``fit`` holds them, and the best weights."""
        self.model.jax_state_sync()
        current = {role: [variable.value for variable in variables] for role, variables in self.variables.items()}
        return {**current, "best": self.best}

    def mark_best(self) -> None:
        """Note the weights of this moment, and running statistics, as the best ones."""
        self.best = self.placement.state([variable.value for variable in self._network_variables()])

    def settings(self) -> dict[str, Any]:
        """What is compared between the processes of a run, and with the run that is resumed."""
        batches = self.batches
        return {
            "batch_size": batches.batch_size,
            "seed": batches.seed,
            "ema": self.optimizer.ema_momentum if self.optimizer.use_ema else None,
            "training samples": len(batches.states),
            "optimizer": type(self.optimizer).__name__,
            **{f"optimizer {name}": _shown(value) for name, value in self._optimizer_settings().items()},
            "network": settings_digest(description(self.model.network)),
            "jax": chosen_numerics(),
            **({f"code or mapping table, traced by JAX {jax.__version__}": self._code} if self._has_own_code() else {}),
            **self.model.settings(),
        }

    def _has_own_code(self) -> bool:
        """Whether the network or the loss has code of the user's, which no description states."""
        network = self.model.network
        objects = [network]
        for layer in layers_by_path(network).values():
            functions = ("activation", "recurrent_activation", "function")
            objects += [layer, *(vars(layer).get(name) or layer for name in functions)]
        return self.model.own_loss or not {part.__module__.partition(".")[0] for part in objects} <= {"keras", "wdport"}

    @cached_property
    def _code(self) -> str:
        """A digest of the network and its loss as traced for a batch."""
        variables = [[variable.value for variable in self.variables[role]] for role in ("trained", "other")]
        call = partial(self.model.stateless_call, training=True)
        program = jax.make_jaxpr(call)(*variables, self.batches[0][0])
        constants = [array for array in program.consts if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key)]
        return _digest(constants, sha256(program_text(program.jaxpr).encode()))

    def _optimizer_settings(self) -> dict[str, Any]:
        """The optimizer's configuration without its name, the hyper-parameters of its only group by their names, and
        the weights that ``exclude_from_weight_decay`` names, which it omits."""
        decayed = [self.optimizer._use_weight_decay(variable) for variable in self.variables["trained"]]
        config = self.optimizer.get_config() | ({} if all(decayed) else {"decayed": decayed})
        config.pop("name", None)
        if isinstance(self.optimizer, TorchOptimizer) and len(config["groups"]) == 1:
            return {"groups": 1, **config.pop("groups")[0], **config}
        return config

    def facts(self) -> dict[str, object]:
        """Everything that determines the run, except for the number of epochs.

        A model and an optimizer with the values of the last saved state count as those that the run began with.
        """
        begins = dict(self.begins)
        if jax.process_count() == 1 and self.saves.exist():
            with suppress(InputError):
                if (saved := self.saves.read(self.placement.like(self.values()))) is not None:
                    now = self._digests({role: saved[0].get(role, []) for role in self.variables})
                    begins = {name: saved[1]["begins"][name] if now[name] == digest else digest
                              for name, digest in begins.items()}  # fmt: skip
        self.begins = begins
        source = self.batches.source
        return {"dtype": self.model.network.dtype_policy.name, **self.settings(), **begins,
                "data": _digest([source.condition, *source.others], source.hashed.copy())}  # fmt: skip

    def alike(self, epochs: int, save_every: int | None) -> dict[str, object]:
        """What all processes of a run must have in common."""
        return {**self.settings(), **self.begins, "epochs": epochs, "save_every": save_every,
                "devices": self.placement.count, "data": _digest(self._sample())}  # fmt: skip

    def restore(self, epochs: int) -> list[Any]:
        """Assign the values of the last saved state, and return those of the metrics, which every epoch resets."""
        values = self.values()
        saved = self.saves.read(self.placement.like(values))
        if saved is None:
            return values["metrics"]
        arrays, facts = saved
        if int(facts["steps"]) > epochs * self.batches.per_epoch:
            raise UsageError("epochs", f"are fewer than the run in {self.saves.folder} has", "give more")
        self.done, self.rows = int(facts["steps"]), list(facts["rows"])
        for role in self.variables:
            self.assign(role, arrays.get(role, []))
        self.best = self.placement.state(list(arrays.get("best", [])))
        return list(arrays["metrics"])

    def assign(self, role: str, arrays: Sequence[Any]) -> None:
        """Assign placed copies of arrays to the variables of a role."""
        for variable, array in zip(self.variables[role], arrays, strict=True):
            variable.assign(self.placement.state(array))

    def finite(self, loss: Any, done: int) -> float:
        """The mean ``loss`` of the epoch so far, read from the device; raises :class:`UsageError` if it is not
        finite."""
        with self.placement.answering():
            value = float(np.asarray(loss))
        if not isfinite(value):
            fix = "lower the learning rate, clip gradients, or look at the data"
            raise UsageError("training", f"the loss is not a finite number after {done} steps; {self._fate}", fix)
        return value

    def save(self, done: int) -> None:
        """Save the state; raises :class:`UsageError` if the loss is finite and its gradient was not."""
        values = self.values()
        with self.placement.answering():
            finite = bool(np.asarray(_all_finite([values[role] for role in ("trained", "averaged")])))
        if not finite:
            what = f"weights are not finite numbers after {done} steps; {self._fate}"
            raise UsageError("training", what, "lower the learning rate, clip gradients, or look at the loss")
        self.done = done
        self.saves.write(values, {"steps": done, "rows": self.rows, "begins": self.begins})

    @property
    def _fate(self) -> str:
        """What is left of a run that stops."""
        return "the state of the last save is kept" if self.saves.exist() else "nothing was saved"

    def finish(self) -> tuple[dict[str, Array] | None, dict[str, Array] | None]:
        """Take the values from the devices of the run; return the averages and the best weights by path, or None."""
        host_values = self.placement.whole(self.values())
        for role, variables in self.variables.items():
            for variable, value in zip(variables, host_values[role], strict=True):
                set_variable(variable, value)
        places = {id(variable): path for path, variable in variables_by_path(self.model.network).items()}
        names = [places[id(variable)] for variable in self._network_variables()]
        # Averages are of trained variables alone, which come first.
        averaged, best = (dict(zip(names, host_values[role], strict=False)) if host_values[role] else None
                          for role in ("averaged", "best"))  # fmt: skip
        return averaged, best

    def _network_variables(self) -> list[KerasVariable]:
        """The trained variables, and the network's others."""
        others = zip(self.variables["other"], self._weights, strict=True)
        return [*self.variables["trained"], *(variable for variable, is_weight in others if is_weight)]

    def _digests(self, values: Mapping[str, list[Any]]) -> dict[str, str]:
        """Digests of the values of a model, without the states of random generators, and of an optimizer."""
        # The states of random generators differ for every seed, which is compared by itself.
        weights = [value for value, is_weight in zip(values["other"], self._weights, strict=False) if is_weight]
        return {"model": _digest([values["trained"], weights]), "optimizer_state": _digest(values["optimizer"])}

    def _sample(self) -> list[Array | None]:
        """The data on the device, or some of those that are streamed."""
        # All of a streamed data set would have to be read for a digest.
        source = self.batches.source
        some = source.feed(np.linspace(0, source.count - 1, 64).astype(np.int64))
        return [source.held, some, source.condition, *source.others]


@jax.jit
def _all_finite(tree: Any) -> Any:
    return jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)] or [jnp.array(True)]))


def _shown(value: object) -> object:
    """A setting as JSON has it, or a digest of a long one, such as the rates of a schedule."""
    text = json.dumps(value, default=str)
    return json.loads(text) if len(text) <= MAX_SHOWN else settings_digest(value)


def _digest(tree: Any, begun: Any = None) -> str:
    """A digest of all values that are in this process, without those that are None; others are one array of all
    processes already. It continues the hash ``begun``."""
    digest = begun or sha256()
    for leaf in jax.tree.leaves(tree):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
            array = np.ascontiguousarray(leaf)
            digest.update(f"{array.dtype} {array.shape}".encode())
            add_values(digest, array)
    return str(digest.hexdigest()[:16])
