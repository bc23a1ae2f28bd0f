"""Training with a condition: every state has its own, windows of prices give theirs, and recipes say what they do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import wdport
from tests.command import Cli, Refused
from tests.make import QK_NORM, SETTINGS, TINY, make_state, save
from tests.uses.data.test_transforms import prices
from tests.uses.sampling.toy import ABOUT
from wdport.base.errors import MisfitError, UsageError
from wdport.models.interface import Condition, KerasModel, labels_of
from wdport.optimizers.schedules import warmup_cosine
from wdport.uses.data.series import Series, read_series
from wdport.uses.data.transforms import OhlcAtr
from wdport.uses.diffusion.noise import StepNoising, min_snr_law, step_noising
from wdport.uses.diffusion.process import MIN_SNR
from wdport.uses.diffusion.schedules import noise_schedule, per_mille
from wdport.uses.training.model import new_model, recipe_of, training_model
from wdport.uses.training.run import train
from wdport.uses.training.training_data import source_of
from wdport.uses.waveletdiff.config import Config

SCALED = Config(**{**TINY.to_dict(), "features": 5, "qk_norm": True, "scale_embedding": True})
PUBLIC: dict[str, Any] = {
    "model": {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "time_embed_dim": 8}, "dataset": {"seq_len": 24},
    "optimizer": {"lr": 3e-4, "scheduler_type": "onecycle"}, "training": {"epochs": 2, "batch_size": 8},
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    series = prices(70)
    path = tmp_path_factory.mktemp("data") / "prices.csv"
    rows = [",".join(map(repr, row)) for row in series.values.tolist()]
    path.write_text("\n".join(["Open,High,Low,Close,Volume", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def converted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = save(tmp_path_factory.mktemp("scaled") / "scaled.ckpt", make_state(SCALED))
    return wdport.convert(source, values=SETTINGS, data=data, transform="ohlc-atr").output


def states(count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *ABOUT.shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("condition", "values", "said"),
    [
        (labels_of(4), None, "the model takes a condition with every state: labels"),
        (labels_of(4), np.arange(6) % 5, "has other labels than the model; give 0 to 3"),
        (Condition("scale", "positive"), np.zeros(6), "has invalid values of scale; give positive finite numbers"),
        (Condition("scale", "positive"), np.ones(5), r"has shape \(5,\), and there are 6 states"),
        (Condition("text", "real", (2,)), np.full((6, 2), np.nan), "has invalid values of text"),
        (None, np.ones(6), "condition: the model takes none"),
    ],
)
def test_conditions_that_do_not_fit(condition: Condition | None, values: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        source_of(states(), replace(ABOUT, condition=condition), "float32", condition=values)


def test_every_state_keeps_its_condition() -> None:
    values = np.arange(6.0) + 1.0
    found = source_of(states(), replace(ABOUT, condition=Condition("scale", "positive")), "float32", condition=values)
    assert found.condition is not None
    np.testing.assert_array_equal(found.condition, values)
    untrained = Condition("scale", "positive", optional=True, trained=False)
    assert source_of(states(), replace(ABOUT, condition=untrained), "float32").condition is None


def test_windows_of_prices_give_their_scale(converted: Path, data: Path) -> None:
    model = wdport.load_model(converted)
    about = model_about(model)
    series = read_series(data)
    found = source_of(series, about, "float32")
    windows, statistics = OhlcAtr(24).forward(series)
    np.testing.assert_allclose(found.data, windows, rtol=1e-6)
    np.testing.assert_allclose(found.condition, statistics["atr_pcts"], rtol=1e-6)
    streamed = source_of(series, about, "float32", stream=True)
    assert streamed.streamed
    assert np.array_equal(streamed.feed(np.arange(3)), found.data[:3])
    with pytest.raises(UsageError, match="ohlc-atr finds columns by name"):
        source_of(Series.of(series.values), about, "float32")


def test_columns_of_a_series_are_found_by_name(tmp_path: Path) -> None:
    """A model that was converted with named data trains on the same columns in another order, and on no others."""
    values, names = prices(40).values[:, :3], ("open", "high", "low")
    for name, order in (("a", (0, 1, 2)), ("b", (2, 0, 1))):
        rows = [",".join(repr(row[at]) for at in order) for row in values.tolist()]
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(names[at] for at in order), *rows]) + "\n")
    source = save(tmp_path / "plain.ckpt", make_state(QK_NORM))
    about = model_about(wdport.load_model(wdport.convert(source, values=SETTINGS, data=tmp_path / "a.csv").output))
    one, other = (source_of(tmp_path / f"{name}.csv", about, "float32") for name in "ab")
    np.testing.assert_array_equal(one.data, other.data)
    with pytest.raises(UsageError, match="has no column of numbers called open, and has x, y, z"):
        source_of(Series(values, ("x", "y", "z")), about, "float32")


def model_about(model: KerasModel) -> Any:
    from wdport.families.registry import known_model

    family, config = known_model(model)  # type: ignore[misc]
    return family.diffused(config)


def test_the_objective_passes_the_condition_on(converted: Path) -> None:
    """The loss with a scale is that of the network called by hand."""
    model = wdport.load_model(converted)
    trained = training_model(model, seed=3, law=MIN_SNR)
    clean = np.random.default_rng(1).normal(size=(4, SCALED.coefficients, 5)).astype(np.float32)
    scale = np.array([0.5, 1.0, 2.0, 8.0], np.float32)
    drawn = trained.diffusion_loss.draw(training_model(model, seed=3).seeds.next(), jnp.asarray(clean))
    noisy, times = trained.diffusion_loss.noisy(jnp.asarray(clean), drawn)
    by_hand = trained.diffusion_loss.errors(model((noisy, times, scale)), jnp.asarray(clean), drawn)
    made = trained((clean, scale))
    np.testing.assert_allclose(made["parts"], by_hand.parts, rtol=1e-5)
    other = trained.diffusion_loss.errors(model((noisy, times)), jnp.asarray(clean), drawn)
    assert np.abs(np.asarray(other.parts) / np.asarray(by_hand.parts) - 1).max() > 1e-3


def test_a_new_model_of_prices(data: Path) -> None:
    model = new_model(PUBLIC, data, transform="ohlc-atr")
    config = model.config
    assert (config.scale_embedding, config.conditioning, config.transform) == (True, "scale", "ohlc-atr")
    assert config.feature_names == ("open", "high", "low", "close", "volume")
    assert config.statistics is not None
    assert new_model(PUBLIC, data).config.scale_embedding is False


def test_windows_train_as_their_series(data: Path, tmp_path: Path) -> None:
    """Windows (n, N, F) in an .npy file give the states of the series."""
    series = read_series(data)
    model = new_model(PUBLIC, series)
    about = model_about(model)
    windows = np.lib.stride_tricks.sliding_window_view(series.values, 24, axis=0).transpose(0, 2, 1)
    np.save(tmp_path / "windows.npy", windows)
    plain, found = (source_of(each, about, "float32") for each in (series, tmp_path / "windows.npy"))
    assert found.count == plain.count
    numbers = np.array([0, 5])
    taken = [np.asarray(each.take(jnp.asarray(each.held), jnp.asarray(each.feed(numbers)))) for each in (plain, found)]
    np.testing.assert_allclose(taken[1], taken[0], rtol=1e-5, atol=1e-5)
    np.save(tmp_path / "short.npy", windows[:, :20])
    with pytest.raises(UsageError, match=r"short.npy: has shape \(47, 20, 5\); give windows \(n, 24, 5\) or a series"):
        source_of(tmp_path / "short.npy", about, "float32")


def test_steps_are_drawn_by_the_law() -> None:
    kept = noise_schedule("exponential").alpha_bar
    law = min_snr_law(kept)
    noising = StepNoising("noise", per_mille(1000), kept, law)
    uniform = np.linspace(0.0, 1.0, 200_001)[:-1]
    times = np.round(np.asarray(noising.at(jnp.asarray(uniform, jnp.float32)).time) * 1000).astype(int)
    counted = np.bincount(times, minlength=1001) / len(times)
    np.testing.assert_allclose(counted, law, atol=3e-5)
    snr = kept / (1 - kept + 1e-8)
    np.testing.assert_allclose(
        law * (snr + 1e-8) / np.minimum(snr, 5.0), (law / (np.minimum(snr, 5) / (snr + 1e-8)))[0]
    )
    plain = step_noising("noise", per_mille(1000), kept, range(1000))
    assert plain.law is None


def test_the_public_recipe() -> None:
    told = recipe_of(PUBLIC, public=True)
    assert (told.learning_rate, told.weight_decay, told.clip, told.law) == (1e-3, 1e-5, 1.0, MIN_SNR)
    assert recipe_of(PUBLIC).learning_rate == 3e-4
    cosine = {**PUBLIC, "optimizer": {"lr": 3e-4, "scheduler_type": "cosine_warmup", "warmup_epochs": 1}}
    assert (recipe_of(cosine, True).learning_rate, recipe_of(cosine, True).warmup_epochs) == (3e-4, 1)
    with pytest.raises(MisfitError, match="is plateau_warmup, which needs values measured in training"):
        recipe_of({**PUBLIC, "optimizer": {"scheduler_type": "plateau_warmup"}}, True)


def test_the_rates_of_a_warmed_up_cosine_are_those_of_lambda_lr() -> None:
    import torch

    lr, epochs, warm_up, steps = 2e-4, 12, 3, 4
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)

    def factor(epoch: int) -> float:
        if epoch < warm_up:
            return (epoch + 1) / warm_up
        low = 1e-6 / lr
        return low + (1 - low) * (1 + np.cos(np.pi * (epoch - warm_up) / (epochs - warm_up))) / 2

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    wanted = []
    for _ in range(epochs):
        wanted += [optimizer.param_groups[0]["lr"]] * steps
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose(warmup_cosine(epochs, steps, lr, warm_up).rate, wanted, rtol=1e-12)
    with pytest.raises(UsageError, match="is 3 of 3 epochs"):
        warmup_cosine(3, steps, lr, 3)


@pytest.mark.full
def test_the_recipe_in_python_is_that_of_the_command(
    converted: Path, data: Path, tmp_path: Path, cli: Cli, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("train", data, "--resume", converted, "--epochs", "2", "--batch-size", "8", "-o")
    printed = cli(*command, "command", "--recipe", "public").err
    assert "the public recipe: steps by the Min-SNR law, onecycle to 0.001, weight decay 1e-05" in printed
    refused(*command, "command", says="holds the state of another run")
    refused(*command, "other", "--recipe", "public", "--lr", "0.1", says="--lr: is part of the public recipe")
    model = wdport.load_model(converted)
    run = train(model, data, tmp_path / "python", epochs=2, batch_size=8, recipe="public")
    assert run.losses
    kept = [(tmp_path / name / "metrics.csv").read_text().splitlines()[1:] for name in ("command", "python")]
    assert [row.split(",")[:5] for row in kept[0]] == [row.split(",")[:5] for row in kept[1]]
    with pytest.raises(UsageError, match=r"^recipe: 'plain' is unknown; give 'public', or a Recipe"):
        train(model, data, tmp_path / "other", recipe="plain")


def test_a_recipe_determines_how_steps_are_drawn(
    converted: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laws = []

    def training_of(*_: Any, law: str, **__: Any) -> None:
        laws.append(law)
        raise KeyboardInterrupt

    monkeypatch.setattr("wdport.uses.training.run.training_model", training_of)
    for recipe in (None, "public"):
        with pytest.raises(KeyboardInterrupt):
            train(wdport.load_model(converted), data, tmp_path / "run", recipe=recipe)
    assert laws == ["uniform", "min-snr"]


def test_a_recipe_fills_in_what_is_not_given(converted: Path, data: Path, tmp_path: Path) -> None:
    """And training with a scale changes its embedding."""
    model = wdport.load_model(converted)
    before = np.asarray(model.scale_embedding.mlp.out.kernel.value)
    stated = recipe_of({**PUBLIC, "training": {"epochs": 1, "batch_size": 4}})
    run = train(model, data, tmp_path / "run", recipe=stated)
    assert (len(run.epochs), run.steps) == (1, 7)
    assert run.epochs[0]["learning_rate"] < 3e-4
    assert np.isfinite(run.losses).all()
    assert np.abs(np.asarray(model.scale_embedding.mlp.out.kernel.value) - before).max() > 1e-5
