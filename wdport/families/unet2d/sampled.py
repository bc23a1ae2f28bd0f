"""What sampling needs to know about a UNet2DModel: images are diffused in [-1, 1], and returned in [0, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wdport.families.unet2d.config import Config, down_stages
from wdport.model import Array, ArrayNames, Decoding, Diffused, labels_of

if TYPE_CHECKING:
    from jax import Array as Tensor

STATES: Final = ArrayNames("states", "pixel", "pixel")
IMAGES: Final = ArrayNames("images", "pixel", "pixel")

_LAYERS: Final = 12
"""Upper estimate of the activations of a stage's size that exist at once, including skip connections."""


def unsampled(config: Config) -> str:
    """Why a model of this configuration cannot draw samples; "" if it can."""
    if config.time_embedding_type == "fourier":
        return "it takes noise levels, and only diffusions in steps are sampled"
    if config.in_channels != config.out_channels:
        return f"it maps {config.in_channels} channels to {config.out_channels}"
    if config.classes not in ("", "table"):
        return f"its class embedding is a {config.classes}, and only tables of classes are sampled"
    if config.sample_size is None:
        return "its sample_size is null; convert it with `--set sample_size=N`"
    if any(size % config.stride for size in _size(config)):
        return f"its sample_size is not a multiple of {config.stride}, and the network does not run there"
    if config.scheduler is None:
        return "its scheduler is null; convert it with `--set scheduler='{...}'`"
    return ""


def diffused(config: Config) -> Diffused:
    """Images (H, W, C) as states and as samples."""
    shape = (*_size(config), config.in_channels)
    clip = None if config.scheduler is None else config.scheduler.clip
    one = (1.0,) * config.in_channels
    half = tuple(value / 2.0 for value in one)
    decoding = Decoding(shape, _same, _same, half, half, "from 0 to 1")
    sizes = dict(zip(("height", "width", "channels"), shape, strict=True))
    return Diffused(shape, STATES, IMAGES, decoding, _numbers(config), sizes, clip, labels_of(config.num_class_embeds))


def to_images(config: Config, states: Array | Tensor, /) -> Tensor:
    """States (B, H, W, C) as images from 0 to 1, as in diffusers' pipelines."""
    import jax.numpy as jnp

    return jnp.clip(states / 2.0 + 0.5, 0.0, 1.0)


def _same(values: Array | Tensor) -> Tensor:
    import jax.numpy as jnp

    return jnp.asarray(values)


def _size(config: Config) -> tuple[int, int]:
    size = config.sample_size or 0
    return (size, size) if isinstance(size, int) else size


def _numbers(config: Config) -> int:
    height, width = _size(config)
    total = 0
    for level, stage in enumerate(down_stages(config)):
        pixels = (height >> level) * (width >> level)
        heads = stage.channels // (config.attention_head_dim or stage.channels) if stage.attention else 0
        total += _LAYERS * pixels * stage.channels + 2 * heads * pixels**2
    return total
