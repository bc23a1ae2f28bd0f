"""Known bugs of training code, each injected into the port's side of training; gate optimizer (D) must find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log10
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.compare.gate_bounds import GRADIENT
from wdport.mapping.plan import Move
from wdport.models.interface import Batch, KerasModel, KerasVariable, Objective
from wdport.models.keras_runtime import set_variable
from wdport.optimizers.torch_like import Adam, TorchOptimizer
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.optimizer_gate import PortTraining, optimizer_gate

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TrainingFault:
    """One bug; ``change`` maps the port's side to a faulty one."""

    name: str
    change: Callable[[PortTraining], PortTraining]


class KerasEpsilon(Adam):
    """Adam with epsilon where Keras adds it: before the second moment's bias correction."""

    def update_step(self, gradient: Any, variable: KerasVariable, learning_rate: Any) -> None:
        """One step of one variable."""
        groups = self.groups
        correction = jnp.sqrt(1.0 - 0.999 ** self._step(0, variable.dtype))
        self.groups = tuple(replace(group, eps=group.eps / correction) for group in groups)
        super().update_step(gradient, variable, learning_rate)
        self.groups = groups


def changed_optimizer(port: PortTraining, cls: type[Adam] = Adam, **changes: Any) -> PortTraining:
    """The same training by another class of optimizer, or with other arguments; functions get the variables' paths."""

    def make(names: Sequence[str]) -> TorchOptimizer:
        values = {key: value(names) if callable(value) else value for key, value in changes.items()}
        return cls.from_config({**port.optimizer(names).get_config(), **values})

    return replace(port, optimizer=make)


def _unweighted(port: PortTraining) -> PortTraining:
    def loss(prediction: Tensor, batch: Batch) -> Tensor:
        return jnp.mean((prediction - port.objective.target(batch)) ** 2)

    return replace(port, objective=replace(port.objective, loss=loss))


def _biases_kept(port: PortTraining) -> PortTraining:
    return changed_optimizer(port, groups=[{}, {"weight_decay": 0.0}],
                             members=lambda names: [int(name.endswith("bias")) for name in names])  # fmt: skip


UNWEIGHTED = TrainingFault("loss without level weights", _unweighted)
KERAS_EPSILON = TrainingFault("epsilon as in Keras's Adam", lambda port: changed_optimizer(port, KerasEpsilon))
BIASES_KEPT = TrainingFault("no weight decay for biases", _biases_kept)
CONSTANT_RATE = TrainingFault("constant learning rate", lambda port: changed_optimizer(port, rates=None, momenta=None))

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
    """Yield name, margin in decades over ``bound``, and whether gate optimizer (D) failed; first "" for no fault.

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
