"""Inputs and outputs of the autoencoder, at a size suitable for comparisons in float64."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from wdport.compare.gate_bounds import Bound
from wdport.families.wan_vae.config import GROUP, Config
from wdport.model import Port, Signature
from wdport.recorder import parse_input

BOUNDS: Final[Mapping[str, Bound]] = MappingProxyType({
    "chunks": Bound(
        1e-10,
        "chunks (G): relative float64 error of latents and videos computed in chunks, and of the videos as bytes",
    ),
})  # fmt: skip
"""Measured: below 1e-14; a wrong byte is an error of 1e-4 and more."""

GROUPS: Final = 2
"""Groups of frames after the first: in the second, every layer at the latents' size sees two frames before it."""

HEIGHT, WIDTH = 2, 3
"""Size of the latents; height and width differ, so that an exchange is noticed."""


def signature(config: Config) -> Signature:
    """A video (B, C, T, H, W) of two lengths; the outputs are the mean and log-variance of its posterior, and the video
    decoded from the mean."""
    channels, frames = config.in_channels // config.patch**2, 1 + GROUP * GROUPS
    height, width = HEIGHT * config.pixels, WIDTH * config.pixels
    video = parse_input(f"video: b c={channels} t={frames}..{frames + GROUP} h={height} w={width} -> b t h w c")
    axes = "b c t h w -> b t h w c"
    outputs = tuple(Port(name, axes) for name in ("mean", "logvar", "video"))
    note = (
        f"compared at {frames} frames of {height} x {width}: the network takes any multiple of {config.pixels} pixels"
    )
    return Signature((video,), outputs, (note,))
