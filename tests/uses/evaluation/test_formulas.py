"""Deterministic parts of the scores against NumPy and SciPy in loops; the encoder of Context-FID beside PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from tests.uses.evaluation import ts2vec_torch
from tests.uses.ts2vec.make import random_tensors
from wdport.base.errors import UsageError
from wdport.models.keras_runtime import exact_float64, variables_by_path
from wdport.uses.evaluation.api import require_series
from wdport.uses.evaluation.context_fid import embeddings, train_encoder
from wdport.uses.evaluation.distances import (
    Scaling,
    correlational_score,
    dtw_distances,
    frechet_distance,
    jensen_shannon,
)
from wdport.uses.evaluation.trained_scores import Judge, Weights
from wdport.uses.ts2vec import contrast
from wdport.uses.ts2vec.config import Config
from wdport.uses.ts2vec.family import FAMILY
from wdport.uses.ts2vec.reference import TS2Vec, build_reference


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


CONFIG = Config(3, 8, 12, 4)
RANDOM = np.random.default_rng(0)


@pytest.fixture
def exact() -> Iterator[None]:
    with exact_float64():
        yield


def both(config: Config = CONFIG) -> tuple[TS2Vec, dict[str, np.ndarray]]:
    """The same random weights for PyTorch, and by path."""
    tensors = {name: value.astype(np.float64) for name, value in random_tensors(config, 0).items()}
    weights = {}
    for path in FAMILY.variables(config):
        name = path.replace("/block_", ".").replace("/", ".").replace(".kernel", ".weight")
        value = tensors[name]
        weights[path] = value.T if value.ndim == 2 else value.transpose(2, 1, 0) if value.ndim == 3 else value
    return build_reference(config, tensors, "float64"), weights


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("length", [1, 5, 24])
def test_embeddings_are_those_of_the_port_and_of_pytorch(length: int) -> None:
    module, weights = both()
    series = RANDOM.normal(size=(6, length, 3))
    found = embeddings(contrast.ContrastEncoder(CONFIG), weights, series)
    np.testing.assert_allclose(found, module(torch.from_numpy(series))[1].detach(), rtol=0, atol=1e-11)
    model = FAMILY.build(CONFIG, "float64")
    for path, variable in variables_by_path(model).items():
        variable.assign(weights[path])
    np.testing.assert_allclose(found, model(series)[1], rtol=0, atol=1e-11)


HIERARCHICAL = jax.jit(jax.value_and_grad(contrast.hierarchical_loss, (0, 1)))


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(("count", "length"), [(2, 1), (1, 2), (2, 2), (5, 3), (1, 7), (3, 7), (2, 13)])
def test_the_loss_is_that_of_the_steps_that_count(count: int, length: int) -> None:
    """Padded to 13 steps, against PyTorch in loops over anchors, with gradients."""
    one, other = RANDOM.normal(size=(2, count, 13, 4))
    given = [torch.tensor(each[:, :length], requires_grad=True) for each in (one, other)]
    wanted = ts2vec_torch.hierarchical_loss(*given, term=ts2vec_torch.among)
    quick = ts2vec_torch.hierarchical_loss(*given)
    wanted.backward()
    found, slopes = HIERARCHICAL(one, other, jnp.asarray(length))
    assert float(found) == pytest.approx(float(wanted.detach()), abs=1e-12)
    assert float(quick.detach()) == pytest.approx(float(wanted.detach()), abs=1e-12)
    for slope, tensor in zip(slopes, given, strict=True):
        np.testing.assert_allclose(slope[:, :length], tensor.grad, rtol=0, atol=1e-12)
        assert not slope[:, length:].any()


@pytest.mark.usefixtures("exact")
def test_the_loss_of_a_batch_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the crops and masks that a key gives, without dropout: cut out in PyTorch, padded here."""
    monkeypatch.setattr(contrast, "DROPOUT", 0.0)
    ours = jax.jit(jax.value_and_grad(lambda weights, key, series: contrast.loss(CONFIG, weights, key, series)))
    for seed in range(6):
        same_loss(seed, ours)


