"""Small networks that together have every part, with all parameters random, for known faults."""

from __future__ import annotations

from typing import Any

import torch

from parity_tests.faults.random_weights import randomise
from wdport.models.interface import Array
from wdport.uses.diffusion.scheduler_config import Scheduler
from wdport.uses.unet2d.config import Config
from wdport.uses.unet2d.reference import LIBRARY

_SMALL: dict[str, Any] = {
    "sample_size": 8, "layers_per_block": 1, "norm_num_groups": 2, "block_out_channels": (4, 8),
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("UpBlock2D", "UpBlock2D"),
}  # fmt: skip


def examples() -> dict[str, Config]:
    """Configurations by a short description; the first is the smallest, and draws samples."""
    steps = Scheduler(num_train_timesteps=100, timestep_spacing="leading", steps_offset=1)
    return {
        "convolutions, classes": Config(
            **_SMALL, in_channels=2, out_channels=2, attention_head_dim=2, num_class_embeds=3, scheduler=steps
        ),
        "residual steps, scale_shift": Config(**{
            **_SMALL, "sample_size": (8, 12), "resnet_time_scale_shift": "scale_shift", "act_fn": "mish",
            "down_block_types": ("ResnetDownsampleBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "ResnetUpsampleBlock2D"), "attention_head_dim": 4,
            "mid_block_scale_factor": 1.5, "attn_norm_num_groups": 4, "time_embedding_type": "learned",
            "num_train_timesteps": 20, "class_embed_type": "timestep", "center_input_sample": True,
        }),
        "noise levels, padding 0": Config(**{
            **_SMALL, "time_embedding_type": "fourier", "class_embed_type": "identity", "act_fn": "gelu",
            "downsample_padding": 0, "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
            "attention_head_dim": None, "norm_eps": 1e-6, "mid_block_scale_factor": 2.0,
        }),
    }  # fmt: skip


def random_tensors(config: Config, seed: int) -> dict[str, Array]:
    """A state_dict with every parameter random, biases and norms included, float32; the frequencies of a Fourier
    embedding are kept as initialised. Raises :class:`MachineError` without diffusers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = LIBRARY.build(config.to_dict())
    return randomise(module, seed, law)


def law(name: str, parameter: torch.Tensor) -> tuple[float, float] | None:
    """Frequencies of a Fourier embedding stay."""
    if parameter.ndim > 1:
        return 0.0, parameter[0].numel() ** -0.5
    return None if name == "time_proj.weight" else (0.1, 0.3)
