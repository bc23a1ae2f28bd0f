"""Training by ``fit``: the loss is the family's, its random numbers are fresh, and steps are PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch

import wdport
from tests.make import SETTINGS, SMALL, TINY, make_state, save
from wdport.base.errors import UsageError
from wdport.models.interface import LossPart
from wdport.optimizers.torch_like import Adam
from wdport.uses.diffusion.loss import DiffusionLoss, RandomBatch
from wdport.uses.diffusion.noise import FlowNoising, step_noising
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY


def drawn(seed: int, batch: int, shape: tuple[int, ...]) -> tuple[np.ndarray, RandomBatch]:
    random = np.random.default_rng(seed)
    return random.normal(size=(batch, *shape)), RandomBatch(random.normal(size=(batch, *shape)), random.random(batch))


def formula(given: np.ndarray, wanted: np.ndarray, config: Config, energy: float, weight: np.ndarray) -> float:
    """The loss with Python's loops, sample by sample: arXiv 2510.11839."""
    raw = [(2.0 if level == 0 else 1.0) / length for level, length in enumerate(config.level_lengths)]
    total = 0.0
    for one, other, share in zip(given, wanted, weight, strict=True):
        start, gaps = 0, []
        for level, length in enumerate(config.level_lengths):
            a, b = one[start : start + length], other[start : start + length]
            total += share * raw[level] / sum(raw) * np.mean((a - b) ** 2) / len(given)
            gaps.append(np.abs((b**2).sum(0) - (a**2).sum(0)))
            start += length
        total += energy * float(np.mean(gaps)) / len(given)
    return float(total)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("target", ["noise", "coefficient"])
@pytest.mark.parametrize(("energy", "min_snr"), [(0.0, None), (0.3, None), (0.0, 5.0)])
def test_the_loss_is_the_formula(target: str, energy: float, min_snr: float | None) -> None:
    from wdport.uses.waveletdiff.loss import diffusion_loss

    config = Config(**{**SMALL.to_dict(), "prediction_target": target})
    alpha_bar = FAMILY.constants(config)["noise_schedule.alpha_bar"].values
    plain = diffusion_loss(config, alpha_bar)
    loss = DiffusionLoss(plain.noising, plain.parts, energy, min_snr)
    clean, tape = drawn(0, 6, (config.coefficients, config.features))
    tape = tape._replace(uniform=np.array([0.0, 0.001, 0.25, 0.5, 0.75, 0.9999]))
    steps = np.array([0, 1, 250, 500, 750, 999])
    kept = alpha_bar[steps][:, None, None]
    state, time = loss.noisy(jnp.asarray(clean), tape)
    np.testing.assert_allclose(state, np.sqrt(kept) * clean + np.sqrt(1 - kept) * tape.noise, rtol=1e-15, atol=1e-15)
    assert np.array_equal(np.asarray(time), steps / 1000)
    wanted = tape.noise if target == "noise" else clean
    given = np.random.default_rng(1).normal(size=clean.shape)
    snr = alpha_bar[steps] / (1 - alpha_bar[steps] + (steps == 0) * 1e-300)
    weight = np.ones(6) if min_snr is None else np.minimum(snr, min_snr) / (snr if target == "noise" else 1.0)
    if min_snr is not None:  # the first step has no noise
        tape = RandomBatch(tape.noise[1:], tape.uniform[1:])
        given, wanted, weight, clean = given[1:], wanted[1:], weight[1:], clean[1:]
    found = loss.total(loss.errors(jnp.asarray(given), jnp.asarray(clean), tape))
    assert float(found) == pytest.approx(formula(given, wanted, config, energy, weight), rel=1e-12)
    parts = loss.by_part(loss.errors(jnp.asarray(given), jnp.asarray(clean), tape))
    assert list(parts) == ["cA3", "cD3", "cD2", "cD1"]
    assert float(parts["cA3"]) == pytest.approx(np.mean((given - wanted)[:, :5] ** 2), rel=1e-12)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("target", ["noise", "sample", "velocity"])
