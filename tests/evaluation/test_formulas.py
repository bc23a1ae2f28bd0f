"""Deterministic parts of the scores, against NumPy and SciPy written out in loops."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from wdport.errors import UsageError
from wdport.evaluation.distances import Scaling, correlational_score, dtw_distances, frechet_distance, jensen_shannon
from wdport.evaluation.sets import require_series
from wdport.evaluation.trained_scores import Judge, Weights


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


def in_keras_layout(module: torch.nn.GRU, linear: torch.nn.Linear) -> list[np.ndarray]:
    """The weights of the judge: Keras's GRU has the update gate before the reset gate."""

    def gates(name: str) -> np.ndarray:
        reset, update, new = np.split(dict(module.named_parameters())[name].detach().numpy(), 3)
        return np.concatenate([update, reset, new]).T

    biases = np.stack([gates("bias_ih_l0"), gates("bias_hh_l0")])
    weight, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
    return [gates("weight_ih_l0"), gates("weight_hh_l0"), biases, weight.T, bias]


def test_the_judge_is_torchs_gru() -> None:
    torch.manual_seed(0)
    module, linear = torch.nn.GRU(5, 3, batch_first=True).double(), torch.nn.Linear(3, 1).double()
    series = np.random.default_rng(0).normal(size=(4, 9, 5))
    states, _ = module(torch.from_numpy(series))
    wanted = linear(states)[..., 0].detach().numpy()
    found = Judge(5, 3, np.float64).outputs(in_keras_layout(module, linear), series)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_the_judge_begins_as_torchs() -> None:
    """Every weight and bias is uniform within 1 / sqrt(width); the GRU's kernels have a quarter of the numbers here."""
    judge = Judge(40, 16, np.float64)
    for one, other in zip(judge.begin(jax.random.key(0)), judge.begin(jax.random.key(1)), strict=True):
        assert one.dtype == np.float64
        assert np.abs(one).max() <= 0.25
        assert not np.array_equal(one, other)
        if one.size > 500:
            assert scipy.stats.kstest(np.ravel(one), scipy.stats.uniform(-0.25, 0.5).cdf).pvalue > 1e-3


def test_the_judge_learns_as_with_torchs_gradients() -> None:
    """And Adam as Keras defines it, with epsilon added before the bias correction and a rate in float32."""
    torch.manual_seed(0)
    series = np.random.default_rng(0).normal(size=(16, 7, 3))
    judge = Judge(3, 2, np.float64)
    module, linear = torch.nn.GRU(3, 2, batch_first=True).double(), torch.nn.Linear(2, 1).double()

    def loss(weights: Weights, _: object) -> jax.Array:
        return ((judge.outputs(weights, series)[:, -1] - series[:, 0, 0]) ** 2).mean()

    begin = [jnp.asarray(each) for each in in_keras_layout(module, linear)]
    found = judge.fit(jax.random.key(1), begin, loss, 50)
    data = torch.from_numpy(series)
    parameters = [*module.parameters(), *linear.parameters()]
    first, second = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
    for step in range(1, 51):
        slopes = torch.autograd.grad(((linear(module(data)[0])[:, -1, 0] - data[:, 0, 0]) ** 2).mean(), parameters)
        rate = float(np.float32(1e-3)) * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
        for parameter, slope, one, two in zip(parameters, slopes, first, second, strict=True):
            one.mul_(0.9).add_(slope, alpha=0.1)
            two.mul_(0.999).add_(slope**2, alpha=0.001)
            parameter.data -= rate * one / (two.sqrt() + 1e-7)
    for value, wanted in zip(found, in_keras_layout(module, linear), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-9)
