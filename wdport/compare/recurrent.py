"""The gates of recurrent layers: the variables that hold them side by side, and descriptions of another order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations

import jax
import numpy as np

from wdport.keras_runtime import children, set_variable
from wdport.mapping.kinds import KINDS
from wdport.model import KerasLayer, KerasVariable

GATES = (3, 4)
"""Number of blocks in the weights of a GRU and of an LSTM."""

Order = tuple[int, ...]


@dataclass(frozen=True)
class Gates:
    """Variables whose last axis is ``count`` blocks, one per gate, and their description; ``from_keras`` if they belong
    to Keras's own layers, whose gates have names."""

    variables: tuple[KerasVariable, ...]
    count: int
    subject: str
    from_keras: bool

    def orders(self) -> Iterator[Order]:
        """Every order except the current one."""
        # The first permutation is the current order.
        yield from list(permutations(range(self.count)))[1:]

    @contextmanager
    def reordered(self, order: Order) -> Iterator[None]:
        """Inside, block i holds the former block ``order[i]``."""
        before = [np.asarray(variable.value) for variable in self.variables]
        # Without x64, JAX would round the float64 weights to float32 when they are assigned.
        with jax.enable_x64(True):
            for variable, array in zip(self.variables, before, strict=True):
                blocks = np.split(array, self.count, axis=-1)
                set_variable(variable, np.concatenate([blocks[index] for index in order], axis=-1))
            try:
                yield
            finally:
                for variable, array in zip(self.variables, before, strict=True):
                    set_variable(variable, array)

    def sentence(self, order: Order, kind: str) -> str:
        """The message that the layer agrees with the gates in this order."""
        names = _labels(kind, self.count) if self.from_keras else ()
        if not names:
            return f"{self.subject} agree in the order {', '.join(map(str, order))} of their blocks"
        stored = [names[order.index(index)] for index in range(self.count)]
        return f"{self.subject} are stored as {', '.join(stored)} where the layer has {', '.join(names)}"


def gates_of(layers: dict[str, KerasLayer]) -> list[Gates]:
    """Candidates for another gate order: the weights of all these layers, of each layer, and every single variable."""
    cells = [(path, cell) for path, layer in layers.items() for cell in _cells(layer)]
    weights = {path: _variables(cell) for path, cell in cells}
    counts = {_count(cell) for _, cell in cells}
    if len(counts) != 1:
        return []
    (count,) = counts
    from_keras = {path: type(cell).__module__.startswith("keras.") for path, cell in cells}
    every = tuple(variable for group in weights.values() for variable in group)
    groups = [Gates(every, count, "its gates", all(from_keras.values()))]
    if len(weights) > 1:
        groups += [
            Gates(tuple(group), count, f"the gates of {path}", from_keras[path]) for path, group in weights.items()
        ]
    for path, variables in weights.items():
        where = f" of {path}" if len(weights) > 1 else ""
        groups += [
            Gates((variable,), count, f"the gates of {variable.name}{where}", from_keras[path])
            for variable in variables
        ]
    return groups


def _cells(layer: KerasLayer) -> Iterator[KerasLayer]:
    """The layers at or below this one that have gates."""
    if "recurrent_kernel" in vars(layer) and _count(layer) in GATES:
        yield layer
    for child in children(layer).values():
        yield from _cells(child)


def _count(cell: KerasLayer) -> int:
    units, width = cell.recurrent_kernel.shape
    return int(width) // int(units)


def _variables(cell: KerasLayer) -> list[KerasVariable]:
    width = cell.recurrent_kernel.shape[-1]
    return [variable for variable in cell.weights if variable.shape and variable.shape[-1] == width]


def _labels(kind: str, count: int) -> Sequence[str]:
    """The layer's own names of its gates, in order."""
    for layer_kind in (KINDS[kind],) if kind in KINDS else (KINDS["gru"], KINDS["lstm"]):
        for rule in (rule for part in layer_kind.parts for rule in part.rules):
            for _, labels in rule.target.labels:
                if len(labels) == count:
                    return labels
    return ()
