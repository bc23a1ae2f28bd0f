"""Size limits of a configuration's network, checked before it is built."""

from __future__ import annotations

from collections.abc import Iterator

from wdport.families import library_config
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.stages import down_stages, up_stages

_VARIABLES = 22
"""Of a residual block with its shortcut and the attention behind it."""


def require_sizes(config: Config) -> Config:
    """The configuration; raises ``ValueError`` if its network exceeds the size limits."""
    blocks = list(_blocks(config))
    values = sum(blocks) + config.time_width * (config.wave_width + config.time_width + (config.num_class_embeds or 0))
    if config.time_embedding_type == "learned":
        values += config.steps * config.block_out_channels[0]
    library_config.require_sizes(_VARIABLES * len(blocks), values)
    return config


def _blocks(config: Config) -> Iterator[int]:
    """Approximate number of values of every residual block."""
    for stage in (*down_stages(config), *up_stages(config)):
        for inputs in stage.inputs:
            yield stage.channels * (10 * inputs + 14 * stage.channels + config.time_width)
