"""Known bugs of training code, each injected into the port's side of training; gate optimiser (D) must find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log10
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.compare.gate_bounds import GRADIENT
from wdport.keras_runtime import set_variable
from wdport.mapping.plan import Move
from wdport.model import Batch, KerasModel, Objective
from wdport.optimizers.schedules import constant_rate
from wdport.optimizers.torch_like import AdamW, Moments
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.optimizer_gate import PortTraining, optimizer_gate

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TrainingFault:
    """One bug; ``change`` maps the port's side to a faulty one."""

    name: str
    change: Callable[[PortTraining], PortTraining]


@dataclass(frozen=True)
class KerasAdamW(AdamW):
    """AdamW with epsilon where Keras adds it: before the second moment's bias correction."""

    def update(
        self, parameter: Tensor, gradient: Tensor, moments: Moments, step: int, rate: float, beta1: float
    ) -> tuple[Tensor, Moments]:
        first = beta1 * moments[0] + (1.0 - beta1) * gradient
        second = self.beta2 * moments[1] + (1.0 - self.beta2) * gradient**2
        size = (jnp.sqrt(second) + self.epsilon) / (1.0 - self.beta2**step) ** 0.5
        decayed = parameter * (1.0 - rate * self.weight_decay)
        return decayed - rate / (1.0 - beta1**step) * (first / size), (first, second)


def _unweighted(port: PortTraining) -> PortTraining:
    def loss(prediction: Tensor, batch: Batch) -> Tensor:
        return jnp.mean((prediction - port.objective.target(batch)) ** 2)

    return replace(port, objective=replace(port.objective, loss=loss))


def _keras_epsilon(port: PortTraining) -> PortTraining:
    return replace(port, rule=lambda path: KerasAdamW())


def _biases_kept(port: PortTraining) -> PortTraining:
    return replace(port, rule=lambda path: AdamW(weight_decay=0.0) if path.endswith("bias") else AdamW())


def _constant_rate(port: PortTraining) -> PortTraining:
    steps = len(port.rates.rate)
    return replace(port, rates=constant_rate(steps, 1e-3))


UNWEIGHTED = TrainingFault("loss without level weights", _unweighted)
KERAS_EPSILON = TrainingFault("epsilon as in Keras's Adam", _keras_epsilon)
BIASES_KEPT = TrainingFault("no weight decay for biases", _biases_kept)
CONSTANT_RATE = TrainingFault("constant learning rate", _constant_rate)

CANARY_FAULTS = (UNWEIGHTED, KERAS_EPSILON, BIASES_KEPT, CONSTANT_RATE)
"""Of all known ones, the second and the third are nearest to the bound."""


BATCH = 4


def kill_training_faults(
    moves: Sequence[Move],
    build_module: Callable[[], torch.nn.Module],
    model: KerasModel,
    objective: Objective,
    faults: Sequence[TrainingFault],
    bound: float = GRADIENT,
) -> Iterator[tuple[str, float, bool]]:
    """Yield name, margin in decades over ``bound``, and whether gate optimiser (D) failed; first "" for no fault.

    ``build_module`` returns the PyTorch module, float64, with the weights of ``model`` (Keras, float64).
    """
    probe = GradientProbe(model, ())
    start = [np.asarray(variable.value) for variable in model.trainable_variables]
    sound = PortTraining(objective)
    for name, port in [("", sound), *((fault.name, fault.change(sound)) for fault in faults)]:
        with jax.enable_x64(True):
            for variable, value in zip(model.trainable_variables, start, strict=True):
                set_variable(variable, value)
        gate = optimizer_gate(moves, build_module(), probe, objective, port, BATCH).gate
        worst = inf if gate.worst is None else gate.worst
        margin = log10(worst / bound) if 0.0 < worst < inf else (inf if worst else -inf)
        # Not `worst > bound`, which is false for NaN.
        yield name, margin, not worst <= bound or gate.compared != gate.expected
