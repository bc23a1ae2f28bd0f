"""Gate optimiser (D): compare five optimizer steps of both sides: losses, rates, gradients, moments and values.

The reference is PyTorch: its AdamW, clipping and OneCycleLR, with a separate loss implementation. The port takes every
step from the reference's state and with the reference's gradients, as every layer in float64 (A) is fed the
reference's inputs: a mathematically zero gradient is rounding noise, which Adam would turn into steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax
import numpy as np

from wdport.compare.calls import leaves
from wdport.compare.findings import GATES, Gate, measure
from wdport.compare.layouts import axes, laid_out
from wdport.compare.measure import ScaledErrors, relative_l2
from wdport.compare.probe import Tensor
from wdport.compare.programs import CompiledProgram, trim_memory
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Trained
from wdport.jax_settings import FAST_COMPILE
from wdport.keras_runtime import set_variable
from wdport.mapping.arrays import apply_rule
from wdport.mapping.plan import Move
from wdport.model import Array, KerasVariable, Objective
from wdport.optimizers.schedules import Rates, one_cycle
from wdport.optimizers.torch_like import AdamW, Moments, clip_factor
from wdport.parity.keras_gradients import GradientProbe
from wdport.recorder import run

if TYPE_CHECKING:
    import torch

    from wdport.parity.torch_training import TorchTraining

BATCH = 2
"""Samples of a step: more do not fit with 63 million parameters in float64."""

Compared = tuple[float, "torch.Tensor", float, list[Array]]
"""PyTorch's loss as a number and as a tensor, the port's loss, and the port's gradients in the order of its trainable
variables."""

Losses = Callable[["torch.nn.Module", int], Compared]
"""Of PyTorch's module and the number of the step."""


def losses(prepared: Prepared, probe: GradientProbe) -> Losses:
    """Return the losses by the family's objective if it has one, otherwise mean squares to random targets."""
    if isinstance(prepared.family, Trained):
        return _by_objective(prepared, prepared.family, probe)
    return _by_targets(prepared, probe)


def _by_objective(prepared: Prepared, family: Trained, probe: GradientProbe) -> Losses:
    objective = family.objective(prepared.config, probe.model)
    slopes_of = CompiledProgram(jax.value_and_grad(objective.loss), FAST_COMPILE)

    def compare(module: torch.nn.Module, step: int) -> Compared:
        data = objective.make_batch(step, BATCH)
        loss, prediction = objective.reference_loss(module, data)
        inputs = objective.inputs(data)
        (output,), *_ = probe(inputs, [np.zeros(tuple(prediction.shape))])
        ours, slope = slopes_of(output, dict(data))
        _, _, _, gradients = probe(inputs, [np.asarray(slope)])
        return loss.item(), loss, float(ours), [np.asarray(gradient) for gradient in gradients]

    return compare


def _by_targets(prepared: Prepared, probe: GradientProbe) -> Losses:
    import torch

    signature = prepared.family.signature(prepared.config)
    rules = [axes(text).inverse() for text in signature.axes]

    def compare(module: torch.nn.Module, step: int) -> Compared:
        inputs = signature.make(step, BATCH, 1.0)
        port_inputs = signature.in_port(inputs)
        targets = probe.cotangents(port_inputs, step)
        outputs, *_ = probe(port_inputs, targets)
        output_names: list[str] = []
        shapes = [output.shape for output in run(module, inputs, output_names)]
        returned = module(*[torch.from_numpy(np.array(array)) for array in inputs])
        torch_outputs = list(returned.values()) if isinstance(returned, dict) else leaves(returned)
        loss = torch.zeros((), dtype=torch.float64)
        places = _places(probe.output_names, output_names, len(shapes))
        for output, shape, place in zip(torch_outputs, shapes, places, strict=True):
            target = torch.from_numpy(np.ascontiguousarray(laid_out(targets[place], shape, rules)))
            loss = loss + (output - target).square().mean()
        away = [output - target for output, target in zip(outputs, targets, strict=True)]
        ours = sum(float(np.mean(residual**2)) for residual in away)
        _, _, _, gradients = probe(port_inputs, [2.0 * residual / max(residual.size, 1) for residual in away])
        return loss.item(), loss, ours, [np.asarray(gradient) for gradient in gradients]

    return compare


def _places(ours: Sequence[str], theirs: Sequence[str], count: int) -> list[int]:
    """Which of the port's outputs each of the reference's is: by name, if both have the same names."""
    return [ours.index(name) for name in theirs] if ours and sorted(ours) == sorted(theirs) else list(range(count))


STEPS = 5
CYCLE = 10
"""Steps of the whole cycle: the learning rate rises for three of the five steps and falls for two."""

CLIP = 0.5
"""Clipping norm of all gradients; below the norm of a network with random biases, so that clipping takes effect."""

Step = tuple[jax.Array, Moments]
"""A variable's next value and its next moments."""

SIZES = ("gradient", "first moment", "second moment", "value")


def clip_all(gradients: Sequence[Tensor]) -> list[jax.Array]:
    """The factor of every gradient: a common one that reduces their global norm to the clipping norm."""
    return [clip_factor(gradients, CLIP)] * len(gradients)


_RULE = AdamW()


def _clipped(update: Callable[..., Step]) -> Callable[..., Step]:
    return lambda value, gradient, factor, *rest: update(value, gradient * factor, *rest)


