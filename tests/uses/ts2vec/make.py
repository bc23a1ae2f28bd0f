"""Small encoders for the tests: random weights, saved as the public code saves them."""

from __future__ import annotations

from pathlib import Path

import torch

from wdport.models.interface import Array
from wdport.uses.ts2vec.config import Config
from wdport.uses.ts2vec.reference import TS2Vec

SMALL = Config(input_dims=2, hidden_dims=4, output_dims=6, depth=2)


def random_tensors(config: Config, seed: int) -> dict[str, Array]:
    """A state_dict of this encoder with every parameter random, float32."""
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in TS2Vec(config).state_dict().items()}
    return {
        name: (torch.randn(shape, generator=generator) * (shape[1:].numel() ** -0.5 if len(shape) > 1 else 0.3)).numpy()
        for name, shape in shapes.items()
    }


def save(path: Path, config: Config = SMALL, seed: int = 0) -> Path:
    """A state_dict of ``torch.optim.swa_utils.AveragedModel``."""
    tensors = {f"module.{name}": torch.from_numpy(array) for name, array in random_tensors(config, seed).items()}
    torch.save({"n_averaged": torch.tensor(7), **tensors}, path)
    return path
