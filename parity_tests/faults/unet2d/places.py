"""Places of the layers of a U-Net port, as patterns of structural paths, from the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wdport.uses.unet2d.config import Config, attends, down_stages, head_width, mid_groups, up_stages

NORM: Final = ("*/norm1", "*/norm2", "*/norm", "conv_norm_out")
CONV: Final = ("conv_in", "*/conv1", "*/conv2", "conv_out")
NETWORK: Final = ("",)


def steps(config: Config, way: str, kind: str) -> tuple[str, ...]:
    """The layers that change the resolution on this ``way``, "down" or "up", by a step of this kind, "conv" or
    "resnet"."""
    stages = down_stages(config) if way == "down" else up_stages(config)
    word = "downsample" if way == "down" else "upsample"
    return tuple(f"{way}_{at}/{word}" for at, stage in enumerate(stages) if stage.step == kind)


def plain(config: Config) -> tuple[str, ...]:
    """Residual blocks with an identity shortcut, at one resolution."""
    found = ["mid/resnet_0", "mid/resnet_1"] if config.mid_block_type is not None else []
    for at, stage in enumerate(down_stages(config)):
        found += [f"down_{at}/resnet_{i}" for i, inputs in enumerate(stage.inputs) if inputs == stage.channels]
    return tuple(found)


def attention(
    config: Config, several: bool = False, swappable: bool = False, normed: bool = False, square: bool = False
) -> tuple[str, ...]:
    """Every attention: with ``several`` those of more than one head, with ``swappable`` those whose number of heads and
    head width can be confused, with ``normed`` those that have a norm, with ``square`` those whose heads have all
    channels."""
    found = []
    for path, channels, norm in _attentions(config):
        width = head_width(config, channels)
        heads = channels // width
        if (several and heads == 1) or (swappable and (heads == width or heads * width != channels)):
            continue
        if (norm or not normed) and (heads * width == channels or not square):
            found.append(path)
    return tuple(found)


def _attentions(config: Config) -> Iterator[tuple[str, int, bool]]:
    for way, stages in (("down", down_stages(config)), ("up", up_stages(config))):
        for at, stage in enumerate(stages):
            if stage.attention:
                for i in range(len(stage.inputs)):
                    yield f"{way}_{at}/attention_{i}", stage.channels, True
    if attends(config):
        yield "mid/attention", config.block_out_channels[-1], mid_groups(config) is not None
