"""Optimizer steps of a port beside PyTorch's, for every gate that compares training.

The port's side is the optimizer that a user trains with, from :mod:`wdport.optimizers.torch_like`; the reference's is
`torch.optim`. Both begin with one state, and the port's takes its steps with the reference's gradients: one that is
mathematically zero is rounding noise, which Adam would turn into steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import jax
import numpy as np

from wdport.base.jax_settings import FAST_COMPILE
from wdport.compare.calls import Case
from wdport.compare.layouts import axes, output_laid_out, stated_rules
from wdport.compare.measure import ScaledErrors, relative_l2
from wdport.compare.programs import CompiledProgram
from wdport.compare.reference import Reference
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Trained
from wdport.mapping.moves import Move
from wdport.mapping.rearrange import apply_rule
from wdport.models.interface import Array, KerasModel, KerasVariable, Objective
from wdport.models.keras_runtime import variables_by_path
from wdport.optimizers.torch_like import TorchOptimizer
from wdport.parity.keras_gradients import GradientProbe
from wdport.recording.nested import tensors_of
from wdport.recording.runs import run

if TYPE_CHECKING:
    import torch

    from wdport.parity.torch_training import TorchTraining

BATCH: Final = 2
"""Samples in a backward pass and in an optimizer step: more do not fit with 63 million parameters in float64."""

Compared = tuple["torch.Tensor", list[Array], dict[str, float]]
"""PyTorch's loss, the port's gradients in the order of its trainable variables, and the errors of the port's loss and,
with an objective, of its prediction."""

Losses = Callable[["torch.nn.Module", int], Compared]
"""Of PyTorch's module and the number of the step."""


def losses(prepared: Prepared, probe: GradientProbe, reference: Reference) -> Losses:
    """Return the losses by the family's objective if it has one, otherwise mean squares to random targets."""
    if isinstance(prepared.family, Trained):
        objective = prepared.family.objective(prepared.config, probe.model)
        return losses_by_objective(objective, objective, probe, BATCH)
    return _losses_by_targets(prepared, probe, reference)


def losses_by_objective(reference: Objective, port: Objective, probe: GradientProbe, batch: int) -> Losses:
    """Return the losses of ``batch`` samples by an objective; the port's side of it may be another one."""
    slopes_of = CompiledProgram(jax.value_and_grad(port.loss), FAST_COMPILE)

    def compare(module: torch.nn.Module, step: int) -> Compared:
        data = port.make_batch(step, batch)
        loss, prediction = reference.reference_loss(module, data)
        expected = prediction.detach().numpy()
        loss_value, slope = slopes_of(expected, dict(data))
        (output,), _, _, gradients = probe(port.inputs(data), [np.asarray(slope)])
        errors = {"loss": _error(loss_value, loss.item()), "prediction": relative_l2(output, expected)}
        return loss, [np.asarray(gradient) for gradient in gradients], errors

    return compare


def _losses_by_targets(prepared: Prepared, probe: GradientProbe, reference: Reference) -> Losses:
    import torch

    signature = prepared.family.signature(prepared.config)
    rules = [axes(text).inverse() for text in signature.axes]

    def compare(module: torch.nn.Module, step: int) -> Compared:
        inputs = reference.inputs(Case(step, BATCH, 1.0))
        port_inputs = signature.in_port(inputs)
        targets = probe.cotangents(port_inputs, step)
        outputs, *_ = probe(port_inputs, targets)
        output_names: list[str] = []
        shapes = [output.shape for output in run(module, inputs, output_names)]
        returned = module(*[torch.from_numpy(np.array(array)) for array in inputs])
        torch_outputs = tensors_of(returned)
        loss = torch.zeros((), dtype=torch.float64)
        places = _places(probe.output_names, output_names, len(shapes))
        stated = [rule and rule.inverse() for rule in stated_rules(signature, len(shapes))]
        for output, shape, place, rule in zip(torch_outputs, shapes, places, stated, strict=True):
            target = torch.from_numpy(np.ascontiguousarray(output_laid_out(targets[place], shape, rules, rule)))
            loss = loss + (output - target).square().mean()
        away = [output - target for output, target in zip(outputs, targets, strict=True)]
        port_loss = sum(float(np.mean(residual**2)) for residual in away)
        _, _, _, gradients = probe(port_inputs, [2.0 * residual / max(residual.size, 1) for residual in away])
        return loss, [np.asarray(gradient) for gradient in gradients], {"loss": _error(port_loss, loss.item())}

    return compare


def _places(ours: Sequence[str], theirs: Sequence[str], count: int) -> list[int]:
    """Which of the port's outputs each of the reference's is: by name, if both have the same names."""
    return [ours.index(name) for name in theirs] if ours and sorted(ours) == sorted(theirs) else list(range(count))


def _error(candidate: Any, reference: Any) -> float:
    return relative_l2(np.asarray(candidate), np.asarray(reference))


