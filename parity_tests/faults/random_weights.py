"""How the small models of families get random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from wdport.models.interface import Array

Law = Callable[[str, torch.Tensor], tuple[float, float] | None]
"""The mean and the deviation of a parameter; none if it stays as it is."""


def randomise(module: nn.Module, seed: int, law: Law) -> dict[str, Array]:
    """Draw every parameter, biases and norms included; the module's state_dict, float32."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if (chosen := law(name, parameter)) is not None:
                centre, spread = chosen
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread + centre)
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}
