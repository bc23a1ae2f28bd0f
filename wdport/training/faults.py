"""Known bugs of training code: the port's side of training in, the same with one bug out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from wdport.diffusion.schedules import STEPS
from wdport.training.adamw import AdamW
from wdport.training.rates import constant_rate


@dataclass(frozen=True)
class TrainingFault:
    """One bug; ``change`` takes and gives a :class:`wdport.parity.optimiser_gate.PortTraining`."""

    name: str
    change: Callable[[Any], Any]


@dataclass(frozen=True)
class KerasAdamW(AdamW):
    """Keras's place for epsilon: before the second moment's bias correction is taken out."""

    def update(
        self, parameter: Any, gradient: Any, moments: tuple[Any, Any], step: int, rate: float, beta1: float
    ) -> tuple[Any, tuple[Any, Any]]:
        first = beta1 * moments[0] + (1.0 - beta1) * gradient
        second = self.beta2 * moments[1] + (1.0 - self.beta2) * gradient**2
        size = (jnp.sqrt(second) + self.epsilon) / (1.0 - self.beta2**step) ** 0.5
        decayed = parameter * (1.0 - rate * self.weight_decay)
        return decayed - rate / (1.0 - beta1**step) * (first / size), (first, second)


def _one_step_later(port: Any) -> Any:
    def inputs(batch: Mapping[str, Any]) -> Any:
        return port.objective.inputs({**batch, "uniform": batch["uniform"] + 1.0 / STEPS})

    return replace(port, objective=replace(port.objective, inputs=inputs))


def _unweighted(port: Any) -> Any:
    def loss(prediction: Any, batch: Mapping[str, Any]) -> Any:
        return jnp.mean((prediction - port.objective.target(batch)) ** 2)

    return replace(port, objective=replace(port.objective, loss=loss))


def _keras_epsilon(port: Any) -> Any:
    return replace(port, rule=lambda path: KerasAdamW())


def _biases_kept(port: Any) -> Any:
    return replace(port, rule=lambda path: AdamW(weight_decay=0.0) if path.endswith("bias") else AdamW())


def _clip_each(port: Any) -> Any:
    return replace(port, clip=lambda gradients: [port.clip([gradient])[0] for gradient in gradients])


def _constant_rate(port: Any) -> Any:
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