@pytest.mark.parametrize("path", ["linear", "cosine", "steps"])
def test_min_snr_weights_the_error_in_the_clean_state(target: str, path: str) -> None:
    """For diffusions and flows, from two linear equations for the clean state; at pure noise, by the limit."""
    alpha_bar = np.linspace(0.999, 1e-4, 1000)
    steps = step_noising(target, np.arange(1000), alpha_bar, range(1000))
    noising = steps if path == "steps" else FlowNoising(target, path)
    loss = DiffusionLoss(noising, (LossPart("state", 1, 1.0),), min_snr=5.0)
    uniform = np.array([1e-6, 0.01, 0.3, 0.7, 0.99])
    level = [np.asarray(each) for each in noising.at(jnp.asarray(uniform))[:5]]
    zeros = np.zeros((5, 1))
    found = loss.errors(jnp.ones((5, 1)), jnp.asarray(zeros), RandomBatch(zeros, uniform)).weight
    for weight, _, *factors in zip(found, *level, strict=True):
        signal, noise = factors[:2]
        clean, _ = np.linalg.solve(np.reshape(factors, (2, 2)), [0.0, 1.0])  # the target is off by one
        assert float(weight) == pytest.approx(min((signal / noise) ** 2, 5.0) * clean**2, rel=1e-9)
    first = loss.errors(jnp.ones((1, 1)), jnp.zeros((1, 1)), RandomBatch(np.zeros((1, 1)), np.zeros(1))).weight
    if path != "steps":
        assert float(first[0]) == pytest.approx(1.0 if target == "noise" else 0.0, abs=1e-20)


@pytest.mark.usefixtures("exact")
def test_samples_that_only_fill_a_batch_do_not_count() -> None:
    parts = (LossPart("a", 3, 0.5), LossPart("b", 2, 0.5))
    noising = step_noising("noise", np.arange(5) / 4, np.linspace(1.0, 0.1, 5), range(1, 5))
    loss = DiffusionLoss(noising, parts, energy=0.1)
    clean, tape = drawn(0, 8, (5, 2))
    given = jnp.asarray(np.random.default_rng(1).normal(size=clean.shape))
    whole = loss.errors(given, jnp.asarray(clean), tape)
    few = loss.errors(given[:5], jnp.asarray(clean[:5]), RandomBatch(tape.noise[:5], tape.uniform[:5]))
    assert float(loss.total(whole, jnp.arange(8) < 5)) == pytest.approx(float(loss.total(few)), rel=1e-14)
    assert float(loss.total(whole)) != pytest.approx(float(loss.total(few)), rel=1e-3)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("path", ["linear", "cosine"])
def test_a_flows_target_is_the_derivative_of_its_state(path: str) -> None:
    loss = DiffusionLoss(FlowNoising("velocity", path), (LossPart("state", 3, 1.0),))
    clean, tape = drawn(0, 16, (3,))
    state = lambda uniform: loss.noisy(clean, tape._replace(uniform=uniform))[0]  # noqa: E731
    _, slope = jax.jvp(state, (jnp.asarray(tape.uniform),), (jnp.ones(16),))
    np.testing.assert_allclose(loss.target(clean, tape), slope, rtol=1e-13)
    ends = loss.noisy(clean, tape._replace(uniform=np.repeat([0.0, 1.0], 8)))[0]
    np.testing.assert_allclose(ends[:8], tape.noise[:8], atol=1e-15)
    np.testing.assert_allclose(ends[8:], clean[8:], atol=1e-15)


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_a_diffusion_is_noised_as_diffusers_does(prediction: str) -> None:
    library = pytest.importorskip("diffusers", exc_type=ImportError)
    from wdport.uses.diffusion.scheduler_config import Scheduler

    theirs = library.DDPMScheduler(prediction_type=prediction, beta_schedule="squaredcos_cap_v2")
    noising = Scheduler(prediction_type=prediction, beta_schedule="squaredcos_cap_v2").process().noising()
    loss = DiffusionLoss(noising, (LossPart("state", 4, 1.0),))
    steps = np.array([0, 1, 17, 500, 998, 999])
    clean, tape = drawn(0, 6, (4, 4, 3))
    tape = tape._replace(uniform=(steps + 0.5) / 1000)
    with jax.enable_x64(True):
        state, time = loss.noisy(jnp.asarray(clean), tape)
        target = loss.target(jnp.asarray(clean), tape)
    assert np.array_equal(np.asarray(time), steps)
    as_torch = [torch.tensor(each) for each in (clean, tape.noise)]
    noisy = theirs.add_noise(*as_torch, torch.tensor(steps))
    np.testing.assert_allclose(
        state, noisy, rtol=1e-5, atol=1e-5
    )  # its table is float32, and 1 - alpha_bar loses digits
    if prediction == "v_prediction":
        np.testing.assert_allclose(target, theirs.get_velocity(*as_torch, torch.tensor(steps)), rtol=1e-5, atol=1e-5)
    else:
        assert np.array_equal(np.asarray(target), tape.noise if prediction == "epsilon" else clean)


