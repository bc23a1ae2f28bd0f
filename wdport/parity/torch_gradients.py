"""Gradients of a PyTorch network by input, by tap and by parameter, for given output cotangents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wdport.compare.calls import Call, Outputs, call_name, leaves
from wdport.models.interface import Array
from wdport.recording.nested import tensors_of


@dataclass(frozen=True)
class Gradients:
    """The outputs, and gradients of their inner product with cotangents: by network input (``None`` for integers), by
    call of the taps (the call, with gradients in place of its outputs), and by parameter."""

    outputs: Outputs
    inputs: tuple[Array | None, ...]
    taps: dict[str, Call]
    parameters: dict[str, Array]


def torch_gradients(
    module: torch.nn.Module, inputs: Sequence[Array], cotangents: Sequence[Array], taps: Collection[str]
) -> Gradients:
    """Run one backward pass in evaluation mode, also by parameters that are not trained; those that the outputs do not
    depend on have zero gradients."""
    module.zero_grad(set_to_none=True)
    # Copies, since from_numpy shares the memory of an array that it is given.
    torch_inputs = [torch.from_numpy(np.array(value)) for value in inputs]
    for tensor in torch_inputs:
        tensor.requires_grad_(tensor.is_floating_point())
    outputs_by_call: dict[str, list[torch.Tensor]] = {}
    count: Counter[str] = Counter()

    def keep(name: str) -> Callable[[torch.nn.Module, object, object], object]:
        def hook(_: torch.nn.Module, __: object, output: object) -> object:
            count[name] += 1
            output = _alias(output)
            held = [leaf for leaf in leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
            for tensor in held:
                # Torch keeps the gradients of leaves only.
                tensor.retain_grad()
            outputs_by_call[call_name(name, count[name])] = held
            return output

        return hook

    frozen = [parameter for parameter in module.parameters()
              if parameter.is_floating_point() and not parameter.requires_grad]  # fmt: skip
    parts = dict(module.named_modules())
    handles = [parts[name].register_forward_hook(keep(name)) for name in taps if name in parts]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        output = module(*torch_inputs)
        outputs = tensors_of(output)
        pairs = [(output, torch.from_numpy(np.array(slope))) for output, slope in zip(outputs, cotangents, strict=True)
                 if output.requires_grad]  # fmt: skip
        torch.autograd.backward([output for output, _ in pairs], [slope for _, slope in pairs])
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
        for handle in handles:
            handle.remove()
    slopes = Gradients(
        tuple(output.detach().numpy() for output in outputs),
        tuple(_gradient(tensor) if tensor.is_floating_point() else None for tensor in torch_inputs),
        {name: Call((), tuple(_gradient(tensor) for tensor in tensors)) for name, tensors in outputs_by_call.items()},
        {name: _gradient(parameter) for name, parameter in module.named_parameters()},
    )
    # To None, not to zeros: the returned arrays share the memory of the gradients.
    module.zero_grad(set_to_none=True)
    return slopes


def _alias(value: object) -> object:
    """Other tensors of the same values: one may be returned twice, or also be used within the module, such as a cache
    for its next call, and only what is returned counts as its output."""
    if isinstance(value, torch.Tensor):
        value = _differentiable(value)
        return value.view_as(value) if value.requires_grad else value
    if type(value) is tuple:
        return tuple(map(_alias, value))
    return list(map(_alias, value)) if type(value) is list else value


def _differentiable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with a gradient even if it comes from integers only, as a time embedding does, or from no_grad."""
    return tensor.detach().requires_grad_() if tensor.is_floating_point() and not tensor.requires_grad else tensor


def _gradient(tensor: torch.Tensor) -> Array:
    return np.zeros(tuple(tensor.shape)) if tensor.grad is None else tensor.grad.numpy()
