"""Known bugs of training code, each injected into the port's side of training: the canary's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import Array as Tensor

from wdport.model import Batch
from wdport.optimisers.adamw import AdamW, Moments
from wdport.optimisers.rates import constant_rate
from wdport.parity.optimiser_gate import PortTraining


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
