"""Known bugs of training code, each injected into the port's side of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import Array as Tensor

from wdport.diffusion.schedules import STEPS
from wdport.model import Array, Batch
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


def _one_step_later(port: PortTraining) -> PortTraining:
    def inputs(batch: Batch) -> tuple[Array, ...]:
        made: tuple[Array, ...] = port.objective.inputs({**batch, "uniform": batch["uniform"] + 1.0 / STEPS})
        return made

    return replace(port, objective=replace(port.objective, inputs=inputs))


def _unweighted(port: PortTraining) -> PortTraining:
    def loss(prediction: Tensor, batch: Batch) -> Tensor:
        return jnp.mean((prediction - port.objective.target(batch)) ** 2)

    return replace(port, objective=replace(port.objective, loss=loss))


def _keras_epsilon(port: PortTraining) -> PortTraining:
    return replace(port, rule=lambda path: KerasAdamW())


def _biases_kept(port: PortTraining) -> PortTraining:
    return replace(port, rule=lambda path: AdamW(weight_decay=0.0) if path.endswith("bias") else AdamW())


def _clip_each(port: PortTraining) -> PortTraining:
    return replace(port, clip=lambda gradients: [port.clip([gradient])[0] for gradient in gradients])


def _constant_rate(port: PortTraining) -> PortTraining:
    steps = len(port.rates.rate)
    return replace(port, rates=constant_rate(steps, 1e-3))


TRAINING_FAULTS = (
    TrainingFault("training steps 1 to 1000", _one_step_later),
    TrainingFault("loss without level weights", _unweighted),
    TrainingFault("epsilon as in Keras's Adam", _keras_epsilon),
    TrainingFault("no weight decay for biases", _biases_kept),
    TrainingFault("gradients clipped one by one", _clip_each),
    TrainingFault("constant learning rate", _constant_rate),
)
