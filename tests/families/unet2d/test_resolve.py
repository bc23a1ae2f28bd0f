"""What of a folder is read and what is refused, in one line that names the field."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

import wdport
from tests.families.unet2d.make import SMALL, Fields, save, tensors_of
from wdport.cli.main import main
from wdport.conversion.prepare import Settings, prepare
from wdport.diffusion.scheduler import Scheduler
from wdport.errors import MisfitError
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.family import FAMILY

REFUSED: dict[str, tuple[Fields, str]] = {
    "skip blocks": (
        {"down_block_types": ["SkipDownBlock2D", "AttnDownBlock2D"]},
        "down_block_types has 'SkipDownBlock2D', which is not supported: use DownBlock2D, ",
    ),
    "mid block": (
        {"mid_block_type": "UNetMidBlock2DCrossAttn"},
        "mid_block_type 'UNetMidBlock2DCrossAttn' is not supported: use UNetMidBlock2D, null",
    ),
    "unknown": ({"encoder_hid_dim": 3}, "unknown field 'encoder_hid_dim'"),
    "other class": ({"_class_name": "UNet2DConditionModel"}, "_class_name is 'UNet2DConditionModel'"),
    "groups": ({"norm_num_groups": 3}, "norm_num_groups 3 does not divide 8, 16"),
    "middle's groups": ({"attn_norm_num_groups": 3}, "attn_norm_num_groups 3 does not divide 16 channels"),
    "head": ({"attention_head_dim": 32}, "attention_head_dim 32 is more than 16 channels have"),
    "frequencies": ({"freq_shift": 4}, "freq_shift is half of block_out_channels[0]"),
    "learned": ({"time_embedding_type": "learned"}, "needs num_train_timesteps"),
    "factor": ({"mid_block_scale_factor": 0}, "mid_block_scale_factor is zero"),
    "epsilon": ({"norm_eps": -1e-5}, "norm_eps is below zero"),
    "blocks": ({"down_block_types": ["DownBlock2D"]}, "down_block_types has 1 blocks, block_out_channels 2 values"),
    "many layers": ({"layers_per_block": 150}, "more than 200 blocks in all"),
    "values": (
        {"block_out_channels": [65536, 65536], "layers_per_block": 100, "norm_num_groups": 1},
        "values, at most",
    ),
}


@pytest.fixture(scope="module")
def tensors() -> dict:
    return tensors_of(SMALL)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path, tensors: dict, capsys: pytest.CaptureFixture[str]) -> None:
    fields, message = REFUSED[name]
    folder, started = save(tmp_path / "m", SMALL, tensors, **fields), time.monotonic()
    assert main(["convert", str(folder)]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said
    assert time.monotonic() - started < 2.0
    assert not (tmp_path / "m.keras").exists()


CONTRADICTED: dict[str, tuple[Fields, str]] = {
    "channels": ({"block_out_channels": [8, 24]}, "block_out_channels is [8, 24], but [8, 16] in the tensors"),
    "inputs": ({"in_channels": 1}, "in_channels is 1, but 3"),
    "outputs": ({"out_channels": 6}, "out_channels is 6, but 3"),
    "time": ({"time_embedding_dim": 64}, "time_embedding_dim is 64, but 32"),
    "layers": ({"layers_per_block": 2}, "layers_per_block is 2, but 1"),
    "scale": ({"resnet_time_scale_shift": "scale_shift"}, "resnet_time_scale_shift is scale_shift, but default"),
    "fourier": ({"time_embedding_type": "fourier"}, "time_embedding_type is fourier, but positional"),
    "classes": ({"num_class_embeds": 10}, "num_class_embeds is 10, but null"),
    "class times": ({"class_embed_type": "timestep"}, "class_embed_type is timestep, but null"),
    "no middle": ({"mid_block_type": None}, "mid_block_type is null, but UNetMidBlock2D"),
    "middle": ({"add_attention": False}, "add_attention is False, but True"),
    "attention": ({"down_block_types": ["AttnDownBlock2D"] * 2}, "down_block_types[0] has attention, but"),
    "no attention": ({"up_block_types": ["UpBlock2D"] * 2}, "up_block_types[0] has no attention, but"),
    "step": (
        {"down_block_types": ["ResnetDownsampleBlock2D", "AttnDownBlock2D"]},
        "down_block_types[0] ends with a resnet, but a convolution",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTED)
def test_contradicted_by_the_tensors(name: str, tmp_path: Path, tensors: dict) -> None:
    fields, message = CONTRADICTED[name]
    with pytest.raises(MisfitError) as caught, prepare(save(tmp_path / "m", SMALL, tensors, **fields), Settings()):
        pass
    assert caught.value.details[0].startswith(message)


def test_every_contradiction_is_named(tmp_path: Path, tensors: dict) -> None:
    folder = save(tmp_path / "m", SMALL, tensors, in_channels=4, out_channels=5, add_attention=False)
    with pytest.raises(MisfitError) as caught, prepare(folder, Settings()):
        pass
    assert [line.split(" ")[0] for line in caught.value.details] == ["in_channels", "out_channels", "add_attention"]


def test_defaults_are_the_librarys() -> None:
    diffusers = pytest.importorskip("diffusers", exc_type=ImportError)
    theirs = dict(diffusers.UNet2DModel(**SMALL).config)
    absent = {name: value for name, value in theirs.items() if name not in SMALL and name[0] != "_"}
    ours = Config.from_dict(SMALL).to_dict()
    assert {name: ours[name] for name in absent} == absent


def test_origins_and_what_a_user_says(tmp_path: Path, tensors: dict) -> None:
    folder = save(tmp_path / "m", SMALL, tensors)
    (tmp_path / "more.yaml").write_text("act_fn: mish\nnorm_eps: 0.001\n")
    settings = Settings(config=tmp_path / "more.yaml", values={"norm_eps": "1e-06", "attention_head_dim": "null"})
    with prepare(folder, settings) as prepared:
        origins, config = prepared.resolved.origins, prepared.config
    assert (config.act_fn, config.norm_eps, config.attention_head_dim) == ("mish", 1e-6, None)
    told = [origins[name] for name in ("act_fn", "norm_eps", "layers_per_block", "freq_shift")]
    assert told == ["config", "flag", "config.json", "default"]


def test_a_lone_file_needs_its_configuration(tmp_path: Path, tensors: dict) -> None:
    folder = save(tmp_path / "m", SMALL, tensors)
    told = tmp_path / "told.json"
    (folder / "config.json").rename(told)
    file = folder / "diffusion_pytorch_model.safetensors"
    with pytest.raises(MisfitError, match=r"there is no config.json with .*config="):
        wdport.convert(file, tmp_path / "out.keras")
    assert wdport.convert(file, tmp_path / "out.keras", config=told).config == replace(
        Config.from_dict(SMALL), scheduler=Scheduler()
    )


def test_a_series_option_is_refused(tmp_path: Path, tensors: dict) -> None:
    statistics = tmp_path / "stats.json"
    statistics.write_text(json.dumps({"mean": [0.0], "std": [1.0]}))
    with pytest.raises(MisfitError, match="no series to normalise"):
        wdport.convert(save(tmp_path / "m", SMALL, tensors), norm_stats=statistics)


def test_notes_say_what_is_not_used(tmp_path: Path) -> None:
    fields = {**SMALL, "class_embed_type": "timestep", "num_class_embeds": 3, "dropout": 0.5}
    notes = wdport.convert(save(tmp_path / "m", fields)).manifest["notes"]
    assert [note.split(" ")[0] for note in notes] == ["num_class_embeds", "dropout"]


@pytest.mark.parametrize(
    ("size", "size_of_comparison", "word"),
    [(8, (8, 8), None), ((8, 12), (8, 12), None), (None, (16, 16), "null"), (256, (16, 16), "convolutional"),
     (64, (64, 64), None), (9, (16, 16), "not a multiple of 2"), ((128, 8), (16, 8), "128 x 8")],
)  # fmt: skip
def test_sizes_of_the_comparison(size: object, size_of_comparison: tuple[int, int], word: str | None) -> None:
    signature = FAMILY.signature(Config.from_dict({**SMALL, "sample_size": size}))
    assert signature.inputs[0].shape(2) == (2, 3, *size_of_comparison)
    assert [word in note for note in signature.notes] == ([] if word is None else [True])
