"""The discriminative and the predictive score in PyTorch, written from their definitions: the reference in law."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

BATCH = 128


class Judge(torch.nn.Module):
    """A GRU of PyTorch's default initialisation, and a linear layer at every step: (B, N, F) to (B, N)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gru, self.linear = torch.nn.GRU(inputs, width, batch_first=True), torch.nn.Linear(width, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.linear(self.gru(series)[0])[..., 0]
        return found


def _tensor(series: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(series.astype(np.float32))


def _batch(series: torch.Tensor) -> torch.Tensor:
    return series[torch.randperm(len(series))[:BATCH]]


def discriminative(real: np.ndarray, generated: np.ndarray, seed: int, steps: int = 2000) -> float:
    """|accuracy - 0.5| on the fifth of both that was held out."""
    torch.manual_seed(seed)
    sets = []
    for each in (real, generated):
        mixed = _tensor(each)[torch.randperm(len(each))]
        sets.append((mixed[: len(each) * 4 // 5], mixed[len(each) * 4 // 5 :]))
    judge = Judge(real.shape[2], max(real.shape[2] // 2, 2))
    optimizer = torch.optim.Adam(judge.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = torch.zeros(())
        for (given, _), truth in zip(sets, (1.0, 0.0), strict=True):
            logits = judge(_batch(given))[:, -1]
            loss = loss + functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, truth))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = torch.cat([judge(sets[0][1])[:, -1] > 0, judge(sets[1][1])[:, -1] <= 0])
    return abs(right.float().mean().item() - 0.5)


def predictive(real: np.ndarray, generated: np.ndarray, seed: int, steps: int = 5000) -> float:
    """The mean absolute error on real series of the last feature, a step ahead from the others."""
    torch.manual_seed(seed)
    judge = Judge(real.shape[2] - 1, max(real.shape[2] // 2, 2))
    optimizer = torch.optim.Adam(judge.parameters(), lr=1e-3)

    def error(series: torch.Tensor) -> torch.Tensor:
        return (torch.sigmoid(judge(series[:, :-1, :-1])) - series[:, 1:, -1]).abs().mean()

    given = _tensor(generated)
    for _ in range(steps):
        loss = error(_batch(given))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return error(_tensor(real)).item()
