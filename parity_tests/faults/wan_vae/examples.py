"""Small autoencoders that together have every part, with all parameters random, for known faults."""

from __future__ import annotations

import torch

from parity_tests.faults.random_weights import randomise
from wdport.models.interface import Array
from wdport.uses.wan_vae.config import Config
from wdport.uses.wan_vae.reference import LIBRARY


def examples() -> dict[str, Config]:
    """Configurations by a short description; the first is the smallest."""
    return {
        "Wan 2.1": Config(base_dim=4, z_dim=2, dim_mult=(1, 2), num_res_blocks=1, temperal_downsample=(True,),
                          latents_mean=(0.1, -0.2), latents_std=(2.0, 0.5)),
        "Wan 2.2": Config(base_dim=4, decoder_base_dim=6, z_dim=3, dim_mult=(1, 2, 2), num_res_blocks=1,
                          temperal_downsample=(False, True), is_residual=True, patch_size=2, in_channels=12,
                          out_channels=12),
    }  # fmt: skip


def random_tensors(config: Config, seed: int) -> dict[str, Array]:
    """A state_dict with every parameter random, biases and scales included, float32, whose video is not clipped at
    more than a few pixels. Raises :class:`MachineError` without diffusers."""
    return randomise(LIBRARY.build(config.to_dict()), seed, _law)


def _law(name: str, parameter: torch.Tensor) -> tuple[float, float]:
    single = parameter.ndim == 1 or name.endswith("gamma")
    centre = 0.0 if not single else 0.7 if name.endswith("gamma") else 0.1
    spread = 0.3 if single else parameter[0].numel() ** -0.5
    return (centre * 0.3, spread * 0.3) if name.startswith("decoder.conv_out") else (centre, spread)