def same_loss(seed: int, ours: Any) -> None:
    module, weights = both()
    series, key = RANDOM.normal(size=(4, 17, 3)), jax.random.key(seed)
    crops_key, masks_key, _ = jax.random.split(key, 3)
    crops = jax.tree.map(np.asarray, contrast.draw_crops(crops_key, 4, 17))
    seen = np.asarray(jax.random.bernoulli(masks_key, 0.5, (8, 17)))
    found = []
    for at in (0, 1):
        length = int(crops.length[at])
        crop = np.stack([series[b, first : first + length] for b, first in enumerate(crops.first[at])])
        assert crop.shape[1] == length
        mask = torch.from_numpy(seen[at * 4 : at * 4 + 4, :length].astype(np.float64))
        found.append(ts2vec_torch.forward(module, torch.from_numpy(crop), mask))
    shared = int(crops.shared)
    wanted = ts2vec_torch.hierarchical_loss(found[0][:, -shared:], found[1][:, :shared])
    wanted.backward()
    found_loss, slopes = ours(weights, key, series)
    assert float(found_loss) == pytest.approx(float(wanted.detach()), rel=1e-11)
    reference = dict(module.named_parameters())
    for path, slope in slopes.items():
        name = path.replace("/block_", ".").replace("/", ".").replace(".kernel", ".weight")
        grad = reference[name].grad
        grad = np.zeros(reference[name].shape) if grad is None else grad.numpy()
        grad = grad.T if grad.ndim == 2 else grad.transpose(2, 1, 0) if grad.ndim == 3 else grad
        np.testing.assert_allclose(slope, grad, rtol=0, atol=1e-11 * max(1.0, np.abs(grad).max()))


@pytest.mark.usefixtures("exact")
def test_crops_share_steps_and_stay_inside() -> None:
    """All lengths and places are drawn: the ends of the range are reached, and nothing lies outside."""
    drawn = jax.vmap(lambda key: contrast.draw_crops(key, 3, 6))(jax.random.split(jax.random.key(0), 4000))
    first, length, shared = (np.asarray(each) for each in drawn)
    assert first.min() == 0
    assert (first + length[..., None]).max() == 6
    assert set(shared.tolist()) == {2, 3, 4, 5, 6}
    share = np.bincount(shared, minlength=7)[2:] / 4000
    np.testing.assert_allclose(share, 0.2, atol=0.03)  # 4.7 standard deviations
    np.testing.assert_array_equal(first[:, 0] + length[:, :1], first[:, 1] + shared[:, None])  # it ends the first crop


@pytest.mark.usefixtures("exact")
def test_initial_weights_have_pytorchs_spread() -> None:
    torch.manual_seed(0)
    module = TS2Vec(Config(3, 64, 320, 2))
    found = contrast.initial(FAMILY.variables(Config(3, 64, 320, 2)), np.random.default_rng(0))
    for path, value in found.items():
        name = path.replace("/block_", ".").replace("/", ".").replace(".kernel", ".weight")
        theirs = module.get_parameter(name)
        assert value.size == theirs.numel()
        for each in (np.asarray(value), theirs.detach().numpy()):
            limit = np.abs(each).max()
            spread = 0.2 if each.size > 1000 else 0.35  # 64 values of a bias
            assert np.std(each) == pytest.approx(limit / 3**0.5, rel=spread)
        assert float(np.abs(value).max()) == pytest.approx(float(theirs.detach().abs().max()), rel=0.15)


@pytest.mark.usefixtures("exact")
def test_training_takes_every_series_once_an_epoch_and_averages() -> None:
    """Against `torch.optim.AdamW` and `AveragedModel`, with a loss that tells which series it got."""

    class Told:
        def initial(self, random: np.random.Generator) -> dict[str, np.ndarray]:
            return {"w": np.ones(3, np.float32)}

        def loss(self, weights: dict[str, jax.Array], key: jax.Array, series: jax.Array) -> jax.Array:
            return ((weights["w"] - series[:, 0, 0].sum()) ** 2).sum()

    series = (2.0 ** np.arange(20))[:, None, None] / 1e5  # a sum of eight tells which
    with jax.enable_x64(False):
        found = train_encoder(Told(), series, seed=3, steps=5)["w"]
    random = np.random.default_rng(3)
    order = [each for _ in range(3) for each in random.permutation(20)[:16].reshape(2, 8)][:5]
    parameter = torch.nn.Parameter(torch.ones(3))
    averaged = torch.optim.swa_utils.AveragedModel(torch.nn.ParameterList([parameter]))
    optimizer = torch.optim.AdamW([parameter], lr=1e-3)
    for batch in order:
        optimizer.zero_grad()
        ((parameter - float(series[batch].sum())) ** 2).sum().backward()
        optimizer.step()
        averaged.update_parameters(torch.nn.ParameterList([parameter]))
    np.testing.assert_allclose(found, next(averaged.parameters()).detach(), rtol=1e-6)
