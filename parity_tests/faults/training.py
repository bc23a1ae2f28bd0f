"""Known bugs of training code: those of the canary, and two more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wdport.models.interface import Array, Batch
from wdport.optimizers.torch_like import Adam
from wdport.parity.optimizer_gate import PortTraining
from wdport.parity.training_faults import (
    BIASES_KEPT,
    CONSTANT_RATE,
    KERAS_EPSILON,
    UNWEIGHTED,
    TrainingFault,
    changed_optimizer,
)
from wdport.uses.diffusion.schedules import STEPS


def _one_step_later(port: PortTraining) -> PortTraining:
    def inputs(batch: Batch) -> tuple[Array, ...]:
        made: tuple[Array, ...] = port.objective.inputs({**batch, "uniform": batch["uniform"] + 1.0 / STEPS})
        return made

    return replace(port, objective=replace(port.objective, inputs=inputs))


class ClipEach(Adam):
    """Clips every gradient by its norm alone."""

    def _clip_gradients(self, grads: Sequence[Any]) -> list[Any]:
        clip = super()._clip_gradients
        return [clip([gradient])[0] for gradient in grads]


TRAINING_FAULTS = (
    TrainingFault("training steps 1 to 1000", _one_step_later),
    UNWEIGHTED,
    KERAS_EPSILON,
    BIASES_KEPT,
    TrainingFault("gradients clipped one by one", lambda port: changed_optimizer(port, ClipEach)),
    CONSTANT_RATE,
)
