"""U-Nets on noise levels: converted, verified, sampled as the library's pipelines do, and exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wdport
from parity_tests.faults.random_weights import randomise
from parity_tests.faults.unet2d.examples import law
from tests.command import Cli, Refused
from tests.families.quick import few_cases
from tests.uses.unet2d.test_sampled import FIELDS, ONE_LEVEL, SIZE
from wdport.base.errors import UsageError
from wdport.cli.main import main
from wdport.uses.diffusion.noise_levels import EDM, NoiseLevels
from wdport.uses.diffusion.reference_scheduler import CONSISTENCY, SCORE_SDE
from wdport.uses.unet2d.config import Config
from wdport.uses.unet2d.family import unsampled

diffusers = pytest.importorskip("diffusers", exc_type=ImportError)

STEPS = 4
SCHEDULERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "score": ("ScoreSdeVeScheduler", {"sigma_max": 20.0}, {"time_embedding_type": "fourier"}),
    "consistency": ("CMStochasticIterativeScheduler", {}, {"num_class_embeds": 3}),
    "edm": ("EDMEulerScheduler", {"sigma_data": 0.6}, {}),
}
"""The class, its fields, and the network's."""


@pytest.fixture(scope="module", params=SCHEDULERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A folder with both, as the library saves them, and the library's objects."""
    kind, options, fields = SCHEDULERS[request.param]
    channels = {"in_channels": 3, "out_channels": 3, "num_class_embeds": None}  # pipelines draw images of three
    model = diffusers.UNet2DModel(**{**FIELDS, **ONE_LEVEL, **channels, **fields}).eval()
    randomise(model, 0, law)
    place = tmp_path_factory.mktemp(request.param) / "model"
    model.save_pretrained(place / "unet")
    scheduler = getattr(diffusers, kind)(**options)
    scheduler.save_pretrained(place / "scheduler")
    (place / "model_index.json").write_text('{"_class_name": "DiffusionPipeline"}')
    return place, model, scheduler


def library_images(model: Any, scheduler: Any, noise: list[Any], monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """What the library's pipeline draws with this noise; for EDM, which has none, its scheduler in the usual loop."""
    take = lambda *_, **__: noise.pop(0) if noise else torch.zeros(1, 3, SIZE, SIZE)  # noqa: E731
    monkeypatch.setattr(f"{type(scheduler).__module__}.randn_tensor", take)
    name = {SCORE_SDE: "ScoreSdeVePipeline", EDM: ""}.get(type(scheduler).__name__, "ConsistencyModelPipeline")
    if name:
        pipeline = getattr(diffusers, name)(unet=model, scheduler=scheduler)
        monkeypatch.setattr(f"{type(pipeline).__module__}.randn_tensor", take)
        classes = {"class_labels": [1]} if model.config.num_class_embeds else {}
        pipeline.set_progress_bar_config(disable=True)
        return np.asarray(pipeline(num_inference_steps=STEPS, output_type="np", **classes).images)
    scheduler.set_timesteps(STEPS)
    x = take() * scheduler.init_noise_sigma
    with torch.no_grad():
        for time in scheduler.timesteps:
            x = scheduler.step(model(scheduler.scale_model_input(x, time), time).sample, time, x).prev_sample
    return np.moveaxis((x / 2 + 0.5).clamp(0, 1).numpy(), 1, -1)


def test_images_are_those_of_the_librarys_pipeline(
    folder: tuple[Path, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, model, scheduler = folder
    converted = wdport.convert(place, tmp_path / "a.keras")
    found = converted.config.scheduler
    assert isinstance(found, NoiseLevels)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1 + 2 * STEPS, 1, SIZE, SIZE, 3)).astype(np.float32)
    tensors = [torch.from_numpy(np.moveaxis(each, -1, 1).copy()) for each in noise]
    expected = library_images(model, scheduler, tensors, monkeypatch)
    # The library begins with another deviation than that of data and noise together.
    start = scheduler.init_noise_sigma / (found.unit * np.sqrt(1.0 + (found.sigma_max / found.unit) ** 2))
    port = wdport.load_model(converted.output)
    slots = {"score": 2 * STEPS - 1, "consistency": STEPS - 1, "edm": 0}[place.parent.name.rstrip("0123456789")]
    more = {"labels": [1]} if model.config.num_class_embeds else {}
    samples = wdport.sample(port, init=noise[0] * start, noise=noise[1 : 1 + slots], steps=STEPS, **more)
    np.testing.assert_allclose(samples.images, expected, atol=1e-4)
    assert np.ptp(expected) > 0.5
    drawn = wdport.sample(port, 2, steps=STEPS, seed=1, **more).states
    alone = wdport.sample(port, 1, steps=STEPS, seed=1, batch=1, **more).states
    np.testing.assert_allclose(drawn[:1], alone, atol=1e-4 * np.abs(alone).max())
    if found.kind == CONSISTENCY:
        with pytest.raises(UsageError, match="training of a consistency model is not implemented"):
            wdport.training_model(port)


# All of them take a minute.
@pytest.mark.parametrize(
    "folder",
    [pytest.param(name, marks=() if name == "score" else pytest.mark.full) for name in SCHEDULERS],
    indirect=True,
)
def test_the_commands(folder: tuple[Path, Any, Any], tmp_path: Path) -> None:
    place, model, _ = folder
    output, label = tmp_path / "a.keras", ["--label", "2"] if model.config.num_class_embeds else []
    assert main(["convert", str(place), "-o", str(output)]) == 0
    with few_cases():
        assert main(["verify", str(place), str(output), "--json", str(tmp_path / "a.json")]) == 0
    gates = {gate["name"]: gate for gate in json.loads((tmp_path / "a.json").read_text())["gates"]}
    assert gates["H"]["compared"] >= 7
    words = ["sample", str(output), "-n", "2", "--steps", "3", "-o", str(tmp_path / "a.npz"), *label]
    assert main(words) == 0
    sampler = tmp_path / "a.stablehlo"
    words = ["export", str(output), "--what", "sampler", "--steps", "3", "-o", str(sampler), "--verify"]
    assert main(words) == 0
    # Of another model: a copy of the folder whose file states other levels.
    other = shutil.copytree(place, tmp_path / "other")
    file = other / "scheduler" / "scheduler_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "sigma_max": 19.0}))
    with few_cases():
        assert main(["verify", str(other), str(output)]) == 1
    if not label:
        np.save(tmp_path / "data.npy", np.random.default_rng(0).uniform(0.2, 0.8, (8, SIZE, SIZE, 3)).astype("float32"))
        words = ["train", str(tmp_path / "data.npy"), "--resume", str(output), "-o", str(tmp_path / "run")]
        assert main([*words, "--epochs", "2", "--batch-size", "4"]) == 0


@pytest.mark.parametrize(
    ("kind", "values", "fields", "says"),
    [
        (SCORE_SDE, {"correct_steps": -1}, {"time_embedding_type": "fourier"}, "correct_steps is not a whole number"),
        (SCORE_SDE, {"snrr": 0.1}, {"time_embedding_type": "fourier"}, "unknown field 'snrr' of ScoreSdeVeScheduler"),
        (
            "DDPMScheduler",
            {"variance_type": "learned"},
            {"out_channels": 4},
            "variance_type 'learned' is not supported",
        ),
    ],
)
def test_a_scheduler_with_a_wrong_value_is_not_left_out(
    kind: str, values: dict[str, Any], fields: dict[str, Any], says: str, tmp_path: Path, refused: Refused
) -> None:
    diffusers.UNet2DModel(**{**FIELDS, **ONE_LEVEL, **fields}).save_pretrained(tmp_path / "model")
    document = {"_class_name": kind, **values}
    (tmp_path / "model" / "scheduler_config.json").write_text(json.dumps(document))
    refused("convert", tmp_path / "model", "-o", tmp_path / "a.keras", code=4, says=says)


def test_known_pixels_of_a_file(tmp_path: Path, cli: Cli, refused: Refused) -> None:
    """Of a class-conditional network with a label for no class, which verify's reference does not have."""
    fields = {**FIELDS, **ONE_LEVEL, "in_channels": 3, "out_channels": 3}
    diffusers.UNet2DModel(**fields).save_pretrained(tmp_path / "model")
    diffusers.EDMEulerScheduler().save_pretrained(tmp_path / "model")
    output, image = tmp_path / "a.keras", np.full((SIZE, SIZE, 3), np.nan, np.float32)
    cli("convert", tmp_path / "model", "-o", output, "--set", "no_class=2")
    with few_cases():
        cli("verify", tmp_path / "model", output)
    image[: SIZE // 2] = 0.25
    np.save(tmp_path / "known.npy", image)
    known = ["-n", "1", "--steps", "3", "--label", "1", "--known"]
    cli("sample", output, *known, tmp_path / "known.npy", "-o", tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as drawn:
        np.testing.assert_array_equal(drawn["images"][0, : SIZE // 2], image[: SIZE // 2])
    (tmp_path / "known.csv").write_text("1,2\n")
    refused("sample", output, *known, tmp_path / "known.csv", code=3, says="save the sample, an array of 3 axes")


@pytest.mark.parametrize(
    ("changes", "scheduler", "text"),
    [
        ({"time_embedding_type": "fourier"}, EDM, "it takes noise levels, and no scheduler_config.json of ScoreSdeVe"),
        ({"time_embedding_type": "learned", "num_train_timesteps": 9}, EDM, "its learned embedding takes whole steps"),
        ({"time_embedding_type": "fourier"}, SCORE_SDE, ""),
        ({}, SCORE_SDE, ""),
    ],
)
def test_embeddings_and_schedulers_that_do_not_fit(changes: dict[str, Any], scheduler: str, text: str) -> None:
    values = {"kind": scheduler, "sigma_min": 0.1, "sigma_max": 20.0, "num_train_timesteps": 50}
    found = unsampled(Config.from_dict({**FIELDS, **changes, "scheduler": values}))
    assert found.startswith(text)
    assert bool(found) == bool(text)


@pytest.mark.full
def test_a_learned_variance_is_sampled_as_by_the_librarys_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {**FIELDS, **ONE_LEVEL, "in_channels": 3, "out_channels": 6, "num_class_embeds": None}
    model = diffusers.UNet2DModel(**fields).eval()
    randomise(model, 0, law)
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=100, variance_type="learned_range")
    place, output = tmp_path / "model", tmp_path / "a.keras"
    model.save_pretrained(place)
    scheduler.save_pretrained(place)
    assert main(["convert", str(place), "-o", str(output)]) == 0
    noise = np.random.default_rng(0).standard_normal((STEPS, 1, SIZE, SIZE, 3)).astype(np.float32)
    tensors = iter(torch.from_numpy(np.moveaxis(each, -1, 1).copy()) for each in noise)
    pipeline = diffusers.DDPMPipeline(unet=model, scheduler=scheduler)
    for module in (type(pipeline).__module__, type(scheduler).__module__):
        monkeypatch.setattr(f"{module}.randn_tensor", lambda *_, **__: next(tensors))
    pipeline.set_progress_bar_config(disable=True)
    expected = pipeline(num_inference_steps=STEPS, output_type="np").images
    port = wdport.load_model(output)
    samples = wdport.sample(port, init=noise[0], noise=noise[1:], steps=STEPS, sampler="ddpm")
    np.testing.assert_allclose(samples.images, expected, atol=1e-4)
    with few_cases():
        assert main(["verify", str(place), str(output)]) == 0
    words = ["export", str(output), "--what", "sampler", "--steps", "3", "-o", str(tmp_path / "a.stablehlo")]
    assert main([*words, "--verify"]) == 0
    with pytest.raises(UsageError, match="training of a learned variance is not implemented"):
        wdport.training_model(port)
