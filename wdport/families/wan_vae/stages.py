"""The autoencoder as a list of stages: the blocks of both halves and their channels, from the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from wdport.families.wan_vae.config import Config
from wdport.limits import require_model_size

_VARIABLES = 10
"""Of a residual block with its shortcut, and its part of the steps."""


@dataclass(frozen=True)
class Stage:
    """One level of the encoder or the decoder.

    ``inputs`` are the input channels of each residual block, ``channels`` its output channels. ``resized`` are the
    channels after the step to the next level, 0 without one; ``temporal`` says whether that step also changes the
    number of frames.
    """

    inputs: tuple[int, ...]
    channels: int
    resized: int
    temporal: bool

    @property
    def shortcut(self) -> bool:
        """Whether a residual block has a convolution in its shortcut."""
        return any(width != self.channels for width in self.inputs)


def down_stages(config: Config) -> list[Stage]:
    """The encoder's levels, from the video's size to the smallest."""
    widths = [config.base_dim * factor for factor in (1, *config.dim_mult)]
    stages = []
    for index, (before, channels) in enumerate(pairwise(widths)):
        last = index == len(config.dim_mult) - 1
        inputs = (before, *[channels] * (config.num_res_blocks - 1))
        stages.append(Stage(inputs, channels, 0 if last else channels, not last and config.temperal_downsample[index]))
    return stages


def up_stages(config: Config) -> list[Stage]:
    """The decoder's levels, from the smallest size to the video's."""
    widths = [config.decoder_dim * factor for factor in (config.dim_mult[-1], *config.dim_mult[::-1])]
    stages = []
    for index, (before, channels) in enumerate(pairwise(widths)):
        last = index == len(config.dim_mult) - 1
        first = before // 2 if index and not config.is_residual else before  # the step before it has halved them
        inputs = (first, *[channels] * config.num_res_blocks)
        resized = 0 if last else channels if config.is_residual else channels // 2
        stages.append(Stage(inputs, channels, resized, not last and config.temperal_downsample[::-1][index]))
    return stages


def flat(config: Config) -> Iterator[tuple[int, int | None]]:
    """The encoder's blocks of Wan 2.1, which the library numbers without levels: (level, residual block or None for
    the step to the next level)."""
    for level, stage in enumerate(down_stages(config)):
        yield from ((level, block) for block in range(len(stage.inputs)))
        if stage.resized:
            yield level, None


def faults(config: Config) -> Iterator[str]:
    """Errors for channels that the shortcuts of Wan 2.2 cannot average or repeat, or a step cannot halve; the library
    cannot build such networks."""
    if not config.is_residual:
        if any(not stage.resized for stage in up_stages(config)[:-1]):
            yield "decoder_base_dim is 1, which the steps of the decoder cannot halve"
        return
    for index, stage in enumerate(down_stages(config)):
        factor = (2 if stage.temporal else 1) * (4 if stage.resized else 1)
        if stage.inputs[0] * factor % stage.channels:
            yield f"down block {index} cannot average {stage.inputs[0]} channels by {factor} into {stage.channels}"
    for index, stage in enumerate(up_stages(config)):
        factor = (2 if stage.temporal else 1) * 4
        if stage.resized and stage.channels * factor % stage.inputs[0]:
            yield f"up block {index} cannot repeat {stage.inputs[0]} channels into {stage.channels} times {factor}"


def require_sizes(config: Config) -> None:
    """Raise ``ValueError`` if the model, which is not built for this, exceeds the size limits."""
    stages = (*down_stages(config), *up_stages(config))
    blocks = [27 * (inputs + stage.channels) * stage.channels for stage in stages for inputs in stage.inputs]
    require_model_size(_VARIABLES * len(blocks), sum(blocks), "about ")
