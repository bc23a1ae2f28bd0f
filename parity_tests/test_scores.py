"""The trained scores have the law of an implementation in PyTorch, and order samples as they should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import wdport
from tests.uses.evaluation import ts2vec_torch
from wdport.uses.data.series import read_series
from wdport.uses.evaluation.api import evaluate, real_windows
from wdport.uses.evaluation.distances import Scaling, frechet_distance
from wdport.uses.evaluation.result import Evaluation

SERIES = Path(__file__).parents[2] / "shared" / "data" / "ETT-small" / "ETTh1.csv"
REPEATS, COUNT = 5, 800

Record = Callable[[str, object], None]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not SERIES.is_file(), reason="needs the shared data"),
]


@pytest.fixture(scope="module")
def sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Real windows and others: real ones that share no step with them, those with a little noise, and Gaussian noise
    with the right mean and covariance."""
    real = real_windows(read_series(SERIES), 24, 7)
    random = np.random.default_rng(0)
    one, other = (each[random.permutation(len(each))[:COUNT]] for each in real.floor)
    good = other + 0.15 * real.windows.std((0, 1)) * random.normal(size=other.shape)
    flat = real.windows.reshape(len(real.windows), -1)
    root = np.linalg.cholesky(np.cov(flat.T) + 1e-9 * np.eye(flat.shape[1]))
    bad = (flat.mean(0) + random.normal(size=(COUNT, flat.shape[1])) @ root.T).reshape(-1, 24, 7)
    return {"real": (one, other), "good": (one, good), "bad": (one, bad)}


def theirs(metric: str, real: np.ndarray, generated: np.ndarray, seed: int) -> float:
    scale = Scaling.of(real)
    real, generated = scale(real), scale(generated)
    if metric == "discriminative":
        return discriminative(real, generated, seed)
    if metric == "predictive":
        return predictive(real, generated, seed)
    module = ts2vec_torch.trained(real, seed, 600 if real.size > 100_000 else 200)
    return frechet_distance(*(ts2vec_torch.embeddings(module, each) for each in (real, generated)))


@pytest.mark.parametrize("metric", ["context-fid", "discriminative", "predictive"])
@pytest.mark.parametrize("name", ["real", "good", "bad"])
def test_trained_scores_have_the_law_of_pytorchs(
    name: str, metric: str, sets: dict[str, tuple[np.ndarray, np.ndarray]], record_property: Record
) -> None:
    """Means of five repetitions differ by at most two standard deviations of their difference of single ones."""
    real, generated = sets[name]
    found: Evaluation = evaluate(generated, real, metrics=[metric], repeats=REPEATS)
    ours = found["samples"][metric]
    other = [theirs(metric, real, generated, seed) for seed in range(REPEATS)]
    record_property("ours, mean and deviation", [ours.mean, ours.std])
    record_property("PyTorch's, mean and deviation", [float(np.mean(other)), float(np.std(other, ddof=1))])

    assert abs(ours.mean - np.mean(other)) <= 2.0 * np.hypot(ours.std, np.std(other, ddof=1))


def test_noise_is_worse_than_real_series(sets: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """In the scores that see more than means and covariances. DTW-JS, of 100 series, does not tell them apart."""
    metrics = ["context-fid", "discriminative", "predictive", "sliced-wasserstein"]
    found = wdport.evaluate(sets["bad"][1], SERIES, metrics=metrics, repeats=REPEATS)
    for metric in metrics:
        assert found["samples"][metric].mean > found["real"][metric].mean


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
