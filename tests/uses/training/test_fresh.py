"""New models: sizes and weights as in the public training script, or as the library's class begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import wdport
from tests.checkpoint.forge import GOLDEN
from tests.uses.masked_lm import make as eurobert
from wdport.base.errors import InputError, MisfitError, UsageError, WdportError
from wdport.checkpoint import open_checkpoint
from wdport.cli.main import main
from wdport.models.keras_runtime import variables_by_path
from wdport.uses.training.initial import is_library_configuration, save_initial_model
from wdport.uses.training.model import recipe_of
from wdport.uses.waveletdiff.config import Config

SERIES = np.random.default_rng(0).normal([5.0, 0.0, -2.0], [3.0, 1.0, 0.1], size=(200, 3))
TEXT = """
model: {embed_dim: 32, num_heads: 4, num_layers: 1, time_embed_dim: 16}
dataset: {seq_len: 24}
wavelet: {type: auto, levels: auto}
optimizer: {lr: 0.0002, scheduler_type: onecycle}
training: {epochs: 3, batch_size: 256}
energy: {weight: 0.1}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    return path


def values(seed: int, config: Path, dtype: str | None = None) -> dict[str, np.ndarray]:
    made = wdport.new_model(config, SERIES, seed=seed, dtype=dtype)
    return {name: np.asarray(variable.value) for name, variable in variables_by_path(made).items()}


def test_sizes_come_from_the_configuration_and_the_data(config: Path) -> None:
    made = wdport.new_model(config, SERIES).config
    assert isinstance(made, Config)
    assert made.level_lengths == (5, 5, 8, 13)
    assert (made.features, made.embed_dim, made.num_heads, made.num_layers) == (3, 32, 4, 1)
    np.testing.assert_allclose([made.norm_mean, made.norm_std], [SERIES.mean(0), SERIES.std(0)], rtol=1e-12)
    long = wdport.new_model(config, SERIES, values={"seq_len": "64", "wavelet": "db4", "num_heads": "2"}).config
    assert long.level_lengths == (14, 14, 21, 35)
    assert long.num_heads == 2
    told = recipe_of(config)
    assert (told.epochs, told.batch_size, told.learning_rate, told.schedule) == (3, 256, 0.0002, "onecycle")
    assert (told.energy, told.weight_decay) == (0.1, None)


def test_seeds_give_weights_and_leave_numpys_generator(config: Path) -> None:
    np.random.seed(7)
    wanted = np.random.random()
    np.random.seed(7)
    one, again, other, mixed = (values(*each) for each in ((0, config), (0, config), (1, config),
                                                           (0, config, "mixed_bfloat16")))  # fmt: skip
    assert np.random.random() == wanted
    assert all(np.array_equal(one[name], again[name]) and np.array_equal(one[name], mixed[name]) for name in one)
    assert not np.array_equal(one["level_0/input_proj/kernel"], other["level_0/input_proj/kernel"])


def test_weights_have_torchs_distribution(config: Path) -> None:
    """Against `torch.nn.init` on matrices of PyTorch's shapes; packed projections as one matrix."""
    found = values(3, config)
    width = found["level_0/block_0/mlp/hidden/kernel"].shape[0]
    torch.manual_seed(0)
    packed = torch.nn.init.xavier_uniform_(torch.empty(3 * width, width)).numpy()
    query = found["level_0/block_0/attention/query/kernel"]
    hidden = found["level_0/block_0/mlp/hidden/kernel"]
    wide = torch.nn.init.xavier_uniform_(torch.empty(hidden.shape[1], width)).numpy()
    for ours, torchs in ((query, packed), (hidden, wide)):
        np.testing.assert_allclose(np.abs(ours).max(), np.abs(torchs).max(), rtol=0.02)
        np.testing.assert_allclose(ours.std(), torchs.std(), rtol=0.05)
        assert abs(ours.mean()) < 4 * torchs.std() / np.sqrt(ours.size)
    rows = found["cross_level/level_position_embeddings"]
    np.testing.assert_allclose(np.linalg.norm(rows, axis=-1), 1.0, rtol=1e-5)
    biases = [value for name, value in found.items() if name.endswith("/bias")]
    assert biases
    assert not any(value.any() for value in biases)


def test_wrong_configurations(config: Path, tmp_path: Path) -> None:
    def refused(text: str, error: type[Exception], message: str) -> None:
        config.write_text(text)
        with pytest.raises(error, match=message):
            wdport.new_model(config, SERIES)

    refused("model: {embed_dim: 32}\n", MisfitError, r"dataset\.seq_len: is missing; give the length of a window")
    refused("model: {embed_dim: 33, num_heads: 4}\ndataset: {seq_len: 24}\n", MisfitError, "does not divide embed_dim")
    deep = "wavelet: {type: db2, levels: 1000000000}\ndataset: {seq_len: 24}\n"  # a loop over them would not end
    refused(deep, MisfitError, "levels is 1000000000, at most 63 are supported")
    refused("model: {embed_dmi: 33}\n", MisfitError, r"model\.embed_dmi: no such setting")
    refused("- 3\n", MisfitError, r"config\.yaml: is not a mapping of sections")
    with pytest.raises(InputError, match="no such file"):
        wdport.new_model(tmp_path / "none.yaml", SERIES)
    numbered: dict[Any, Any] = {1: "2"}  # names that are not text
    with pytest.raises(MisfitError, match=r"config: model\.1: no such setting"):
        wdport.new_model({"model": numbered}, SERIES)
    with pytest.raises(UsageError, match="unknown name '1'"):
        wdport.new_model({"dataset": {"seq_len": 24}}, SERIES, values=numbered)


