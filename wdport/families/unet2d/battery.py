"""What the network takes and gives, at a size that a comparison in float64 can afford."""

from __future__ import annotations

from typing import Final

from wdport.families.unet2d.config import Config
from wdport.model import Port, Signature
from wdport.recorder import parse_input

LARGEST: Final = 64
"""Height and width up to which a model is compared at its own size: attention among 64 x 64 pixels takes 1 GB for eight
heads in float64."""

USUAL: Final = 16
"""The least height and width that is chosen, if the network halves it so often."""

HIGHEST: Final = 1000
"""Times of a Fourier embedding, which are noise levels, are drawn up to here; published models have at most 1348."""


def signature(config: Config) -> Signature:
    """Images (B, C, H, W), timesteps (B,) as the library takes them, and labels where classes condition the network."""
    (height, width), note = image_size(config)
    image = f"x: b c={config.in_channels} h={height} w={width} -> b h w c"
    inputs = [image, f"t: b, {_times(config)}"]
    if config.classes == "table":
        inputs.append(f"labels: b, below {config.num_class_embeds}")
    elif config.classes == "timestep":
        inputs.append(f"labels: b, {_times(config)}")
    elif config.classes == "identity":
        inputs.append(f"labels: b {config.time_width}")
    output = Port("sample", "b c h w -> b h w c")
    return Signature(tuple(map(parse_input, inputs)), (output,), (note,) if note else ())


def _times(config: Config) -> str:
    if config.time_embedding_type == "fourier":
        return f"from 0.01 to {HIGHEST}"
    return f"below {config.steps}"


def image_size(config: Config) -> tuple[tuple[int, int], str]:
    """Height and width that the network is compared at, and a sentence if these are not its own."""
    told = (config.sample_size,) * 2 if isinstance(config.sample_size, int) else config.sample_size
    least = max(USUAL, 2 * config.stride)
    chosen = -(-least // config.stride) * config.stride
    if told is None:
        return (chosen, chosen), f"compared at {chosen} x {chosen}: sample_size is null"
    if any(each % config.stride for each in told):
        why = f"its own {told[0]} x {told[1]} is no multiple of {config.stride}, and the library does not run there"
        return (chosen, chosen), f"compared at {chosen} x {chosen}: {why}"
    if max(told) > LARGEST and max(told) > chosen:
        sizes = (min(told[0], chosen), min(told[1], chosen))
        why = f"the network is convolutional, and its own size is {told[0]} x {told[1]}"
        return sizes, f"compared at {sizes[0]} x {sizes[1]}: {why}"
    return told, ""
