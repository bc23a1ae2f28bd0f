"""The configuration: the fields of ``config.json`` that fix the function of a UNet2DModel, and the stages that they
mean.

Source: diffusers 0.42.1, ``UNet2DModel``.

A down stage keeps the outputs of its blocks and of its last step as skip connections; an up stage takes them from the
end and concatenates them to its own channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from wdport.base.fields import (
    FINITE,
    NETWORK,
    UNUSED,
    Choices,
    Dropout,
    Effect,
    Fields,
    Phrase,
    Summary,
    Width,
    Wording,
)
from wdport.base.limits import MAX_IMAGE, MAX_LEVELS, MAX_RESIDUAL, MAX_STEPS, require_model_size
from wdport.uses.diffusion.noise_levels import NoiseLevels
from wdport.uses.diffusion.process import TrainedProcess
from wdport.uses.diffusion.scheduler_config import Scheduler, stored_scheduler

DOWN: Final = ("DownBlock2D", "AttnDownBlock2D", "ResnetDownsampleBlock2D")
UP: Final = ("UpBlock2D", "AttnUpBlock2D", "ResnetUpsampleBlock2D")
MID: Final = "UNetMidBlock2D"

RES: Final = "UNetRes"
"""Prefix of block names in old files."""

STEPS: Final = 1000
"""Steps of training if their number is unknown, in which case the network does not use it."""

SCHEDULER: Final = "scheduler_config.json"
"""The file of the process that the network was trained to undo, next to the model."""

Steps = Annotated[int, Meta(ge=1, le=MAX_STEPS)]
Side = Annotated[int, Meta(ge=1, le=MAX_IMAGE)]
Real = Annotated[float, Meta(gt=-FINITE, lt=FINITE)]
Resampling = Annotated[str, Choices(("conv", "resnet"), synonyms={None: "conv"})]


def _written(blocks: tuple[str, ...]) -> dict[str, object]:
    """JSON Schema of the name of a block, which old files have with a prefix."""
    return {"type": "string", "pattern": f"^({RES})?({'|'.join(blocks)})$"}


DownBlock = Annotated[str, Choices(DOWN), Meta(extra_json_schema=_written(DOWN))]
UpBlock = Annotated[str, Choices(UP), Meta(extra_json_schema=_written(UP))]
_SCHEDULER: Final = {
    "type": "object",
    "properties": {field.name: True for kind in (Scheduler, NoiseLevels) for field in fields(kind)},
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Config(Fields):
    """Sizes and switches of one network; raises ``ValueError`` for values that the library or this family does not
    support.

    The network takes images of any size that is a multiple of :attr:`stride`.
    """

    sample_size: Annotated[
        Side | tuple[Side, Side] | None,
        "Height and width of the images that the model was made for: one number, or two.",
        UNUSED,
        Phrase("a number, two numbers or null"),
        Summary(),
    ] = None
    in_channels: Annotated[Width, "Number of channels of the input.", NETWORK, Summary()] = 3
    out_channels: Annotated[Width, "Number of channels of the output.", NETWORK, Summary()] = 3
    center_input_sample: Annotated[bool, "Whether the input x is rescaled to 2 x - 1.", NETWORK] = False
    time_embedding_type: Annotated[
        Literal["positional", "fourier", "learned"], "Type of the time embedding.", NETWORK, Summary("time", 1)
    ] = "positional"
    time_embedding_dim: Annotated[
        Width | None, "Width of the time embedding; four times the first value of block_out_channels if null.", NETWORK
    ] = None
    freq_shift: Annotated[Real, "Shift in the frequencies of a positional time embedding.", NETWORK] = 0
    flip_sin_to_cos: Annotated[bool, "Whether the cosines come before the sines.", NETWORK] = True
    down_block_types: Annotated[
        tuple[DownBlock, ...], Meta(min_length=1), "Type of the down block at each level.", NETWORK
    ] = ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D")
    mid_block_type: Annotated[
        Literal["UNetMidBlock2D", None],
        "Type of the block between the down blocks and the up blocks; null for none.",
        NETWORK,
    ] = MID
    up_block_types: Annotated[
        tuple[UpBlock, ...], Meta(min_length=1), "Type of the up block at each level.", NETWORK
    ] = ("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D")
    block_out_channels: Annotated[
        tuple[Width, ...],
        Meta(min_length=1, max_length=MAX_LEVELS),
        "Number of channels at each level.",
        NETWORK,
        Summary("channels"),
    ] = (224, 448, 672, 896)
    layers_per_block: Annotated[
        int,
        Meta(ge=1, le=MAX_RESIDUAL),
        "Number of residual blocks in each down block; an up block has one more.",
        NETWORK,
        Summary("layers"),
    ] = 2
    mid_block_scale_factor: Annotated[
        Real,
        Meta(extra_json_schema={"not": {"const": 0}}),
        "Divisor of the outputs of the residual blocks in the middle block; not zero.",
        NETWORK,
    ] = 1
    downsample_padding: Annotated[int, Meta(ge=0, le=1), "Padding of the strided convolutions.", NETWORK] = 1
    downsample_type: Annotated[Resampling, "How the resolution is halved.", NETWORK] = "conv"
    upsample_type: Annotated[Resampling, "How the resolution is doubled.", NETWORK] = "conv"
    dropout: Dropout = 0.0
    act_fn: Annotated[
        str, Choices(("silu", "mish", "gelu", "relu"), synonyms={"swish": "silu"}), "Activation function.", NETWORK
    ] = "silu"
    attention_head_dim: Annotated[Width | None, "Width of an attention head; all channels if null.", NETWORK] = 8
    norm_num_groups: Annotated[Width, "Number of groups in the group norms.", NETWORK] = 32
    attn_norm_num_groups: Annotated[
        Width | None,
        "Number of groups in the norm before the attention of the middle block; if null, `norm_num_groups`, or no norm "
        "with `scale_shift`.",
        NETWORK,
    ] = None
    norm_eps: Annotated[float, Meta(ge=0, lt=FINITE), "Epsilon of the group norms.", NETWORK] = 1e-5
    resnet_time_scale_shift: Annotated[
        Literal["default", "scale_shift"], "How the time conditions a residual block.", NETWORK
    ] = "default"
    add_attention: Annotated[bool, "Whether the middle block has attention.", NETWORK] = True
    class_embed_type: Annotated[
        Literal[None, "timestep", "identity"], "How a class conditions the network.", NETWORK
    ] = None
    num_class_embeds: Annotated[Steps | None, "Number of classes.", NETWORK, Summary("classes", 2)] = None
    num_train_timesteps: Annotated[
        Steps | None, "Number of diffusion steps in training, for a learned time embedding.", NETWORK
    ] = None
    scheduler: Annotated[
        Annotated[TrainedProcess, Meta(extra_json_schema=_SCHEDULER)] | None,
        "Process that the network was trained to reverse, as in scheduler_config.json; null if the network is not "
        "sampled.",
        Effect(gates=("E",)),
        Phrase("a table of values"),
    ] = None

    no_class: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_STEPS)] | None,
        "Label that means no class, which guidance needs; null if the network was trained with a class for every "
        "sample. Not a field of the library.",
        UNUSED,
    ] = None

    wording: ClassVar = Wording(item="has a value that is not {item}")

    def __post_init__(self) -> None:
        self._unify()
        super().__post_init__()
        levels = len(self.block_out_channels)
        for name in ("down_block_types", "up_block_types"):
            if len(getattr(self, name)) != levels:
                raise ValueError(f"{name} has {len(getattr(self, name))} blocks, block_out_channels {levels} values")
        if self.layers_per_block * levels > MAX_RESIDUAL:
            raise ValueError(f"layers_per_block {self.layers_per_block}: more than {MAX_RESIDUAL} blocks in all")
        if self.mid_block_scale_factor == 0:
            raise ValueError("mid_block_scale_factor is zero, and outputs are divided by it")
        if self.time_embedding_type == "learned" and self.num_train_timesteps is None:
            raise ValueError("a learned time embedding needs num_train_timesteps")
        # The exponents of the frequencies are divided by half the width minus the shift.
        if self.time_embedding_type == "positional" and self.block_out_channels[0] // 2 == self.freq_shift:
            raise ValueError("freq_shift is half of block_out_channels[0], so the frequencies have no values")
        if self.no_class is not None and (self.classes != "table" or self.no_class >= (self.num_class_embeds or 0)):
            raise ValueError(f"no_class {self.no_class} is not one of the labels below num_class_embeds")
        require_sizes(self)
        if wrong := list(faults(self)):
            raise ValueError("; ".join(wrong))

    def _unify(self) -> None:
        """Replace names of old files and other spellings, and a table of values by the scheduler."""
        for name in ("down_block_types", "up_block_types"):
            if isinstance(value := getattr(self, name), list | tuple):
                plain = tuple(block.removeprefix(RES) if isinstance(block, str) else block for block in value)
                object.__setattr__(self, name, plain)
        if isinstance(self.scheduler, Mapping):
            # A frozen dataclass: only __post_init__ replaces its values.
            object.__setattr__(self, "scheduler", stored_scheduler(self.scheduler))
        if isinstance(self.act_fn, str):
            # The library looks an activation up in lower case, so "SiLU" is a valid spelling.
            object.__setattr__(self, "act_fn", self.act_fn.lower())

    @property
    def time_width(self) -> int:
        """T, the width of the time embedding."""
        return self.time_embedding_dim or 4 * self.block_out_channels[0]

    @property
    def wave_width(self) -> int:
        """The input width of the time embedding's MLP."""
        return self.block_out_channels[0] * (2 if self.time_embedding_type == "fourier" else 1)

    @property
    def steps(self) -> int:
        """Steps of training, an exclusive upper bound of times."""
        return self.num_train_timesteps or STEPS

    @property
    def classes(self) -> str:
        """How classes condition the network: "table", "timestep", "identity", or "" without classes."""
        if self.class_embed_type is not None:
            return self.class_embed_type
        return "table" if self.num_class_embeds is not None else ""

    @property
    def stride(self) -> int:
        """Height and width must be multiples of it."""
        return int(2 ** (len(self.block_out_channels) - 1))

    def to_dict(self) -> dict[str, object]:
        return {**super().to_dict(), "scheduler": None if self.scheduler is None else self.scheduler.to_dict()}


