"""What of a folder is read and what is refused, in one line that names the field."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.families.wan_vae.make import NEW, OLD, Fields, save, tensors_of
from wdport.cli.main import main
from wdport.conversion.prepare import Settings, prepare
from wdport.errors import MisfitError
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.family import FAMILY

REFUSED: dict[str, tuple[Fields, str]] = {
    "attention": ({"attn_scales": [0.5]}, "attn_scales is not empty: the library cannot run attention"),
    "eight frames": ({"dim_mult": [1, 1, 1, 1], "temperal_downsample": [True, True, True]},
                     "halves the frames 3 times; the library's encoder, which takes 4 at a time, cannot run more"),
    "too many steps": ({"temperal_downsample": [True, False]}, "has 2 values for 1 steps between levels of dim_mult"),
    "one level": ({"dim_mult": [1], "temperal_downsample": []}, "dim_mult has 1 values, from 2 to 16 are supported"),
    "patches": ({"patch_size": 2}, "in_channels 3 is not a multiple of the 4 pixels of a patch"),
    "deviation": ({"latents_std": [1.0, 0.0]}, "latents_std has a value that is not above zero"),
    "dropout": ({"dropout": 1.0}, "dropout 1.0 is not in [0, 1)"),
    "halved channels": ({"decoder_base_dim": 1, "dim_mult": [1, 1]}, "decoder_base_dim is 1, which the steps"),
    "averages": ({"is_residual": True, "dim_mult": [5, 5]}, "down block 0 cannot average 4 channels by 8 into 20"),
    "copies": ({"is_residual": True, "base_dim": 1, "dim_mult": [1, 3]},
               "cannot average 1 channels by 1 into 3"),
    "huge": ({"base_dim": 65536, "dim_mult": [65536, 65536]}, "of about"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name: str) -> None:
    fields, words = REFUSED[name]
    with pytest.raises(ValueError, match=r".") as error:
        FAMILY.load_config({**OLD, **fields})
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_command_line_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(save(tmp_path / "m", OLD, attn_scales=[1.0]))]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "attn_scales" in said
    assert main(["convert", str(save(tmp_path / "n", OLD, _class_name="AutoencoderKL"))]) == 4
    assert "_class_name is 'AutoencoderKL'" in capsys.readouterr().err


WRONG: dict[str, tuple[Fields, str]] = {
    "base_dim": ({"base_dim": 6}, "base_dim is 6, but 4 in the tensors"),
    "z_dim": ({"z_dim": 3}, "z_dim is 3, but 2 in the tensors"),
    "dim_mult": ({"dim_mult": [2, 2]}, "is [8, 8], but [4, 8] in the tensors"),
    "steps": ({"temperal_downsample": [False]}, "temperal_downsample is [false], but [true] in the tensors"),
    "blocks": ({"num_res_blocks": 2}, "num_res_blocks is 2, but 1 in the tensors"),
    "kind": ({"is_residual": True, "dim_mult": [2, 2]}, "is_residual is true, but false in the tensors"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_configuration_that_contradicts_the_tensors(name: str, tmp_path: Path) -> None:
    fields, words = WRONG[name]
    folder = save(tmp_path / "m", OLD, tensors_of(OLD), **fields)
    with pytest.raises(MisfitError, match="in the tensors") as error, prepare(folder, Settings()):
        pass
    assert words in str(error.value)


def test_what_is_read_and_noted(tmp_path: Path) -> None:
    folder = save(tmp_path / "m", {**NEW, "z_dim": 3}, dropout=0.1)
    with prepare(folder, Settings()) as prepared:
        assert prepared.config == Config.from_dict({**NEW, "z_dim": 3, "dropout": 0.1})
        assert "latents cannot be normalised" in " ".join(prepared.resolved.notes)
        assert prepared.resolved.origins["dropout"] == "config.json"
        assert prepared.resolved.origins["attn_scales"] == "default"


def test_published_models() -> None:
    """The configurations of Wan 2.1 and Wan 2.2, with as many parameters as the library's models have."""
    old = Config()
    new = Config(base_dim=160, decoder_base_dim=256, z_dim=48, is_residual=True, in_channels=12, out_channels=12,
                 patch_size=2, scale_factor_spatial=16)  # fmt: skip
    sizes = [sum(math.prod(shape) for shape in FAMILY.variables(each).values()) for each in (old, new)]
    assert sizes == [126_892_531, 704_688_668]
    assert [(each.frames, each.pixels) for each in (old, new)] == [(4, 8), (4, 16)]
