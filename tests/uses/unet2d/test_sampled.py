"""Sampling a U-Net: against the library's network and scheduler in the library's own loop, on one x_T and one tape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import wdport
from parity_tests.faults.random_weights import randomise
from parity_tests.faults.unet2d.examples import law
from tests.command import Cli, Refused
from tests.families.quick import few_cases, network_verdict
from wdport.base.errors import MisfitError, UsageError
from wdport.uses.diffusion.scheduler_config import Scheduler
from wdport.uses.exporting import loader
from wdport.uses.unet2d.config import Config
from wdport.uses.unet2d.family import unsampled

diffusers = pytest.importorskip("diffusers", exc_type=ImportError)

SIZE, COUNT, STEPS = 8, 3, 4
FIELDS: dict[str, Any] = {
    "sample_size": SIZE, "in_channels": 2, "out_channels": 2, "block_out_channels": (8, 16), "layers_per_block": 1,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "norm_num_groups": 4, "attention_head_dim": 4, "num_class_embeds": 3,
}  # fmt: skip
ONE_LEVEL = {"block_out_channels": (8,), "down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",),
             "add_attention": False}  # fmt: skip
LABELS = np.array([2, 0, 1])


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A pipeline's folder, with an index, and its network."""
    folder = tmp_path_factory.mktemp("pipeline")
    model = diffusers.UNet2DModel(**{**FIELDS, **ONE_LEVEL}).eval()
    randomise(model, 0, law)
    model.save_pretrained(folder / "unet")
    (folder / "model_index.json").write_text('{"_class_name": "DDPMPipeline"}')
    return folder, model


def saved(folder: Path, **fields: Any) -> Any:
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=100, beta_schedule="scaled_linear", **fields)
    scheduler.save_pretrained(folder / "scheduler")
    return scheduler


@pytest.mark.parametrize("prediction", ["sample", "v_prediction"])
def test_samples_are_the_librarys(prediction: str, pipeline: tuple[Path, Any], tmp_path: Path) -> None:
    folder, model = pipeline
    scheduler = saved(folder, prediction_type=prediction, clip_sample=prediction != "sample")
    output = wdport.convert(folder, tmp_path / "a.keras").output
    rng = np.random.default_rng(0)
    init = rng.standard_normal((COUNT, SIZE, SIZE, 2)).astype(np.float32)
    tape = rng.standard_normal((STEPS, COUNT, SIZE, SIZE, 2)).astype(np.float32)
    scheduler.set_timesteps(STEPS)
    x = torch.tensor(np.moveaxis(init, -1, 1).copy())
    with torch.no_grad():
        for t, noise in zip(scheduler.timesteps, tape, strict=True):
            made = model(x, t, torch.tensor(LABELS)).sample
            drawn = torch.tensor(np.moveaxis(noise, -1, 1).copy())
            x = scheduler.step(made, t, x, eta=0.5, variance_noise=drawn).prev_sample
    expected = np.moveaxis(x.numpy(), 1, -1)
    keras_model = wdport.load_model(output)
    given = {"init": init, "noise": tape[: STEPS - 1], "labels": LABELS}
    samples = wdport.sample(keras_model, sampler="ddim", steps=STEPS, eta=0.5, **given)
    assert np.linalg.norm(samples.states - expected) <= 2e-5 * np.linalg.norm(expected)
    np.testing.assert_allclose(samples.images, np.clip(expected / 2 + 0.5, 0, 1), atol=1e-4)


def test_guidance_is_that_of_a_loop_over_the_library(pipeline: tuple[Path, Any], tmp_path: Path) -> None:
    """Of a network that was trained with class 2 for dropped labels."""
    folder, model = pipeline
    scheduler, scale = saved(folder), 2.5
    converted = wdport.convert(folder, tmp_path / "a.keras", values={"no_class": "2"})
    init = np.random.default_rng(0).standard_normal((2, SIZE, SIZE, 2)).astype(np.float32)
    scheduler.set_timesteps(STEPS)
    x, labels = torch.tensor(np.moveaxis(init, -1, 1).copy()), torch.tensor([0, 1])
    with torch.no_grad():
        for t in scheduler.timesteps:
            plain = model(x, t, torch.full((2,), 2)).sample
            made = plain + scale * (model(x, t, labels).sample - plain)
            x = scheduler.step(made, t, x).prev_sample
    expected = np.moveaxis(x.numpy(), 1, -1)
    samples = wdport.sample(wdport.load_model(converted.output), init=init, labels=[0, 1], guidance=scale,
                            sampler="ddim", steps=STEPS)  # fmt: skip
    assert np.linalg.norm(samples.states - expected) <= 2e-5 * np.linalg.norm(expected)
    with pytest.raises(MisfitError, match="no_class 3 is not one of the labels below num_class_embeds"):
        wdport.convert(folder, tmp_path / "b.keras", values={"no_class": "3"})