_VARIABLES = 22
"""Variables of a residual block with its shortcut, 12, and of the attention after it, 10."""


@dataclass(frozen=True)
class Stage:
    """One resolution, on the way down or up.

    ``inputs`` are the input channels of each residual block, ``channels`` its output channels. ``attention`` states
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
        # Only the first block of a level changes the number of channels.
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
        # A level has one block more on the way up: it also takes the output of the step before the level.
        widths = (before, *[channels] * config.layers_per_block)
        # Skip connections are used from the last to the first.
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
        # A change of resolution is a skip connection too.
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
    # The norms of the output and of the middle block.
    normed |= {config.block_out_channels[0], config.block_out_channels[-1]}
    if odd := sorted(channels for channels in normed if channels % config.norm_num_groups):
        yield f"norm_num_groups {config.norm_num_groups} does not divide {', '.join(map(str, odd[:4]))} channels"
    last, groups = config.block_out_channels[-1], mid_groups(config)
    if attends(config) and groups is not None and last % groups:
        yield f"attn_norm_num_groups {groups} does not divide {last} channels"
    attended = {stage.channels for stage in (*down, *up) if stage.attention} | ({last} if attends(config) else set())
    # `attention_head_dim` is the width of a head: the library divides the channels by it, and zero heads cannot be
    # built.
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
