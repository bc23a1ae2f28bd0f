"""A checkpoint as `resolve` sees it: shapes, dtypes and tensors of the PyTorch reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch

from wdport.mapping.axes import Shape
from wdport.models.interface import Array, ConfigurationSource
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.reference import WaveletDiff

Tensors = Mapping[str, torch.Tensor]


@cache
def state(config: Config) -> Tensors:
    """The reference's state_dict."""
    return WaveletDiff(config).state_dict()


def source(
    tensors: Tensors,
    shapes: Mapping[str, Shape] | None = None,
    convert: Callable[[torch.Tensor], torch.Tensor] = lambda t: t,
) -> ConfigurationSource:
    """A source of these tensors, some ``shapes`` replaced or added, every tensor stored as ``convert`` makes it."""
    stored = {name: convert(tensor) for name, tensor in tensors.items()}

    def read(name: str) -> Array:
        values: Array = stored[name].to(torch.float64 if stored[name].dtype == torch.float64 else torch.float32).numpy()
        return values

    sizes = {name: tuple(tensor.shape) for name, tensor in stored.items()} | dict(shapes or {})
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in stored.items()}
    return ConfigurationSource(Path("model.ckpt"), sizes, dtypes, read)
