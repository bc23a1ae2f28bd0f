"""The network as a list of stages: its blocks and their channels, from the configuration.

A down stage keeps the outputs of its blocks and of its last step as skip connections; an up stage takes them from the
end and concatenates them to its own channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wdport.families.unet2d.config import Config
from wdport.limits import require_model_size

_VARIABLES = 22
"""Of a residual block with its shortcut and the attention after it."""


@dataclass(frozen=True)
class Stage:
    """One resolution, on the way down or up.

    ``inputs`` are the input channels of each residual block, ``channels`` its output channels. ``attention`` says
    whether attention follows each block. ``step`` is the kind of resolution change at the end: "conv", "resnet" or "".
    """

    inputs: tuple[int, ...]
    channels: int
    attention: bool
    step: str

    @property
    def shortcut(self) -> bool:
        """Whether a residual block has a convolution in its shortcut."""
        return any(width != self.channels for width in self.inputs)


def down_stages(config: Config) -> list[Stage]:
    """The stages from the image size to the smallest."""
    stages, before = [], config.block_out_channels[0]
    for index, (block, channels) in enumerate(zip(config.down_block_types, config.block_out_channels, strict=True)):
        inputs = (before, *[channels] * (config.layers_per_block - 1))
        last = index == len(config.block_out_channels) - 1
        stages.append(Stage(inputs, channels, block.startswith("Attn"),
                           "" if last else _step(block, config.downsample_type)))  # fmt: skip
        before = channels
    return stages


def up_stages(config: Config) -> list[Stage]:
    """The stages from the smallest size to the image size."""
    skip_channels = skips(config)
    stages, before = [], config.block_out_channels[-1]
    for index, (block, channels) in enumerate(zip(config.up_block_types, config.block_out_channels[::-1], strict=True)):
        widths = (before, *[channels] * config.layers_per_block)
        inputs = tuple(width + skip_channels.pop() for width in widths)
        last = index == len(config.block_out_channels) - 1
        stages.append(Stage(inputs, channels, block.startswith("Attn"),
                           "" if last else _step(block, config.upsample_type)))  # fmt: skip
        before = channels
    return stages


def skips(config: Config) -> list[int]:
    """The channels of all skip connections, in order; the first is the output of the first convolution."""
    channels = [config.block_out_channels[0]]
    for stage in down_stages(config):
        channels += [stage.channels] * (len(stage.inputs) + bool(stage.step))
    return channels


def attends(config: Config) -> bool:
    """Whether the middle block has attention."""
    return config.mid_block_type is not None and config.add_attention


def mid_groups(config: Config) -> int | None:
    """Groups of the norm of that attention; ``None`` without a norm."""
    if config.attn_norm_num_groups is not None:
        return config.attn_norm_num_groups
    return config.norm_num_groups if config.resnet_time_scale_shift == "default" else None


def head_width(config: Config, channels: int) -> int:
    """The width of a head for this number of channels."""
    return channels if config.attention_head_dim is None else config.attention_head_dim


def faults(config: Config) -> Iterator[str]:
    """Errors for channels that a norm's groups or attention heads do not divide; the library cannot build such
    networks."""
    down, up = down_stages(config), up_stages(config)
    normed = {channels for stage in (*down, *up) for channels in (*stage.inputs, stage.channels)}
    normed |= {config.block_out_channels[0], config.block_out_channels[-1]}
    if odd := sorted(channels for channels in normed if channels % config.norm_num_groups):
        yield f"norm_num_groups {config.norm_num_groups} does not divide {', '.join(map(str, odd[:4]))} channels"
    last, groups = config.block_out_channels[-1], mid_groups(config)
    if attends(config) and groups is not None and last % groups:
        yield f"attn_norm_num_groups {groups} does not divide {last} channels"
    attended = {stage.channels for stage in (*down, *up) if stage.attention} | ({last} if attends(config) else set())
    if wide := sorted(channels for channels in attended if head_width(config, channels) > channels):
        yield f"attention_head_dim {config.attention_head_dim} is more than {wide[0]} channels have"


def require_sizes(config: Config) -> None:
    """Raise ``ValueError`` if the network, which is not built for this, exceeds the size limits."""
    blocks = [stage.channels * (10 * inputs + 14 * stage.channels + config.time_width)
              for stage in (*down_stages(config), *up_stages(config)) for inputs in stage.inputs]  # fmt: skip
    values = sum(blocks) + config.time_width * (config.wave_width + config.time_width + (config.num_class_embeds or 0))
    if config.time_embedding_type == "learned":
        values += config.steps * config.block_out_channels[0]
    require_model_size(_VARIABLES * len(blocks), values, "about ")


def _step(block: str, step_kind: str) -> str:
    """How a stage of this kind of block changes the resolution; only blocks with attention use the configured kind."""
    if block.startswith("Attn"):
        return step_kind
    return "resnet" if block.startswith("Resnet") else "conv"
