"""The training loss in PyTorch, written out level by level: the reference for that of the port.

It shares nothing with the port's loss. Source: arXiv 2510.11839.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wdport.model import Array, Batch


def training_loss(
    network: torch.nn.Module, batch: Batch, alpha_bar: Array, level_lengths: Sequence[int], target: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and prediction of a network in the dtype of ``batch``.

    ``batch`` has ``clean`` and ``noise`` (B, C, F), ``uniform`` (B,) in [0, 1) and, for a network that takes one,
    ``scale`` (B,). ``target`` is "noise" or
    "coefficient"; ``alpha_bar`` (1001,) is indexed by the step.
    """
    clean, noise = torch.from_numpy(batch["clean"]), torch.from_numpy(batch["noise"])
    steps = (torch.from_numpy(batch["uniform"]) * 1000).long()
    step_alpha_bar = torch.tensor(alpha_bar).to(clean)[steps].view(-1, 1, 1)
    noisy = step_alpha_bar.sqrt() * clean + (1 - step_alpha_bar).sqrt() * noise
    scale = [torch.from_numpy(batch["scale"])] if "scale" in batch else []
    prediction = network(noisy, steps.to(clean) / 1000, *scale)
    expected = noise if target == "noise" else clean
    raw = [(2.0 if level == 0 else 1.0) / length for level, length in enumerate(level_lengths)]
    loss, start = torch.zeros((), dtype=clean.dtype), 0
    for weight, length in zip(raw, level_lengths, strict=True):
        difference = prediction[:, start : start + length] - expected[:, start : start + length]
        loss = loss + weight / sum(raw) * difference.pow(2).mean()
        start += length
    return loss, prediction