class OptimizerPair:
    """The port's optimizer beside PyTorch's; gradients and states of the reference go in by the table.

    ``compared`` are the names of the port's variables that take steps, ``missing`` those of the others; ``applied`` are
    the reference's gradients for the next step, by these names.

    Args:
        moves: of the plan.
        model: the port, float64, whose trainable variables are trained.
        optimizer: a Keras optimizer of theirs, built.
        reference: PyTorch's side.
        label: follows the names of what is compared.
    """

    def __init__(
        self, moves: Sequence[Move], model: KerasModel, optimizer: TorchOptimizer, reference: TorchTraining,
        label: str = "",
    ) -> None:  # fmt: skip
        places = {id(variable): path for path, variable in variables_by_path(model).items()}
        self.variables: list[KerasVariable] = list(model.trainable_variables)
        self.names = [places[id(variable)] for variable in self.variables]
        self.moves = [move for move in moves if move.exact and set(move.targets) <= set(self.names)
                      and set(move.sources) <= set(reference.parameters)]  # fmt: skip
        self.compared = {target for move in self.moves for target in move.targets}
        self.missing = [name for name in self.names if name not in self.compared]
        reference.clipped = [name for move in self.moves for name in move.sources]
        self.optimizer, self.reference, self._label = optimizer, reference, label
        self.applied: Mapping[str, Array] = {}
        # At 63 million parameters, 1 GB of moments would exist twice.
        self._update = CompiledProgram(optimizer.stateless_apply, FAST_COMPILE, donated=(0,))

    def rates(self, step: int) -> dict[str, float]:
        """The errors of learning rates and momenta of step ``step`` of the optimizer's tables."""
        errors = {}
        for group, (rate, momentum) in enumerate(zip(self.reference.rates, self.reference.momenta, strict=True)):
            options, tables = self.optimizer.groups[group], (self.optimizer.rates, self.optimizer.momenta)
            constants = (options.lr, options.betas[0] if hasattr(options, "betas") else options.momentum)
            pair = [constant if table is None else table[step, group]
                    for constant, table in zip(constants, tables, strict=True)]  # fmt: skip
            errors[f"learning rate of group {group}{self._label}"] = _error(pair[0], rate)
            errors[f"momentum of group {group}{self._label}"] = _error(pair[1], momentum)
        return errors

    def gradients(self, slopes: Sequence[Array]) -> dict[str, float]:
        """Take the reference's gradients for the next step, and return the errors of the port's, in the order of its
        trainable variables."""
        self.applied = dict(self._by_variable(self.reference.gradient))
        return self._errors("gradient", zip(self.names, slopes, strict=True), iter(self.applied.items()))

    def step(self) -> None:
        """Take the reference's step and the port's, with the gradients ``applied``, which are let go of."""
        # A parameter may have no gradient in a batch, for one an expert that no sample is sent to.
        trained = self.compared & self.applied.keys()
        applied = [self.applied[name] if name in trained else np.zeros(variable.shape)
                   for name, variable in zip(self.names, self.variables, strict=True)]  # fmt: skip
        self.applied = {}
        values = [variable.value for variable in self.variables]
        state = [variable.value for variable in self.optimizer.variables]
        new_values, new_state = self._update(state, applied, values)
        del applied, values, state
        self.reference.step()
        for variable, value in chain(zip(self.variables, new_values, strict=True),
                                     zip(self.optimizer.variables, new_state, strict=True)):  # fmt: skip
            variable.assign(value)

    def errors(self) -> dict[str, float]:
        """The errors of values and moments after the steps so far."""
        groups = {"value": self.variables, **self.optimizer.moments}
        errors = dict[str, float]()
        for what, variables in groups.items():
            ours = ((name, variable.value) for name, variable in zip(self.names, variables, strict=True)
                    if variable is not None)  # fmt: skip
            read = self.reference.value if what == "value" else partial(self.reference.moment, what)
            errors |= self._errors(what, ours, self._by_variable(read))
        return errors

    def _errors(
        self, what: str, ours: Iterable[tuple[str, Any]], theirs: Iterator[tuple[str, Array]]
    ) -> dict[str, float]:
        errors, values = ScaledErrors(), dict(ours)
        for name, array in theirs:
            if name in values:
                errors.add(name, np.asarray(values.pop(name)), array)
        return {f"{what} of {name}{self._label}": error for name, error in errors.relative().items()}

    def _by_variable(self, read: Callable[[str], Array | None]) -> Iterator[tuple[str, Array]]:
        """Arrays of the reference under the names of the port, one move at a time."""
        for move in self.moves:
            arrays = [read(name) for name in move.sources]
            stored = [array for array in arrays if array is not None]
            if len(stored) == len(arrays):
                # Copies: torch updates its arrays in place.
                arranged = map(partial(np.array, order="C"), apply_rule(move.rule, stored, move.sizes))
                yield from zip(move.targets, arranged, strict=True)
