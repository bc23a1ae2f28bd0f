"""Small autoencoders with every parameter random, and the folders that the library saves them to."""

from __future__ import annotations

import numpy as np

from parity_tests.faults.wan_vae.examples import random_tensors
from tests.uses.library_folders import Fields, Tensors, saver
from wdport.uses.wan_vae.config import Config

OLD: Fields = {"base_dim": 4, "z_dim": 2, "dim_mult": [1, 2], "num_res_blocks": 1, "temperal_downsample": [True],
               "latents_mean": [0.1, -0.2], "latents_std": [2.0, 0.5]}  # fmt: skip
"""Of the kind of Wan 2.1."""

NEW: Fields = {**OLD, "dim_mult": [1, 2, 2], "temperal_downsample": [False, True], "is_residual": True,
               "decoder_base_dim": 6, "patch_size": 2, "in_channels": 12, "out_channels": 12}  # fmt: skip
"""Of the kind of Wan 2.2."""

VARIANTS: dict[str, Fields] = {
    "Wan 2.1": OLD,
    "Wan 2.1, frames halved twice": {**OLD, "dim_mult": [1, 2, 2, 1], "temperal_downsample": [False, True, True],
                                     "decoder_base_dim": 6},
    "Wan 2.1, frames kept": {**OLD, "temperal_downsample": [False], "num_res_blocks": 2, "in_channels": 1,
                             "out_channels": 2, "dropout": 0.1},
    "Wan 2.2": NEW,
    "Wan 2.2, frames halved twice": {**NEW, "dim_mult": [1, 2, 2], "temperal_downsample": [True, True],
                                     "decoder_base_dim": None},
    "Wan 2.2, no patches": {**NEW, "dim_mult": [1, 1], "temperal_downsample": [True], "patch_size": None,
                            "in_channels": 3, "out_channels": 3},
}  # fmt: skip


def random_fields(seed: int) -> Fields:
    """A small autoencoder that the library builds and runs, drawn from all that the family has."""
    rng = np.random.default_rng([seed, 3141])
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    residual, levels = bool(rng.integers(2)), int(rng.integers(2, 4))
    widths = [int(pick(1, 2)) for _ in range(levels)]
    if residual:  # the last block averages without becoming smaller
        widths[-1] = widths[-2]
    steps = [bool(rng.integers(2)) for _ in range(levels - 1)]
    patch = pick(None, 1, 2, 3) if residual else pick(None, 2)
    pixels = (patch or 1) ** 2
    return {
        "base_dim": int(pick(3, 4, 6)), "decoder_base_dim": pick(None, 4, 6), "z_dim": int(rng.integers(1, 5)),
        "dim_mult": widths, "num_res_blocks": int(pick(1, 2)),
        "temperal_downsample": steps, "is_residual": residual, "patch_size": patch,
        "in_channels": int(pick(1, 3)) * pixels, "out_channels": int(pick(2, 3)) * pixels,
    }  # fmt: skip


def tensors_of(fields: Fields, seed: int = 0) -> Tensors:
    """A random state_dict."""
    return random_tensors(Config.from_dict(fields), seed)


save = saver("diffusion_pytorch_model.safetensors", tensors_of, _class_name="AutoencoderKLWan",
             _diffusers_version="0.42.1")  # fmt: skip
