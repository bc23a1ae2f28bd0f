"""Both models of a pair in float64 with random weights, and what they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from parity_tests.conformance.engine import laid_out
from wdport.compare.probe import stateless, tensors
from wdport.families.user_functions import build_keras
from wdport.models.interface import Array
from wdport.models.keras_runtime import exact_float64, set_variable, variables_by_path
from wdport.recording.input_text import parse_input

from .corpus import Pair

BOUND = 1e-10
"""Relative L2 error of models that compute the same in float64, as ``wdport verify`` has it."""


class Sides:
    """A pair with random weights and inputs of its own, in float64."""

    def __init__(self, pair: Pair, model: str = "", seed: int = 11, scale: float = 1.0) -> None:
        self.pair = pair
        told = [parse_input(text) for text in pair.inputs]
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            self.module = randomise(pair.build_torch().double(), seed)
        finally:
            torch.set_default_dtype(before)
        self.state = state_of(self.module)
        self.given = [each.make(seed, 2, scale) for each in told]
        with jax.enable_x64(True):
            self.model = build_keras(model or pair.model, {}, "float64", told)
        shapes = [tuple(each.shape) for each in getattr(self.model, "inputs", None) or ()]
        self.orders = [_order(each, shapes[at] if len(shapes) == len(told) else ()) for at, each in enumerate(told)]
        self.variables = {path: tuple(variable.shape) for path, variable in variables_by_path(self.model).items()}

    def torch_outputs(self) -> list[Array]:
        """What PyTorch computes, as Keras would lay it out."""
        with torch.no_grad():
            found = [leaf.numpy() for leaf in leaves(self.module(*map(torch.tensor, self.given)))]
        rules = [*self.pair.outputs, *[""] * len(found)]
        return [laid_out(array, rule) for array, rule in zip(found, rules, strict=False)]

    def keras_outputs(self) -> list[Array]:
        """What Keras computes, step by step."""
        given, model = self.laid_out(), self.model
        with jax.enable_x64(True), exact_float64():
            trainable = [variable.value for variable in model.trainable_variables]
            fixed = [variable.value for variable in model.non_trainable_variables]
            return [np.asarray(leaf) for leaf in tensors(stateless(model, trainable, fixed, given))]

    def laid_out(self) -> tuple[Array, ...]:
        """The inputs as Keras takes them."""
        return tuple(np.transpose(array, order) for array, order in zip(self.given, self.orders, strict=True))

    def fill(self, values: Mapping[str, Array]) -> None:
        """Give the variables values by path."""
        variables = variables_by_path(self.model)
        with jax.enable_x64(True):
            for path, value in values.items():
                set_variable(variables[path], value)

    def error(self, values: Mapping[str, Array]) -> float:
        """The largest relative error of an output with these values of the variables; infinite where one is missing."""
        if set(self.variables) - set(values):
            return float("inf")
        self.fill({path: values[path] for path in self.variables})
        return max_error(self.keras_outputs(), self.torch_outputs())


def max_error(got: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest relative L2 error; infinite where shapes differ, up to axes of one, or a value is no number."""
    if len(got) != len(wanted):
        return float("inf")
    errors = [0.0]
    for ours, theirs in zip(got, wanted, strict=True):
        if ours.size != theirs.size:
            return float("inf")
        norm = float(np.linalg.norm(theirs))
        error = float(np.linalg.norm(ours.reshape(-1) - theirs.reshape(-1))) / (norm or 1.0)
        errors.append(error if np.isfinite(error) else float("inf"))
    return max(errors)


def _order(told: Any, shape: tuple[int | None, ...]) -> list[int]:
    """The axes of an input as the Keras model takes it: as stated, or as only its shape tells."""
    if told.axes != told.keras_axes or not shape:
        return [told.axes.index(axis) for axis in told.keras_axes]
    sizes = [None if axis == "b" else told.sizes[axis] for axis in told.axes]
    places = list(range(len(sizes)))
    for order in (places, [0, *places[2:], *places[1:2]]):
        if all(b in (None, sizes[a]) for a, b in zip(order, shape, strict=True)):
            return order
    raise ValueError(f"{told.name} is {sizes}, the Keras model takes {shape}")


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors of an output."""
    if isinstance(value, dict):
        return [leaf for name in sorted(value) for leaf in leaves(value[name])]
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]


NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._BatchNorm)


def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    """Draw every parameter and running statistic anew; other buffers, such as masks and tables, stay."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: torch.Size) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).float()

    with torch.no_grad():
        for part in module.modules():
            for name, value in part.named_parameters(recurse=False):
                drawn = normal(value.shape)
                if isinstance(part, NORMS) or name.endswith("original0") or name == "weight_g":
                    drawn = 1 + 0.2 * drawn if name != "bias" else 0.2 * drawn
                elif value.ndim > 1:
                    drawn = drawn / float(np.sqrt(np.prod(value.shape[1:])))
                else:
                    drawn = 0.2 * drawn
                value.copy_(drawn)
            for name, buffer in part.named_buffers(recurse=False):
                if name == "running_mean":
                    buffer.copy_(0.2 * normal(buffer.shape))
                elif name == "running_var":
                    buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return module


def state_of(module: nn.Module) -> dict[str, Array]:
    """All tensors of its ``state_dict``, as arrays of their own."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def checkpoint(module: nn.Module, path: Path) -> Path:
    """Write the ``state_dict``."""
    torch.save({name: tensor.clone() for name, tensor in module.state_dict().items()}, path)
    return path