@pytest.mark.full
@pytest.mark.skipif(not GOLDEN.is_dir(), reason="needs the shared data")
@pytest.mark.parametrize("name", ["etth1-seq24-db2", "exchange-seq24-qknorm"])
def test_a_real_configuration_has_the_sizes_of_its_checkpoint(name: str, tmp_path: Path) -> None:
    settings = GOLDEN / f"{name}.config.yaml"
    wanted = wdport.convert(GOLDEN / f"{name}.ckpt", tmp_path / "a.keras", config=settings).config
    made = wdport.new_model(settings, np.random.default_rng(0).normal(size=(200, wanted.features))).config
    for field in ("level_lengths", "features", "embed_dim", "num_layers", "time_embed_dim", "wavelet", "num_heads",
                  "prediction_target", "noise_schedule"):  # fmt: skip
        assert getattr(made, field) == getattr(wanted, field), field


UNET = {
    "_class_name": "UNet2DModel", "sample_size": 8, "in_channels": 1, "out_channels": 1, "layers_per_block": 1,
    "block_out_channels": [8, 16], "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
    "up_block_types": ["AttnUpBlock2D", "UpBlock2D"], "norm_num_groups": 4, "num_class_embeds": 3,
}  # fmt: skip
SCHEDULER = {"_class_name": "DDPMScheduler", "num_train_timesteps": 40, "beta_schedule": "squaredcos_cap_v2"}
BERT = {"model_type": "eurobert", **eurobert.fields_of("tied")}


def library_model(name: str) -> Any:
    if name == "unet":
        return diffusers.UNet2DModel.from_config(UNET)
    return transformers.EuroBertForMaskedLM(transformers.EuroBertConfig.from_dict(BERT))


@pytest.mark.parametrize(("name", "document"), [("unet", UNET), ("bert", BERT)])
def test_the_weights_are_those_of_the_library(name: str, document: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(document))
    before = torch.random.get_rng_state()
    save_initial_model(config, 7, tmp_path / "new")
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        expected = library_model(name).state_dict()
    with open_checkpoint(tmp_path / "new") as saved:
        assert set(saved.tensors) == set(expected)
        for key, tensor in expected.items():
            assert np.array_equal(saved.read(key), tensor.numpy()), key


@pytest.mark.full
def test_a_unet_is_trained_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text(json.dumps(UNET))
    (tmp_path / "unet" / "scheduler_config.json").write_text(json.dumps(SCHEDULER))
    pixels, labels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), dtype=np.uint8), np.array([0, 1, 2] * 2)
    np.save(tmp_path / "images.npy", (pixels / 127.5 - 1.0).astype("float32"))
    np.save(tmp_path / "labels.npy", labels)
    for index, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        (tmp_path / "images" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0]).save(tmp_path / "images" / str(label) / f"{index}.png")
    options = ["--config", str(tmp_path / "unet"), "--batch-size", "4", "--min-snr", "5", "-o"]
    arrays = [str(tmp_path / "images.npy"), "--condition", str(tmp_path / "labels.npy")]
    losses = []
    for name, data in (("run", arrays), ("folder", [str(tmp_path / "images")])):
        assert main(["train", *data, *options, str(tmp_path / name)]) == 0
        assert "2 steps in 1 epochs" in capsys.readouterr().out
        losses.append((tmp_path / name / "metrics.csv").read_text().splitlines()[1].split(",")[2])
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    new = {path: np.asarray(variable.value) for path, variable in
           variables_by_path(wdport.new_model(tmp_path / "unet", seed=7)).items()}  # fmt: skip
    run = [*options[:-1], "--epochs", "1", "--seed", "7", "--lr", "1e-30", "--weight-decay", "0", "-o"]
    assert main(["train", *arrays, *run, str(tmp_path / "still")]) == 0
    still = variables_by_path(wdport.load_model(tmp_path / "still" / "model.keras"))
    assert all(np.allclose(new[path], variable.value, rtol=0, atol=1e-20) for path, variable in still.items())
    with pytest.raises(UsageError, match="data: does not determine anything of this model; leave it out"):
        wdport.new_model(tmp_path / "unet", "series.csv")
    assert main(["train", str(tmp_path / "images"), *options, str(tmp_path / "many"), "--set", "no_class=2"]) == 2
    assert "has 3 folders of classes, and the label 2 means no class" in capsys.readouterr().err
    trained = wdport.load_model(tmp_path / "run" / "model.keras")
    assert wdport.sample(trained, 2, sampler="ddim", steps=4, labels=[0, 1]).states.shape == (2, 8, 8, 1)


@pytest.mark.parametrize(("document", "message"), [
    ({"a": 1}, "states no class that wdport can create"),
    ({**BERT, "hidden_sizes": 3}, r"unknown field 'hidden_sizes'; did you mean hidden_size\?"),
    ({**BERT, "hidden_size": 30}, "config.json: transformers rejects it"),
    ({**UNET, "down_block_types": ["DownBlock2D"]}, "config.json: diffusers rejects it"),
])  # fmt: skip
def test_what_the_library_does_not_create_is_refused(document: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(document))
    with pytest.raises(WdportError, match=message):
        save_initial_model(config, 0, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_training_configuration_is_not_taken_for_a_librarys(tmp_path: Path) -> None:
    assert is_library_configuration(str(tmp_path))
    assert is_library_configuration("config.json")
    assert not is_library_configuration("config.yaml")
    assert not is_library_configuration(None)