def test_labels_are_dropped_in_training(pipeline: tuple[Path, Any], tmp_path: Path) -> None:
    """With a probability, and in no validation."""
    folder, _ = pipeline
    saved(folder)
    model = wdport.load_model(wdport.convert(folder, tmp_path / "a.keras", values={"no_class": "2"}).output)
    clean = np.random.default_rng(1).standard_normal((16, SIZE, SIZE, 2)).astype(np.float32)
    labels = np.array([0, 1] * 8, np.int32)
    trained = wdport.training_model(model, seed=3, drop_condition=0.5)
    first = jnp.asarray(trained.validation_key)
    key, other = jax.random.split(first)
    missing = jax.random.bernoulli(other, 0.5, (16,))
    assert 3 < missing.sum() < 13
    for training, used, seen in ((True, key, np.where(missing, 2, labels)), (False, first, labels)):
        drawn = trained.diffusion_loss.draw(used, jnp.asarray(clean))
        if not training:
            drawn = drawn._replace(uniform=(jnp.arange(16) + 0.5) / 16)
        noisy, times = trained.diffusion_loss.noisy(jnp.asarray(clean), drawn)
        by_hand = trained.diffusion_loss.errors(model((noisy, times, seen)), jnp.asarray(clean), drawn)
        found = trained((clean, labels), training=training)
        np.testing.assert_allclose(found["parts"], by_hand.parts, rtol=1e-5)
    plain = wdport.load_model(wdport.convert(folder, tmp_path / "b.keras").output)
    with pytest.raises(UsageError, match="drop_condition: the model has no value that means no condition"):
        wdport.training_model(plain, drop_condition=0.1)


def test_the_command_line(
    pipeline: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    folder, _ = pipeline
    saved(folder)
    monkeypatch.chdir(tmp_path)
    cli("convert", folder / "unet", "-o", "a.keras")
    words = ["sample", "a.keras", "-n", "3", "--label", "2,0,1", "--sampler", "ddim", "--steps", "4"]
    cli(*words, "-o", "a.npz", "--plot", "a.png")
    with np.load("a.npz") as found:
        assert found["images"].shape == found["states"].shape == (3, SIZE, SIZE, 2)
        images = found["images"]
    samples = wdport.sample(wdport.load_model("a.keras"), 3, sampler="ddim", steps=4, labels=LABELS)
    np.testing.assert_allclose(samples.images, images, atol=1e-5)
    cli(*words, "-o", "b.npz", "--label", "3", code=2)
    known = np.full((SIZE, SIZE, 2), np.nan)
    known[:4] = 0.25
    filled = wdport.sample(wdport.load_model("a.keras"), 2, sampler="ddim", steps=4, labels=1, known=known, resample=1)
    assert np.array_equal(filled.images[:, :4], np.full((2, 4, SIZE, 2), 0.25, np.float32))
    with pytest.raises(UsageError, match="known: has values up to 200, and images of the model are from 0 to 1"):
        wdport.sample(wdport.load_model("a.keras"), 2, sampler="ddim", steps=4, labels=1, known=800 * known, resample=1)


@pytest.mark.full
def test_exported_it_draws_the_same(
    pipeline: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    folder, module = pipeline
    saved(folder)
    monkeypatch.chdir(tmp_path)
    cli("convert", folder / "unet", "-o", "a.keras")
    for name, words in (("network", ()), ("sampler", ("--what", "sampler", "--sampler", "ddim", "--steps", "4"))):
        assert ", labels (b,)" in cli("export", "a.keras", *words, "-o", f"{name}.stablehlo").out
    state, decoded = loader.load("sampler.stablehlo")(5, range(3), labels=LABELS)
    wanted = wdport.sample(wdport.load_model("a.keras"), 3, sampler="ddim", steps=4, seed=5, labels=LABELS)
    np.testing.assert_allclose(state, wanted.states, atol=1e-5 * np.abs(wanted.states).max())
    np.testing.assert_allclose(decoded, wanted.images, atol=1e-5)
    x, times = np.random.default_rng(1).standard_normal((3, SIZE, SIZE, 2)).astype("f4"), np.array([7.0, 99.0, 0.0])
    with torch.no_grad():
        made = module(torch.tensor(np.moveaxis(x, -1, 1).copy()), torch.tensor(times), torch.tensor(LABELS)).sample
    found = loader.load("network.stablehlo")(x, times, LABELS)
    np.testing.assert_allclose(np.moveaxis(np.asarray(found), -1, 1), made, atol=1e-5 * float(made.abs().max()))


def test_the_scheduler_is_read_and_held(pipeline: tuple[Path, Any], tmp_path: Path, cli: Cli, refused: Refused) -> None:
    folder, _ = pipeline
    saved(folder, prediction_type="v_prediction")
    output = tmp_path / "a.safetensors"
    found = wdport.convert(folder, output).config.scheduler
    assert (found.num_train_timesteps, found.beta_schedule, found.target) == (100, "scaled_linear", "velocity")
    other = json.dumps({"prediction_type": "sample"})
    assert wdport.convert(folder, tmp_path / "b.keras", values={"scheduler": other}).config.scheduler.target == "sample"
    saved(folder, prediction_type="epsilon")
    verdict = network_verdict(folder, output)
    assert verdict.exit_code == 1
    assert any("scheduler" in str(finding) for finding in verdict.gates[0].findings)
    document = json.loads((folder / "scheduler" / "scheduler_config.json").read_text())
    (folder / "scheduler" / "scheduler_config.json").write_text(json.dumps({**document, "timestep_spacing": "log"}))
    says = "scheduler_config.json: timestep_spacing 'log' is not supported"
    refused("convert", folder, "-o", tmp_path / "c.keras", code=4, says=says)
    (folder / "scheduler" / "scheduler_config.json").unlink()
    assert wdport.convert(folder, tmp_path / "d.keras").assumed == {"scheduler": str(Scheduler())}
    cli("convert", folder, "-o", tmp_path / "e.keras", "--strict", code=4)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"time_embedding_type": "fourier"}, "it takes noise levels"),
        ({"out_channels": 6}, "it maps 2 channels to 6"),
        ({"class_embed_type": "timestep"}, "its class embedding is a timestep"),
        ({"sample_size": None}, "its sample_size is null"),
        ({"sample_size": 9}, "its sample_size is not a multiple of 2"),
        ({"scheduler": None}, "its scheduler is null"),
        ({}, ""),
    ],
)
def test_models_that_draw_no_samples(changes: dict[str, Any], text: str) -> None:
    why = unsampled(Config(**{"scheduler": Scheduler(), **FIELDS, **changes}))
    assert why.startswith(text)
    assert bool(why) == bool(text)


