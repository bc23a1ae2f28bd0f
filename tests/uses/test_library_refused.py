"""What is refused of the folders that libraries save, in one line that names the field, before a model is built."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.command import Refused
from tests.uses.library_folders import Fields, Tensors
from tests.uses.masked_lm import make as masked_lm
from tests.uses.unet2d import make as unet2d
from tests.uses.wan_vae import make as wan_vae
from wdport.base.errors import MisfitError
from wdport.conversion.prepare import Settings, prepare

SMALL: dict[str, tuple[ModuleType, Fields]] = {
    "masked_lm": (masked_lm, masked_lm.SMALL), "unet2d": (unet2d, unet2d.SMALL), "wan_vae": (wan_vae, wan_vae.OLD),
}  # fmt: skip


@cache
def tensors_of(name: str) -> Tensors:
    make, fields = SMALL[name]
    tensors: Tensors = make.tensors_of(fields)
    return tensors


def folder_of(name: str, place: Path, changes: Fields) -> Path:
    """The folder of the family's small model, with changes in its ``config.json`` alone."""
    make, fields = SMALL[name]
    folder: Path = make.save(place, fields, tensors_of(name), **changes)
    return folder


REFUSED: list[tuple[str, Fields, str]] = [
    ("masked_lm", {"model_type": "llama"}, "model_type is 'llama'; eurobert is supported; other models need their own"),
    ("masked_lm", {"architectures": ["EuroBertForSequenceClassification"]}, "architectures is EuroBertForSequenceCl"),
    ("masked_lm", {"architectures": ["EuroBertModel"]}, "EuroBertForMaskedLM is supported"),
    ("masked_lm", {"sliding_window": 128}, "unknown field 'sliding_window'"),
    ("masked_lm", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling has the type 'linear'"),
    ("masked_lm", {"rope_parameters": {"rope_type": "yarn", "factor": 4}}, "rope_parameters has the type 'yarn'"),
    ("masked_lm", {"rope_parameters": {"rope_theta": 1e4, "factor": 2.0}}, "rope_parameters has 'factor'"),
    ("masked_lm", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ("masked_lm", {"rope_parameters": [1]}, "rope_parameters is not a table of values or null"),
    ("masked_lm", {"rope_theta": 0}, "rope_theta is zero"),
    ("masked_lm", {"rope_parameters": {"rope_theta": "1e4"}}, "rope_theta is not a number"),
    ("masked_lm", {"num_attention_heads": 3}, "num_attention_heads 3 does not divide hidden_size 16"),
    ("masked_lm", {"num_key_value_heads": 3}, "num_key_value_heads 3 does not divide num_attention_heads 4"),
    ("masked_lm", {"head_dim": 5}, "head_dim 5 is odd"),
    ("masked_lm", {"pad_token_id": 30}, "pad_token_id 30 is not below vocab_size 30"),
    ("masked_lm", {"rms_norm_eps": -1e-5}, "rms_norm_eps is not a number from 0"),
    ("masked_lm", {"hidden_size": 65536, "num_hidden_layers": 1000, "head_dim": 64}, "values, at most"),
    ("masked_lm", {"attention_dropout": 1.5}, "attention_dropout 1.5 is not in [0, 1)"),
    ("unet2d", {"down_block_types": ["SkipDownBlock2D", "AttnDownBlock2D"]},
     "down_block_types has 'SkipDownBlock2D', which is not supported: use DownBlock2D, "),
    ("unet2d", {"mid_block_type": "UNetMidBlock2DCrossAttn"},
     "mid_block_type 'UNetMidBlock2DCrossAttn' is not supported: use UNetMidBlock2D, null"),
    ("unet2d", {"encoder_hid_dim": 3}, "unknown field 'encoder_hid_dim'; the fields of UNet2DModel in diff"),
    ("unet2d", {"_class_name": "UNet2DConditionModel"}, "_class_name is 'UNet2DConditionModel'"),
    ("unet2d", {"norm_num_groups": 3}, "norm_num_groups 3 does not divide 8, 16"),
    ("unet2d", {"attn_norm_num_groups": 3}, "attn_norm_num_groups 3 does not divide 16 channels"),
    ("unet2d", {"attention_head_dim": 32}, "attention_head_dim 32 is more than 16 channels have"),
    ("unet2d", {"freq_shift": 4}, "freq_shift is half of block_out_channels[0]"),
    ("unet2d", {"time_embedding_type": "learned"}, "needs num_train_timesteps"),
    ("unet2d", {"mid_block_scale_factor": 0}, "mid_block_scale_factor is zero"),
    ("unet2d", {"norm_eps": -1e-5}, "norm_eps is below zero"),
    ("unet2d", {"down_block_types": ["DownBlock2D"]}, "down_block_types has 1 blocks, block_out_channels 2 values"),
    ("unet2d", {"layers_per_block": 150}, "more than 200 blocks in all"),
    ("unet2d", {"block_out_channels": [65536, 65536], "layers_per_block": 100, "norm_num_groups": 1},
     "values, at most"),
    ("wan_vae", {"_class_name": "AutoencoderKL"}, "_class_name is 'AutoencoderKL'"),
    ("wan_vae", {"attn_scales": [0.5]}, "attn_scales is not empty: the library cannot run attention"),
    ("wan_vae", {"dim_mult": [1, 1, 1, 1], "temperal_downsample": [True, True, True]},
     "halves the frames 3 times; the library's encoder, which takes 4 at a time, cannot run more"),
    ("wan_vae", {"temperal_downsample": [True, False]}, "has 2 values for 1 steps between levels of dim_mult"),
    ("wan_vae", {"dim_mult": [1], "temperal_downsample": []}, "dim_mult has 1 values, from 2 to 16 are supported"),
    ("wan_vae", {"patch_size": 2}, "in_channels 3 is not a multiple of the 4 pixels of a patch"),
    ("wan_vae", {"latents_std": [1.0, 0.0]}, "latents_std has a value that is not above zero"),
    ("wan_vae", {"dropout": 1.0}, "dropout 1.0 is not in [0, 1)"),
    ("wan_vae", {"decoder_base_dim": 1, "dim_mult": [1, 1]}, "decoder_base_dim is 1, which the steps"),
    ("wan_vae", {"is_residual": True, "dim_mult": [5, 5]}, "down block 0 cannot average 4 channels by 8 into 20"),
    ("wan_vae", {"is_residual": True, "base_dim": 1, "dim_mult": [1, 3]}, "cannot average 1 channels by 1 into 3"),
    ("wan_vae", {"base_dim": 65536, "dim_mult": [65536, 65536]}, "of about"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_a_configuration_is_refused(name: str, changes: Fields, message: str, tmp_path: Path, refused: Refused) -> None:
    folder, started = folder_of(name, tmp_path / "m", changes), time.monotonic()
    refused("convert", folder, code=4, says=message)
    assert time.monotonic() - started < 2.0
    assert not (tmp_path / "m.keras").exists()


CONTRADICTED: list[tuple[str, Fields, str]] = [
    ("masked_lm", {"vocab_size": 31}, "vocab_size is 31, but 30 in the tensors"),
    ("masked_lm", {"hidden_size": 32}, "hidden_size is 32, but 16"),
    ("masked_lm", {"intermediate_size": 24}, "intermediate_size is 24, but 20"),
    ("masked_lm", {"num_hidden_layers": 3}, "num_hidden_layers is 3, but 2"),
    ("masked_lm", {"head_dim": 8}, "num_attention_heads 4 times head_dim 8 is 32, but 16"),
    ("masked_lm", {"num_key_value_heads": 4}, "num_key_value_heads 4 times head_dim 4 is 16, but 8"),
    ("masked_lm", {"attention_bias": True}, "attention_bias is true, but false"),
    ("masked_lm", {"mlp_bias": True}, "mlp_bias is true, but false"),
    ("unet2d", {"block_out_channels": [8, 24]}, "block_out_channels is [8, 24], but [8, 16] in the tensors"),
    ("unet2d", {"in_channels": 1}, "in_channels is 1, but 3"),
    ("unet2d", {"out_channels": 6}, "out_channels is 6, but 3"),
    ("unet2d", {"time_embedding_dim": 64}, "time_embedding_dim is 64, but 32"),
    ("unet2d", {"layers_per_block": 2}, "layers_per_block is 2, but 1"),
    ("unet2d", {"resnet_time_scale_shift": "scale_shift"}, "resnet_time_scale_shift is scale_shift, but default"),
    ("unet2d", {"time_embedding_type": "fourier"}, "time_embedding_type is fourier, but positional"),
    ("unet2d", {"num_class_embeds": 10}, "num_class_embeds is 10, but null"),
    ("unet2d", {"class_embed_type": "timestep"}, "class_embed_type is timestep, but null"),
    ("unet2d", {"mid_block_type": None}, "mid_block_type is null, but UNetMidBlock2D"),
    ("unet2d", {"add_attention": False}, "add_attention is False, but True"),
    ("unet2d", {"down_block_types": ["AttnDownBlock2D"] * 2}, "down_block_types[0] has attention, but"),
    ("unet2d", {"up_block_types": ["UpBlock2D"] * 2}, "up_block_types[0] has no attention, but"),
    ("unet2d", {"down_block_types": ["ResnetDownsampleBlock2D", "AttnDownBlock2D"]},
     "down_block_types[0] ends with a resnet, but a convolution"),
    ("wan_vae", {"base_dim": 6}, "base_dim is 6, but 4 in the tensors"),
    ("wan_vae", {"z_dim": 3}, "z_dim is 3, but 2 in the tensors"),
    ("wan_vae", {"dim_mult": [2, 2]}, "is [8, 8], but [4, 8] in the tensors"),
    ("wan_vae", {"temperal_downsample": [False]}, "temperal_downsample is [false], but [true] in the tensors"),
    ("wan_vae", {"num_res_blocks": 2}, "num_res_blocks is 2, but 1 in the tensors"),
    ("wan_vae", {"is_residual": True, "dim_mult": [2, 2]}, "is_residual is true, but false in the tensors"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), CONTRADICTED)
def test_a_configuration_that_contradicts_the_tensors(name: str, changes: Fields, message: str, tmp_path: Path) -> None:
    with pytest.raises(MisfitError) as caught, prepare(folder_of(name, tmp_path / "m", changes), Settings()):
        pass
    assert message in str(caught.value)


def test_every_contradiction_is_named(tmp_path: Path) -> None:
    changes = {"in_channels": 4, "out_channels": 5, "add_attention": False}
    with pytest.raises(MisfitError) as caught, prepare(folder_of("unet2d", tmp_path / "m", changes), Settings()):
        pass
    assert [line.split(" ")[0] for line in caught.value.details] == list(changes)
