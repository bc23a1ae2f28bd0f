"""Inputs and outputs of the network, at a size suitable for comparisons in float64."""

from __future__ import annotations

from typing import Final

import numpy as np

from wdport.families.unet2d.config import Config
from wdport.model import Array, Port, Signature
from wdport.recorder import parse_input

LARGEST: Final = 64
"""Height and width up to which a model is compared at its own size: attention among 64 x 64 pixels takes 1 GB for eight
heads in float64."""

USUAL: Final = 16
"""The smallest height and width chosen, if the network can halve them often enough."""

HIGHEST: Final = 1000
"""Times of a Fourier embedding, which are noise levels, are drawn up to here; published models have at most 1348."""


def signature(config: Config) -> Signature:
    """Images (B, C, H, W) of two heights, timesteps (B,) as in the library, and labels for class-conditional
    networks."""
    (height, width), note = image_size(config)
    image = (
        f"x: b c={config.in_channels} h={height}..{_other_height(height, width, config.stride)} w={width} -> b h w c"
    )
    inputs = [image, f"t: b, {_times(config)}"]
    if config.classes == "table":
        inputs.append(f"labels: b, below {config.num_class_embeds}")
    elif config.classes == "timestep":
        inputs.append(f"labels: b, {_times(config)}")
    elif config.classes == "identity":
        inputs.append(f"labels: b {config.time_width}")
    output = Port("sample", "b c h w -> b h w c", decode=_images)
    free = dict.fromkeys("hw", config.stride)
    return Signature(tuple(map(parse_input, inputs)), (output,), (note,) if note else (), free)


def _other_height(height: int, width: int, stride: int) -> int:
    """The height of the image in a batch of one: twice as large, or half as large if attention would take too much
    memory."""
    if 2 * height * width <= LARGEST**2:
        return 2 * height
    return max(stride, height // 2 // stride * stride)


def _times(config: Config) -> str:
    if config.time_embedding_type == "fourier":
        return f"from 0.01 to {HIGHEST}"
    return f"below {config.steps}"


def image_size(config: Config) -> tuple[tuple[int, int], str]:
    """Height and width for comparisons, and a note if these are not those of the model."""
    model_size = (config.sample_size,) * 2 if isinstance(config.sample_size, int) else config.sample_size
    least = max(USUAL, 2 * config.stride)
    chosen = -(-least // config.stride) * config.stride
    if model_size is None:
        return (chosen, chosen), f"compared at {chosen} x {chosen}: sample_size is null"
    if any(length % config.stride for length in model_size):
        size = f"{model_size[0]} x {model_size[1]}"
        why = f"its own {size} is not a multiple of {config.stride}, and the library does not run there"
        return (chosen, chosen), f"compared at {chosen} x {chosen}: {why}"
    if max(model_size) > LARGEST and max(model_size) > chosen:
        sizes = (min(model_size[0], chosen), min(model_size[1], chosen))
        why = f"the network is convolutional, and its own size is {model_size[0]} x {model_size[1]}"
        return sizes, f"compared at {sizes[0]} x {sizes[1]}: {why}"
    return model_size, ""


def _images(states: Array) -> Array:
    """States (B, H, W, C) as the library's pipelines return them: from 0 to 1."""
    return np.minimum(np.maximum(states / 2.0 + 0.5, 0.0), 1.0)
