"""New models of a library's class begin with the weights that the library gives them."""

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
from tests.families.masked_lm import make as eurobert
from wdport.checkpoint import open_checkpoint
from wdport.cli.main import main
from wdport.errors import WdportError
from wdport.training.initial import is_library_configuration, save_initial_model

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
    options = ["--config", str(tmp_path / "unet"), "--batch-size", "4", "-o"]
    arrays = [str(tmp_path / "images.npy"), "--condition", str(tmp_path / "labels.npy")]
    losses = []
    for name, data in (("run", arrays), ("folder", [str(tmp_path / "images")])):
        assert main(["train", *data, *options, str(tmp_path / name)]) == 0
        assert "2 steps in 1 epochs" in capsys.readouterr().out
        losses.append((tmp_path / name / "metrics.csv").read_text().splitlines()[1].split(",")[2])
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    trained = wdport.load_model(tmp_path / "run" / "model.keras")
    assert wdport.sample(trained, 2, sampler="ddim", steps=4, labels=[0, 1]).states.shape == (2, 8, 8, 1)


@pytest.mark.parametrize(("document", "message"), [
    ({"a": 1}, "states no class that wdport can create"),
    ({**BERT, "hidden_sizes": 3}, "unknown field 'hidden_sizes'"),
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
