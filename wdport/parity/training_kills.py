"""Inject training faults: test whether optimiser (D) finds known bugs of training code in a small correct pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf, log10
from typing import TYPE_CHECKING

import jax
import numpy as np

from wdport.compare.bounds import GRADIENT
from wdport.keras_runtime import set_variable
from wdport.mapping.plan import Move
from wdport.model import KerasModel, Objective
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.optimiser_gate import PortTraining, optimiser_gate
from wdport.parity.training_faults import TrainingFault

if TYPE_CHECKING:
    import torch

BATCH = 4


def kill_training_faults(
    moves: Sequence[Move],
    build_module: Callable[[], torch.nn.Module],
    model: KerasModel,
    objective: Objective,
    faults: Sequence[TrainingFault],
    bound: float = GRADIENT,
) -> Iterator[tuple[str, float, bool]]:
    """Yield name, margin in decades over ``bound``, and whether optimiser (D) failed; first "" for no fault.

    ``build_module`` returns the PyTorch module, float64, with the weights of ``model`` (Keras, float64).
    """
    probe = GradientProbe(model, ())
    start = [np.asarray(variable.value) for variable in model.trainable_variables]
    sound = PortTraining(objective)
    for name, port in [("", sound), *((fault.name, fault.change(sound)) for fault in faults)]:
        with jax.enable_x64(True):
            for variable, value in zip(model.trainable_variables, start, strict=True):
                set_variable(variable, value)
        gate = optimiser_gate(moves, build_module(), probe, objective, port, BATCH).gate
        worst = inf if gate.worst is None else gate.worst
        margin = log10(worst / bound) if 0.0 < worst < inf else (inf if worst else -inf)
        yield name, margin, not worst <= bound or gate.compared != gate.expected
