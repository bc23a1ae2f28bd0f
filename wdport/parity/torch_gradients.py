"""Gradients of a PyTorch network: inputs and an output cotangent in; by input, by tap and by parameter out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from wdport.model import Array
from wdport.parity.calls import leaves


@dataclass(frozen=True)
class Gradients:
    """Of the inner product of the output with a cotangent: by network input, by the outputs of each tap (a list
    for each, in the tap's own shapes), and by parameter. The output itself comes along."""

    output: Array
    inputs: tuple[Array, ...]
    taps: dict[str, list[Array]]
    parameters: dict[str, Array]


def torch_gradients(
    module: torch.nn.Module, inputs: Sequence[Array], cotangent: Array, taps: Collection[str]
) -> Gradients:
    """One backward pass in evaluation mode; parameters that the output does not depend on have gradients of zero."""
    module.zero_grad(set_to_none=True)
    given = [torch.from_numpy(np.array(value)).requires_grad_() for value in inputs]
    kept: dict[str, list[torch.Tensor]] = {}

    def keep(name: str) -> Any:
        def hook(_: torch.nn.Module, __: Any, output: Any) -> None:
            kept[name] = leaves(output)
            for tensor in kept[name]:
                tensor.retain_grad()

        return hook

    parts = dict(module.named_modules())
    handles = [parts[name].register_forward_hook(keep(name)) for name in taps if name in parts]
    try:
        output = module(*given)
        output.backward(torch.from_numpy(np.array(cotangent)))
    finally:
        for handle in handles:
            handle.remove()
    found = Gradients(
        output.detach().numpy(),
        tuple(_gradient(tensor) for tensor in given),
        {name: [_gradient(tensor) for tensor in tensors] for name, tensors in kept.items()},
        {name: _gradient(parameter) for name, parameter in module.named_parameters()},
    )
    module.zero_grad(set_to_none=True)
    return found


def _gradient(tensor: torch.Tensor) -> Array:
    return np.zeros(tuple(tensor.shape)) if tensor.grad is None else tensor.grad.numpy()