def test_a_folder_of_another_process_is_refused_by_name(
    pipeline: tuple[Path, Any], tmp_path: Path, cli: Cli, refused: Refused
) -> None:
    folder, _ = pipeline
    file, output = folder / "scheduler" / "scheduler_config.json", tmp_path / "b.keras"
    diffusers.DPMSolverMultistepScheduler(num_train_timesteps=100).save_pretrained(folder / "scheduler")
    printed = cli("convert", folder, "-o", tmp_path / "a.keras").out
    assert "a DPMSolverMultistepScheduler, the diffusion is read" in printed
    solver = json.loads(file.read_text())
    for change, says in (
        ({"_class_name": "FlowMatchEulerDiscreteScheduler"}, "'FlowMatchEulerDiscreteScheduler' is not supported"),
        ({"use_flow_sigmas": True}, "use_flow_sigmas True of DPMSolverMultistepScheduler is not supported"),
        ({"predction_type": "sample"}, "unknown field 'predction_type'"),
        ({"predction_type": "sample"}, "or leave sampling out: --set scheduler=null"),
    ):
        file.write_text(json.dumps({**solver, **change}))
        refused("verify", folder, tmp_path / "a.keras", code=4, says=says)
    file.write_text(json.dumps(solver))
    printed = cli("convert", folder, "-o", tmp_path / "f.keras", "--set", 'scheduler={"clip": null}').out
    assert "the given scheduler replaces all of scheduler_config.json, which has another num_train_timesteps" in printed
    cli("convert", folder, "-o", output, "--set", "scheduler=null")
    with few_cases():
        assert "ok   sampling network" not in cli("verify", folder, output, "--set", "scheduler=null").out
    refused("sample", output, "-n", "1", "-o", tmp_path / "b.npz", says="its scheduler is null")
    other = diffusers.UNet2DModel(**{**FIELDS, **ONE_LEVEL, "time_embedding_type": "fourier"})
    other.save_pretrained(tmp_path / "other")
    diffusers.FlowMatchEulerDiscreteScheduler().save_pretrained(tmp_path / "other")
    printed = cli("convert", tmp_path / "other", "-o", tmp_path / "c.keras").out
    assert "scheduler_config.json is not read: _class_name 'FlowMatch" in printed
    diffusers.DDPMScheduler().save_pretrained(tmp_path / "other")
    printed = cli("convert", tmp_path / "other", "-o", tmp_path / "d.keras").out
    assert "no samples can be drawn: it takes noise levels" in printed
    refused("convert", folder, "-o", tmp_path / "e.keras", "--set", 'scheduler={"num_train_timesteps": 0}', code=4,
            says="--set: num_train_timesteps is not a whole number")  # fmt: skip
