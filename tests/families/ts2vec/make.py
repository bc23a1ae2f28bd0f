"""Small encoders for the tests: random weights, saved as the public code saves them."""

from __future__ import annotations

from pathlib import Path

import torch

from wdport.families.ts2vec.config import Config
from wdport.families.ts2vec.reference import random_tensors

SMALL = Config(input_dims=2, hidden_dims=4, output_dims=6, depth=2)


def save(path: Path, config: Config = SMALL, seed: int = 0) -> Path:
    """A state_dict of ``torch.optim.swa_utils.AveragedModel``."""
    tensors = {f"module.{name}": torch.from_numpy(array) for name, array in random_tensors(config, seed).items()}
    torch.save({"n_averaged": torch.tensor(7), **tensors}, path)
    return path