def test_what_fills_the_last_batch_has_no_effect(points: Any) -> None:
    """So one program serves an epoch."""
    states = np.random.default_rng(0).normal(size=(96, 2)).astype(np.float32)
    counted = (np.arange(96) < 70).astype(np.float32)
    found = []
    for filling in (7.0, -3.0):
        states[70:] = filling
        trained = wdport.training_model(points())
        trained.compile(optimizer=Adam([{}]))
        told = trained.fit(states, counted, batch_size=32, epochs=2, shuffle=False, verbose=0)
        assert trained.train_function is not None
        found.append([told.history["loss"], *(np.asarray(each.value) for each in trained.network.trainable_variables)])
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


def test_a_users_own_flow_trains(points: Any) -> None:
    model = points()
    trained = wdport.training_model(model)
    trained.compile(optimizer=Adam([{"lr": 1e-2}]))
    given = np.random.default_rng(0).normal([4.0, -3.0], 0.1, size=(256, 2)).astype(np.float32)
    history = trained.fit(given, batch_size=64, epochs=60, verbose=0).history["loss"]
    assert history[-1] < history[0] / 3
    drawn = wdport.sample(model, 200, steps=20).points
    np.testing.assert_allclose(np.mean(drawn, axis=0), [4.0, -3.0], atol=0.4)


class Subclass(keras.Model):
    """The user's own flow, with an argument for each input."""

    def __init__(self) -> None:
        super().__init__()
        for number in (0, 2, 4):
            setattr(self, f"net_{number}", keras.layers.Dense(64, name=f"net_{number}"))
            setattr(self, f"net_{number + 1}", keras.layers.Activation("selu", name=f"net_{number + 1}"))
        self.net_6 = keras.layers.Dense(2, name="net_6")

    def call(self, x: Any, t: Any) -> Any:
        hidden = keras.ops.concatenate([x, t[:, None]], -1)
        for number in range(6):
            hidden = getattr(self, f"net_{number}")(hidden)
        return self.net_6(hidden)


def subclass() -> keras.Model:
    model = Subclass()
    model(np.zeros((1, 2)), np.zeros(1))
    return model


def test_a_subclass_trains_as_a_functional_model_does(points: Any) -> None:
    states = np.random.default_rng(0).standard_normal((64, 2)).astype(np.float32)
    wdport.convert("a.pt", "subclass.keras", mapping="flow.yaml", model=f"{__name__}:subclass")
    models = points(), wdport.load_model("subclass.keras", mapping="flow.yaml", model=f"{__name__}:subclass")
    one, other = (wdport.train(model, states, f"run{index}").losses for index, model in enumerate(models))
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no training objective that wdport knows"):
        wdport.training_model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))


def test_a_seed_determines_dropout(tmp_path: Path) -> None:
    """Keras draws the seeds of layers at random, so processes of one run would differ."""
    settings = {**SETTINGS, "dropout": "0.5"}
    file = wdport.convert(save(tmp_path / "a.ckpt", make_state(TINY)), tmp_path / "a.keras", values=settings).output
    series, losses, drawn = np.random.default_rng(0).normal(size=(40, 3)), [], []
    for folder in ("one", "other"):
        model = wdport.load_model(file)
        losses.append(wdport.train(model, series, tmp_path / folder, batch_size=8, epochs=1, seed=1).losses[0])
    assert losses[0] == losses[1]
    for seed in (1, 1, 2):
        network = wdport.training_model(wdport.load_model(file), seed=seed).network
        drawn.append([np.asarray(each.value).tolist() for each in network.non_trainable_variables
                      if str(each.dtype) == "uint32"])  # fmt: skip
    one, other, another = drawn
    assert one == other != another
    assert len({tuple(each) for each in one}) == len(one) > 10
