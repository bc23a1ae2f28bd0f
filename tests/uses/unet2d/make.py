"""Small models of this family with every parameter random, and the folders that the library saves them to."""

from __future__ import annotations

import numpy as np

from parity_tests.faults.unet2d.examples import random_tensors
from tests.uses.library_folders import Fields, Tensors, saver
from wdport.uses.unet2d.config import Config

SMALL: Fields = {
    "sample_size": 8,
    "block_out_channels": (8, 16),
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "norm_num_groups": 4,
    "layers_per_block": 1,
}

VARIANTS: dict[str, Fields] = {
    "as published": {"downsample_padding": 0, "attention_head_dim": None, "norm_eps": 1e-6, "freq_shift": 1,
                     "flip_sin_to_cos": False, "act_fn": "swish", "sample_size": 8},
    "resnets change the size, scale_shift": {
        "down_block_types": ("ResnetDownsampleBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UNetResResnetUpsampleBlock2D"),
        "resnet_time_scale_shift": "scale_shift", "act_fn": "mish",
    },
    "attention at every size": {
        "block_out_channels": (8, 16, 16), "down_block_types": ("AttnDownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UNetResUpBlock2D", "AttnUpBlock2D"), "downsample_type": "resnet",
        "upsample_type": "resnet", "downsample_padding": 0, "attention_head_dim": 3, "act_fn": "GELU",
        "norm_eps": 1e-3, "mid_block_scale_factor": 1.5, "attn_norm_num_groups": 8, "sample_size": (8, 12),
    },
    "fourier, classes by timestep": {
        "time_embedding_type": "fourier", "class_embed_type": "timestep", "act_fn": "relu", "sample_size": None,
    },
    "learned, a table of classes": {
        "time_embedding_type": "learned", "num_train_timesteps": 50, "num_class_embeds": 7,
        "center_input_sample": True, "add_attention": False,
    },
    "one block, odd sizes, no middle": {
        "block_out_channels": (9,), "down_block_types": ("DownBlock2D",), "up_block_types": ("AttnUpBlock2D",),
        "norm_num_groups": 3, "attention_head_dim": 2, "mid_block_type": None, "class_embed_type": "identity",
        "sample_size": (7, 9), "time_embedding_dim": 12, "in_channels": 2, "out_channels": 5, "dropout": 0.2,
        "layers_per_block": 2,
    },
}  # fmt: skip
"""Fields beside those of :data:`SMALL`; between them every block and switch."""


def fields_of(name: str) -> Fields:
    """All that is told of a variant."""
    return {**SMALL, **VARIANTS[name]}


def random_fields(seed: int) -> Fields:
    """A small network that the library builds and runs, drawn from all that the family has."""
    rng = np.random.default_rng([seed, 2718])
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    levels = int(rng.integers(1, 4))
    groups = int(pick(2, 3, 4))
    channels = tuple(groups * int(pick(2, 3)) for _ in range(levels))  # a relu of few channels may be zero everywhere
    size = [2 ** (levels - 1) * int(rng.integers(2, 5)) for _ in range(2)]
    time, classes = pick("positional", "positional", "fourier", "learned"), pick(None, "table", "timestep", "identity")
    return {
        "sample_size": size, "in_channels": int(rng.integers(1, 5)), "out_channels": int(rng.integers(1, 5)),
        "center_input_sample": pick(False, True), "time_embedding_type": time,
        "time_embedding_dim": pick(None, 10), "freq_shift": pick(0, 0.5), "flip_sin_to_cos": pick(True, False),
        "down_block_types": [pick("DownBlock2D", "AttnDownBlock2D", "ResnetDownsampleBlock2D") for _ in channels],
        "up_block_types": [pick("UpBlock2D", "AttnUpBlock2D", "ResnetUpsampleBlock2D") for _ in channels],
        "mid_block_type": pick("UNetMidBlock2D", "UNetMidBlock2D", None), "block_out_channels": channels,
        "layers_per_block": int(pick(1, 2)), "mid_block_scale_factor": pick(1, 1.25),
        "downsample_padding": pick(0, 1), "downsample_type": pick("conv", "resnet"),
        "upsample_type": pick("conv", "resnet"), "act_fn": pick("silu", "swish", "mish", "gelu", "relu"),
        "attention_head_dim": pick(None, 1, 2), "norm_num_groups": groups,
        "attn_norm_num_groups": pick(None, 1), "norm_eps": pick(1e-5, 1e-6, 1e-2),
        "resnet_time_scale_shift": pick("default", "scale_shift"), "add_attention": pick(True, True, False),
        "class_embed_type": None if classes == "table" else classes,
        "num_class_embeds": 5 if classes == "table" else None,
        "num_train_timesteps": 20 if time == "learned" else None,
    }  # fmt: skip


def tensors_of(fields: Fields, seed: int = 0) -> Tensors:
    """A random state_dict."""
    return random_tensors(Config.from_dict(fields), seed)


save = saver("diffusion_pytorch_model.safetensors", tensors_of, _class_name="UNet2DModel",
             _diffusers_version="0.42.1")  # fmt: skip
