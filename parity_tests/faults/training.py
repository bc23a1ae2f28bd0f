"""Known bugs of training code: those of the canary, and two more."""

from __future__ import annotations

from dataclasses import replace

from wdport.diffusion.schedules import STEPS
from wdport.model import Array, Batch
from wdport.parity.optimizer_gate import PortTraining
from wdport.parity.training_faults import BIASES_KEPT, CONSTANT_RATE, KERAS_EPSILON, UNWEIGHTED, TrainingFault


def _one_step_later(port: PortTraining) -> PortTraining:
    def inputs(batch: Batch) -> tuple[Array, ...]:
        made: tuple[Array, ...] = port.objective.inputs({**batch, "uniform": batch["uniform"] + 1.0 / STEPS})
        return made

    return replace(port, objective=replace(port.objective, inputs=inputs))


def _clip_each(port: PortTraining) -> PortTraining:
    return replace(port, clip=lambda gradients: [port.clip([gradient])[0] for gradient in gradients])


TRAINING_FAULTS = (
    TrainingFault("training steps 1 to 1000", _one_step_later),
    UNWEIGHTED,
    KERAS_EPSILON,
    BIASES_KEPT,
    TrainingFault("gradients clipped one by one", _clip_each),
    CONSTANT_RATE,
)
