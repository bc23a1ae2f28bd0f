"""The encoder of Context-FID, its loss and its training, beside PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.evaluation import ts2vec_torch
from tests.families.ts2vec.make import random_tensors
from wdport.evaluation.context import embeddings, train_encoder
from wdport.families.ts2vec import contrast
from wdport.families.ts2vec.config import Config
from wdport.families.ts2vec.family import FAMILY
from wdport.families.ts2vec.reference import TS2Vec, build_reference
from wdport.keras_runtime import exact_float64, variables_by_path

CONFIG = Config(3, 8, 12, 4)
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64():
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
