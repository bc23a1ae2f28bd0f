"""The loss of both sides for a training step: by the family's objective, or by random targets where none is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from wdport.compare.calls import leaves
from wdport.compare.layouts import axes, laid_out
from wdport.compare.programs import Program
from wdport.compile_cache import FAST_COMPILE
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Trained
from wdport.model import Array
from wdport.parity.keras_gradients import GradientProbe
from wdport.recorder import run

if TYPE_CHECKING:
    import torch

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
    slopes_of = Program(jax.value_and_grad(objective.loss), FAST_COMPILE)

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
