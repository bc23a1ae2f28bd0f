"""Random weights that keep activations tame, and a checkpoint of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from wdport.model import Array

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
