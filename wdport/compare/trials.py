"""Find a cause by running a faulty layer again with one thing changed: the change that makes it agree is the cause.

The layer is from a port with the checkpoint's weights, and is fed the reference's inputs. Two things are tried:
hyper-parameters that differ slightly, and the order of the gates in a recurrent layer's weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax

from wdport.compare.calls import Calls, layer_of
from wdport.compare.errors import tap_errors
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.probe import Answers, Probe
from wdport.compare.recurrent import gates_of
from wdport.compare.settings import near_differences
from wdport.compare.taps import Tap
from wdport.errors import WdportError
from wdport.keras_runtime import exact_float64, layers_by_path
from wdport.model import Array, KerasLayer

if TYPE_CHECKING:
    import torch


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

    def _numbers(self, module: torch.nn.Module) -> list[str]:
        """Try hyper-parameters that differ by less than float32 precision."""
        layer = self.probe.layers[layer_of(self.tap.candidate)]
        for name, (value, text) in near_differences(self.tap.kind, module, layer).items():
            with _attribute(layer, name, value):
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


@contextmanager
def _attribute(layer: KerasLayer, name: str, value: float) -> Iterator[None]:
    before = getattr(layer, name)
    setattr(layer, name, value)
    try:
        yield
    finally:
        setattr(layer, name, before)
