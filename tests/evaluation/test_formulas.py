"""Deterministic parts of the scores, against NumPy and SciPy written out in loops."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from wdport.errors import UsageError
from wdport.evaluation import gru
from wdport.evaluation.correlation import correlational_score
from wdport.evaluation.dtw import dtw_distances, jensen_shannon
from wdport.evaluation.frechet import frechet_distance
from wdport.evaluation.scaling import Scaling
from wdport.evaluation.sets import require_series


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def walked(a: np.ndarray, b: np.ndarray) -> float:
    """The distance of two series (N,), (M,), by the table of costs and a walk back from its end."""
    table = np.full((len(a) + 1, len(b) + 1), np.inf)
    table[0, 0] = 0.0
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i, j] = abs(a[i - 1] - b[j - 1]) + min(table[i - 1, j - 1], table[i - 1, j], table[i, j - 1])
    i, j, length = len(a), len(b), 1
    while (i, j) != (1, 1):
        i, j = min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda at: table[at])  # the first of equal ones
        length += 1
    return float(table[-1, -1] / length)


@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_dtw_is_the_walk(kind: str) -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(4, 9, 2)), rng.normal(size=(5, 9, 2))
    if kind == "ties":  # whole numbers have many paths of one cost
        one, other = np.round(one), np.round(other)
    wanted = [[np.mean([walked(a[:, f], b[:, f]) for f in range(2)]) for b in other] for a in one]
    np.testing.assert_allclose(dtw_distances(one, other), wanted, rtol=1e-10)
    longer = rng.normal(size=(3, 13, 1))
    wanted = [[walked(a[:, 0], b[:, 0]) for b in longer] for a in one[..., :1]]
    np.testing.assert_allclose(dtw_distances(one[..., :1], longer), wanted, rtol=1e-10)


def test_jensen_shannon_is_a_difference_of_entropies() -> None:
    """Of the mean of the histograms, and the mean of theirs, in nats."""
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=300), rng.normal(0.5, 2.0, size=200)
    joint = np.concatenate([one, other])
    margin = 0.05 * np.ptp(joint)
    histograms = [np.histogram(each, 50, (joint.min() - margin, joint.max() + margin))[0] + 1e-10
                  for each in (one, other)]  # fmt: skip
    p, q = (each / each.sum() for each in histograms)
    wanted = scipy.stats.entropy((p + q) / 2) - (scipy.stats.entropy(p) + scipy.stats.entropy(q)) / 2
    np.testing.assert_allclose(jensen_shannon(one, other), wanted, rtol=1e-10)
    assert jensen_shannon(one, one) == 0.0


@pytest.mark.parametrize("count", [400, 30])
def test_frechet_is_scipys(count: int) -> None:
    """Also for fewer vectors than dimensions, where SciPy's root of a singular product is less accurate."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=(count, 40)) @ rng.normal(size=(40, 40))
    other = rng.normal(0.3, size=(count + 7, 40)) @ rng.normal(size=(40, 40))
    covariances = [np.cov(each, rowvar=False) for each in (one, other)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1]).real
    gap = one.mean(0) - other.mean(0)
    wanted = gap @ gap + np.trace(covariances[0] + covariances[1] - 2.0 * root)
    np.testing.assert_allclose(frechet_distance(one, other), wanted, rtol=1e-10 if count > 40 else 1e-4)
    assert abs(frechet_distance(one, one)) < 1e-10 * np.trace(covariances[0])
    with pytest.raises(UsageError, match="give at least two of each"):
        frechet_distance(one[:1], other)


def test_correlational_score_is_the_loop() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(3, 3))
    one, other = rng.normal(2.0, size=(50, 8, 3)) @ mixing, rng.normal(size=(60, 8, 3))

    def pairs(series: np.ndarray) -> list[float]:
        flat = series.reshape(-1, 3)
        standard = (series - flat.mean(0)) / flat.std(0, ddof=1)
        return [np.mean([np.mean(window[:, i] * window[:, j]) for window in standard])
                for i in range(3) for j in range(i + 1)]  # fmt: skip

    wanted = sum(abs(a - b) for a, b in zip(pairs(one), pairs(other), strict=True)) / 10
    np.testing.assert_allclose(correlational_score(one, other), wanted, rtol=1e-10)


def test_scaling_is_by_the_real_data() -> None:
    rng = np.random.default_rng(0)
    real, generated = rng.normal(3.0, size=(20, 5, 2)), rng.normal(3.0, 2.0, size=(20, 5, 2))
    real[..., 1] = 7.0
    scale = Scaling.of(real)
    one, other = scale(real), scale(generated)
    assert (one[..., 0].min(), one[..., 0].max()) == (0.0, 1.0)
    assert not one[..., 1].any()
    wanted = (generated[..., 0] - real[..., 0].min()) / np.ptp(real[..., 0])
    np.testing.assert_allclose(other[..., 0], wanted, rtol=1e-12, atol=1e-12)
    with pytest.raises(UsageError, match="samples: have NaN or infinite values in 20 of 20"):
        require_series("samples", np.where(generated > 3, np.nan, generated))


def test_the_judge_is_torchs_gru() -> None:
    torch.manual_seed(0)
    module, linear = torch.nn.GRU(5, 3, batch_first=True).double(), torch.nn.Linear(3, 1).double()
    own = {name: value.detach().numpy() for name, value in module.named_parameters()}
    weights = gru.Gru(own["weight_ih_l0"].T, own["weight_hh_l0"].T, own["bias_ih_l0"], own["bias_hh_l0"],
                      linear.weight.detach().numpy()[0], linear.bias.detach().numpy()[0])  # fmt: skip
    series = np.random.default_rng(0).normal(size=(4, 9, 5))
    states, _ = module(torch.from_numpy(series))
    wanted = linear(states)[..., 0].detach().numpy()
    np.testing.assert_allclose(gru.outputs(weights, series), wanted, rtol=1e-10, atol=1e-12)


def test_the_judge_learns_as_with_torchs_adam() -> None:
    series = np.random.default_rng(0).normal(size=(16, 7, 3))
    begin = gru.begin(jax.random.key(0), 3, 2, np.float64)

    def loss(weights: gru.Gru, _: object) -> jax.Array:
        return (gru.outputs(weights, series)[:, -1] - series[:, 0, 0]).__pow__(2).mean()

    found = gru.fit(jax.random.key(1), begin, loss, 50)
    module, linear = torch.nn.GRU(3, 2, batch_first=True).double(), torch.nn.Linear(2, 1).double()
    parameters = [
        module.weight_ih_l0,
        module.weight_hh_l0,
        module.bias_ih_l0,
        module.bias_hh_l0,
        linear.weight,
        linear.bias,
    ]
    for parameter, value in zip(parameters, begin, strict=True):
        parameter.data = torch.tensor(np.asarray(value).T.copy()).reshape(parameter.shape)
    optimiser = torch.optim.Adam(parameters, lr=1e-3)
    data = torch.from_numpy(series)
    for _ in range(50):
        optimiser.zero_grad()
        ((linear(module(data)[0])[:, -1, 0] - data[:, 0, 0]) ** 2).mean().backward()
        optimiser.step()
    for parameter, value in zip(parameters, found, strict=True):
        np.testing.assert_allclose(np.asarray(value).T.reshape(parameter.shape), parameter.detach().numpy(), rtol=1e-9)