@dataclass(frozen=True)
class PortTraining:
    """The port's side of training, in parts that can be made faulty one at a time.

    ``rule`` returns the optimizer for a variable's path.
    """

    objective: Objective
    rule: Callable[[str], AdamW] = lambda path: _RULE
    rates: Rates = field(default_factory=lambda: one_cycle(CYCLE))
    clip: Callable[[Sequence[Tensor]], list[jax.Array]] = clip_all


class _Programs:
    """The port's side, compiled for short compile time, since each program runs only a few times."""

    def __init__(self, port: PortTraining) -> None:
        self.port = port
        self.slopes = CompiledProgram(jax.value_and_grad(port.objective.loss), FAST_COMPILE)
        self.clip = CompiledProgram(port.clip, FAST_COMPILE)
        self._updates: dict[AdamW, CompiledProgram[*tuple[object, ...], Step]] = {}

    def update(self, name: str, *arguments: object) -> Step:
        """Compute the next value and moments from value, gradient, factor, moments, step, rate and beta1."""
        rule = self.port.rule(name)
        if rule not in self._updates:
            self._updates[rule] = CompiledProgram(_clipped(rule.update), FAST_COMPILE)
        return self._updates[rule](*arguments)


@dataclass(frozen=True)
class OptimizerErrors:
    """The largest relative float64 error over the steps, by quantity and variable, and the gate."""

    variables: dict[str, dict[str, float]]
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
    from wdport.parity.torch_training import TorchTraining  # torch may be absent where a recording is replayed

    training = TorchTraining(module, reference, CLIP, CYCLE)
    moves = [move for move in moves if move.source in training.parameters]
    variables = {variable.path: variable for variable in probe.model.trainable_variables}
    programs = _Programs(port)
    worst: dict[str, dict[str, float]] = {size: {} for size in SIZES}
    others = {"loss": 0.0, "prediction": 0.0, "learning rate": 0.0}
    for step in range(STEPS):
        data = port.objective.make_batch(step, batch)
        loss, prediction = training.forward(data)
        with _exact():
            own_loss, slope = programs.slopes(prediction, dict(data))
            (output,), _, _, weight_gradients = probe(port.objective.inputs(data), [np.asarray(slope)])
            gradients = dict(zip(variables, weight_gradients, strict=True))
            del weight_gradients  # 500 MB at the released size; each is dropped once it is compared
            training.backward()  # after the port's: either takes half a gigabyte at the released size while it runs
            errors = _step(variables, programs, training, moves, step, gradients)
        for size, scaled in errors.items():
            worst[size] = {name: max(e, worst[size].get(name, 0.0)) for name, e in scaled.relative().items()}
        rates = (float(port.rates.rate[step]), training.rate)
        pairs = {"loss": (float(own_loss), loss), "prediction": (output, prediction), "learning rate": rates}
        for name, (ours, theirs) in pairs.items():
            others[name] = max(others[name], relative_l2(np.asarray(ours), np.asarray(theirs)))
        training.next_rate()
        trim_memory()
    # The rest of the cycle costs no gradient: only the rates are compared.
    for step in range(STEPS, CYCLE):
        error = relative_l2(np.asarray(port.rates.rate[step]), np.asarray(training.rate))
        others["learning rate"] = max(others["learning rate"], error)
        if step + 1 < CYCLE:
            training.next_rate()
    return OptimizerErrors(worst, _gate(worst, others, list(variables)))


def _step(
    variables: Mapping[str, KerasVariable],
    programs: _Programs,
    training: TorchTraining,
    moves: Sequence[Move],
    step: int,
    gradients: dict[str, jax.Array],
) -> dict[str, ScaledErrors]:
    """One step, parameter by parameter, so that no state is stored twice; the variables are set to the reference's.

    ``gradients`` are the port's by variable; the mapping is empty afterwards.
    """
    errors = {size: ScaledErrors() for size in SIZES}
    clip_factors, port = programs.clip([training.gradient(move.source) for move in moves]), programs.port
    factors = [np.float64(factor) for factor in clip_factors]  # settled before the gradients change in place
    rest = tuple(map(np.float64, (step + 1, port.rates.rate[step], port.rates.beta1[step])))
    training.measure_norm()
    for move, factor in zip(moves, factors, strict=True):
        before = [_by_variable(move, array) for array in (training.gradient(move.source), *training.state(move.source))]
        training.step(move.source)
        after = [_by_variable(move, array) for array in training.state(move.source)]
        for name in move.targets:
            errors["gradient"].add(name, np.asarray(gradients.pop(name)), before[0][name])
            # Flat arrays: fewer shapes to compile for.
            slope, value, first, second = (arrays[name].ravel() for arrays in before)
            updated, moments = programs.update(name, value, slope, factor, (first, second), *rest)
            for size, ours, theirs in zip(SIZES[1:], (*moments, updated), (after[1], after[2], after[0]), strict=True):
                errors[size].add(name, np.asarray(ours), theirs[name].ravel())
            set_variable(variables[name], after[0][name])
    return errors


def _by_variable(move: Move, array: Array) -> dict[str, Array]:
    """Convert a parameter's array to variables by the table; the arrays are copies."""
    arrays = apply_rule(move.rule, [array.copy()], move.sizes)
    return dict(zip(move.targets, arrays, strict=True))


@contextmanager
def _exact() -> Iterator[None]:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def _gate(worst: dict[str, dict[str, float]], others: dict[str, float], variables: Sequence[str]) -> Gate:
    errors = {f"{size} of {name}": e for size, by_variable in worst.items() for name, e in by_variable.items()} | others
    measures = tuple(measure(name, "error", error, "gradient") for name, error in errors.items())
    expected = len(variables) * len(worst) + len(others)
    return GATES["D"].gate(len(errors), expected, measures)
