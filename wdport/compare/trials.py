"""Find a cause by running a faulty layer again with one thing changed, a hyper-parameter or the order of a recurrent
layer's gates: the change that makes it agree is the cause.

The layer is from a port with the checkpoint's weights, and is fed the reference's inputs. Two things are tried:
hyper-parameters that differ slightly, and the order of the gates in a recurrent layer's weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING
from unittest.mock import patch

import jax
import numpy as np

from wdport.base.errors import WdportError
from wdport.compare.calls import Answers, Calls, ExpectedCall, layer_of
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.layer_errors import tap_errors
from wdport.compare.probe import Probe
from wdport.compare.settings import near_differences
from wdport.compare.taps import Tap
from wdport.mapping.kinds import KINDS
from wdport.models.interface import Array, KerasLayer, KerasVariable
from wdport.models.keras_runtime import children, exact_float64, layers_by_path, set_variable

if TYPE_CHECKING:
    import torch


STEP = 1e-8
"""Relative change of an input: a tenth of the rounding of float32, and far more than that of float64."""

FAR = 1e-2
"""A change that float32 resolves, to which a function that depends on its inputs responds."""

BENT = 1e-2
"""Second difference over the first, above which a function is not one of float64; of a smooth one it is about 1e-8."""


@dataclass(frozen=True)
class Trial:
    """One tap of ``probe``, an eager probe in float64; ``inputs`` are the network's, ``port`` the calls of the faulty
    port, ``answers`` the reference's calls."""

    probe: Probe
    tap: Tap
    inputs: tuple[Array, ...]
    port: Calls
    answers: Answers

    def told(self, module: torch.nn.Module | None) -> list[str]:
        """The changes that make the layer agree, in words; empty if it already agrees. ``module`` is the reference's,
        or ``None`` if it does not run here."""
        if self.tap.candidate not in self.answers or self._agrees(self._isolated):
            return []
        return (self._numbers(module) if module is not None else []) or self._gates()

    def rounds(self) -> bool:
        """Whether the layer computes with fewer digits than float64: its outputs do not follow changes of its inputs
        that are smaller than the rounding of float32."""
        answer = self.answers.get(self.tap.candidate)
        if answer is None or self.tap.layout.outputs_only:
            return False
        try:
            first, second, third, far = (self._moved(answer, step) for step in (0, STEP, 2 * STEP, FAR))
        except (WdportError, ValueError, TypeError, RuntimeError, KeyError):
            return False
        slope, bend = np.linalg.norm(second - first), np.linalg.norm(third - 2 * second + first)
        # Of a function in float64, the second difference is smaller than the first by the size of the step.
        return bool(bend > BENT * slope if slope else not np.array_equal(first, far))

    def _moved(self, answer: ExpectedCall, step: float) -> Array:
        """All floating-point outputs for inputs that are larger by up to this share."""
        random = np.random.default_rng(0)
        inputs = {index: array * (1 + step * random.random(array.shape)) if array.dtype.kind == "f" else array
                  for index, array in sorted(answer.inputs.items())}  # fmt: skip
        answers = {self.tap.candidate: replace(answer, inputs=inputs)}
        with jax.enable_x64(True), exact_float64(), jax.default_matmul_precision("highest"):
            calls = self.probe.isolate_layer(self.tap.candidate, self.port[self.tap.candidate], answers)
        outputs = [np.asarray(array) for array in calls[self.tap.candidate].outputs]
        return np.concatenate([array.ravel() for array in outputs if array.dtype.kind == "f"]).astype(np.float64)

    def _numbers(self, module: torch.nn.Module) -> list[str]:
        """Try hyper-parameters that differ by less than float32 precision."""
        layer = self.probe.layers[layer_of(self.tap.candidate)]
        for name, (value, text) in near_differences(self.tap.kind, module, layer).items():
            with patch.object(layer, name, value):
                if self._agrees(self._isolated):
                    return [text]
        return []

    def _gates(self) -> list[str]:
        """Try other orders of the gates. Weights are arguments of the compiled program, so one program serves all."""
        layers = layers_by_path(self.probe.model)
        paths = self.tap.stack or (layer_of(self.tap.candidate),)
        groups = gates_of({path: layers[path] for path in paths})
        # Compiled, unlike the eager probe of the trial: 23 orders of an LSTM for each group would take long eagerly.
        probe = Probe(self.probe.model, self.probe.layers) if groups else self.probe
        for gates in groups:
            for order in gates.orders():
                with gates.reordered(order):
                    if self._agrees(lambda: probe.isolate(self.inputs, self.answers)[1]):
                        return [gates.sentence(order, self.tap.kind)]
        return []

    def _isolated(self) -> Calls:
        if self.tap.layout.outputs_only:
            return self.probe.isolate(self.inputs, self.answers)[1]
        return self.probe.isolate_layer(self.tap.candidate, self.port[self.tap.candidate], self.answers)

    def _agrees(self, run: Callable[[], Calls]) -> bool:
        """Whether the layer's current outputs agree with the reference's."""
        try:
            with jax.enable_x64(True), exact_float64(), jax.default_matmul_precision("highest"):
                errors = tap_errors(self.tap, run(), self.answers)
        # A changed layer may not run, and then does not agree.
        except (WdportError, ValueError, TypeError, RuntimeError, KeyError):
            return False
        return errors is not None and errors[1] <= LOGIC


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
        groups += [Gates((variable,), count, f"the gates of {variable.name}{where}", from_keras[path])
                   for variable in variables]  # fmt: skip
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
