"""The optimiser's part of a conversion: what was asked for, its file, and a summary of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wdport.checkpoint.regular import read_option
from wdport.conversion.optimiser import DECOUPLED, Optimised, converted_optimiser
from wdport.conversion.optimiser_file import (
    Model,
    optimiser_output,
    optimiser_path,
    optimiser_written,
    weights_digest,
)
from wdport.conversion.prepare import Prepared
from wdport.errors import InputError, UsageError
from wdport.files.writable import OutputPath
from wdport.limits import MAX_KEPT_BYTES
from wdport.model import Array
from wdport.options import PathText

ADAMS = ("adam", "adamw")


@dataclass(frozen=True)
class ConvertedOptimizer:
    """A converted optimiser: its file, torch's class, and how many parameters, groups and steps it has.

    ``schedule`` is torch's class of the learning-rate schedule, "" for none; ``left_out`` are
    parameters whose tensors the conversion dropped.
    """

    path: Path
    kind: Literal["Adam", "AdamW", "SGD"]
    parameters: int
    groups: int
    steps: int
    schedule: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class OptimizerRequest:
    """Whether the optimiser is converted, and what its file does not say; see :func:`wdport.convert`."""

    requested: bool
    kind: str | None = None
    key: str | None = None
    names: PathText | None = None

    def target(self, model: Path, inputs: Mapping[str, Path], force: bool) -> OutputPath | None:
        """Return the file, None if it is not wanted; raises :class:`UsageError` if it cannot be written."""
        if not self.requested:
            for name, value in (("optimizer", self.kind), ("optimizer_key", self.key), ("parameter_names", self.names)):
                if value is not None:
                    raise UsageError(name, "is for the optimizer's state", "add with_optimizer=True, or leave it out")
            return None
        if self.kind is not None and self.kind not in ADAMS:
            raise UsageError("optimizer", f"is {self.kind!r}", f"choose one of {', '.join(ADAMS)}")
        return optimiser_output(optimiser_path(model), inputs, force)

    @contextmanager
    def written(
        self, prepared: Prepared, output: OutputPath | None, stored: Callable[[], Iterable[tuple[str, Array]]]
    ) -> Iterator[ConvertedOptimizer | None]:
        """Write the file under a temporary name; it gets its own if the block, which writes the model, succeeds.

        ``stored`` reads the model's variables after the block.
        """
        if output is None:
            yield None
            return
        decoupled = None if self.kind is None else self.kind == "adamw"
        state = converted_optimiser(prepared, self.key, self._names(), decoupled)
        belongs = Model(prepared.family.name, prepared.checkpoint.file_sha256())
        with optimiser_written(output, state, belongs) as set_weights:
            yield summary(output.path, state)
            set_weights(weights_digest(stored(), state.members))

    def _names(self) -> list[str] | None:
        if self.names is None:
            return None
        path = Path(self.names)
        fix = "give a JSON list of names"
        try:
            names = json.loads(read_option(path, MAX_KEPT_BYTES, fix))
        except (ValueError, RecursionError) as error:
            raise InputError(path, f"is not JSON ({error})", fix) from None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(path, "is not a list of names", fix)
        return names


def summary(path: Path, state: Optimised) -> ConvertedOptimizer:
    """Return the summary of an optimiser's state."""
    from wdport.optimisers.schedules import kind_of

    decoupled = state.kind == "adam" and all(group.get(DECOUPLED) for group in state.groups)
    schedule = ", ".join(kind_of(schedule_state) or "unknown" for schedule_state in state.schedules.values())
    kind: Literal["Adam", "AdamW", "SGD"] = "SGD" if state.kind == "sgd" else "AdamW" if decoupled else "Adam"
    return ConvertedOptimizer(path, kind, len(state.parameters), len(state.groups), state.step, schedule,
                              state.left_out)  # fmt: skip
