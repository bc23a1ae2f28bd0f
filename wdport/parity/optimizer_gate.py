"""Gate optimizer (D): compare five optimizer steps of both sides: losses, rates, gradients, moments and values.

The reference is PyTorch: its AdamW, clipping and OneCycleLR, with a separate loss implementation. The port's optimizer
is the one that :mod:`wdport.optimizers.recipe` makes of the same recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import jax

from wdport.compare.findings import GATES, Gate, fact, measure
from wdport.compare.programs import trim_memory
from wdport.mapping.plan import Move
from wdport.models.interface import Objective, Recipe
from wdport.models.keras_runtime import exact_float64, variables_by_path
from wdport.optimizers.recipe import optimizer_of
from wdport.optimizers.torch_like import TorchOptimizer
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.optimizer_steps import OptimizerPair, losses_by_objective

if TYPE_CHECKING:
    import torch

STEPS: Final = 5
CYCLE: Final = 10
"""Steps of the whole cycle: the learning rate rises for three of the five steps and falls for two."""

RATE: Final = 1e-3
"""The largest learning rate."""

CLIP: Final = 0.5
"""Clipping norm of all gradients; below the norm of a network with random biases, so that clipping takes effect."""


def _optimizer(names: Sequence[str]) -> TorchOptimizer:
    return optimizer_of(Recipe(learning_rate=RATE, schedule="onecycle", clip=CLIP))(CYCLE)


@dataclass(frozen=True)
class PortTraining:
    """The port's side of training, in parts that can be made faulty one at a time.

    ``optimizer`` makes the optimizer of the trainable variables with these paths.
    """

    objective: Objective
    optimizer: Callable[[Sequence[str]], TorchOptimizer] = _optimizer


@dataclass(frozen=True)
class OptimizerErrors:
    """The largest relative float64 errors over the steps by what is compared, such as "value of dense/kernel"."""

    errors: dict[str, float]
    gate: Gate


def optimizer_gate(
    moves: Sequence[Move],
    module: torch.nn.Module,
    probe: GradientProbe,
    reference: Objective,
    port: PortTraining,
    batch: int,
) -> OptimizerErrors:
    """Take the steps and compare; both sides' weights (float64, initially equal) change.

    ``moves`` are the plan's, ``module`` is PyTorch's, ``reference`` is its training objective.
    """
    import torch

    from wdport.parity.torch_training import TorchTraining  # torch may be absent where a recording is replayed

    adamw = torch.optim.AdamW(module.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(adamw, max_lr=RATE, total_steps=CYCLE)
    training = TorchTraining(module, adamw, schedule, CLIP)
    errors: dict[str, float] = {}
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64():
        paths = {id(variable): path for path, variable in variables_by_path(probe.model).items()}
        variables = probe.model.trainable_variables
        optimizer = port.optimizer([paths[id(variable)] for variable in variables])
        optimizer.build(variables)
        pair = OptimizerPair(moves, probe.model, optimizer, training)
        compare = losses_by_objective(reference, port.objective, probe, batch)
        for step in range(CYCLE):
            step_errors = pair.rates(step)
            if step < STEPS:
                loss, slopes, others = compare(module, step)
                training.backward(loss)
                for parameter in training.parameters.values():
                    if parameter.grad is None:  # AdamW skips it otherwise, and does not decay it
                        parameter.grad = torch.zeros_like(parameter)
                step_errors |= others | pair.gradients(slopes)
                del loss, slopes  # half a gigabyte at the released size
                pair.step()
                step_errors |= pair.errors() if step == STEPS - 1 else {}
                trim_memory()
            else:  # the rest of the cycle costs no gradient: only the rates are compared
                training.advance()
            for name, error in step_errors.items():
                errors[name] = max(error, errors.get(name, 0.0))
    missing = tuple(fact(f"{name} was not compared", name, "missing") for name in pair.missing)
    measures = tuple(measure(name, "error", error, "gradient") for name, error in errors.items())
    return OptimizerErrors(errors, GATES["D"].gate(len(errors), len(errors) + len(missing), measures, missing))
