"""The configuration: the fields of ``config.json`` that fix the function of a UNet2DModel, with the library's defaults.

Source: diffusers 0.42.1, ``UNet2DModel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from wdport.diffusion.scheduler import Scheduler
from wdport.fields import FINITE, NETWORK, UNUSED, Choices, Dropout, Effect, Fields, Phrase, Summary, Width, Wording
from wdport.limits import MAX_IMAGE, MAX_LEVELS, MAX_RESIDUAL, MAX_STEPS

DOWN: Final = ("DownBlock2D", "AttnDownBlock2D", "ResnetDownsampleBlock2D")
UP: Final = ("UpBlock2D", "AttnUpBlock2D", "ResnetUpsampleBlock2D")
MID: Final = "UNetMidBlock2D"

RES: Final = "UNetRes"
"""Prefixes of block names in old files."""

STEPS: Final = 1000
"""Steps of training if their number is unknown; the network then does not use it."""

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
    "properties": {field.name: True for field in fields(Scheduler)},
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
        Meta(description="Height and width of the images that the model was made for: one number, or two."),
        UNUSED,
        Phrase("a number, two numbers or null"),
        Summary("sample_size"),
    ] = None
    in_channels: Annotated[Width, Meta(description="Channels of the input."), NETWORK, Summary("in_channels")] = 3
    out_channels: Annotated[Width, Meta(description="Channels of the output."), NETWORK, Summary("out_channels")] = 3
    center_input_sample: Annotated[bool, Meta(description="Whether the input x is rescaled to 2 x - 1."), NETWORK] = (
        False
    )
    time_embedding_type: Annotated[
        Literal["positional", "fourier", "learned"],
        Meta(description="Kind of the time embedding."),
        NETWORK,
        Summary("time", 1),
    ] = "positional"
    time_embedding_dim: Annotated[
        Width | None,
        Meta(description="Width of the time embedding; four times the first of block_out_channels if null."),
        NETWORK,
    ] = None
    freq_shift: Annotated[
        Real, Meta(description="Shift in the frequencies of a positional time embedding."), NETWORK
    ] = 0
    flip_sin_to_cos: Annotated[bool, Meta(description="Whether cosines come first."), NETWORK] = True
    down_block_types: Annotated[
        tuple[DownBlock, ...], Meta(min_length=1, description="Block of each level on the way down."), NETWORK
    ] = ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D")
    mid_block_type: Annotated[
        Literal["UNetMidBlock2D", None],
        Meta(description="Block between the down and the up blocks; null for none."),
        NETWORK,
    ] = MID
    up_block_types: Annotated[
        tuple[UpBlock, ...], Meta(min_length=1, description="Block of each level on the way up."), NETWORK
    ] = ("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D")
    block_out_channels: Annotated[
        tuple[Width, ...],
        Meta(min_length=1, max_length=MAX_LEVELS, description="Channels of each level."),
        NETWORK,
        Summary("channels"),
    ] = (224, 448, 672, 896)
    layers_per_block: Annotated[
        int, Meta(ge=1, le=MAX_RESIDUAL, description="Residual blocks of a level."), NETWORK, Summary("layers")
    ] = 2
    mid_block_scale_factor: Annotated[
        Real,
        Meta(description="Divisor of the outputs of residual blocks in the middle; not zero.",
             extra_json_schema={"not": {"const": 0}}),
        NETWORK,
    ] = 1  # fmt: skip
    downsample_padding: Annotated[
        int, Meta(ge=0, le=1, description="Padding of the strided convolutions."), NETWORK
    ] = 1
    downsample_type: Annotated[Resampling, Meta(description="How the resolution is halved."), NETWORK] = "conv"
    upsample_type: Annotated[Resampling, Meta(description="How the resolution is doubled."), NETWORK] = "conv"
    dropout: Dropout = 0.0
    act_fn: Annotated[
        str,
        Choices(("silu", "mish", "gelu", "relu"), synonyms={"swish": "silu"}),
        Meta(description="Activation."),
        NETWORK,
    ] = "silu"
    attention_head_dim: Annotated[
        Width | None, Meta(description="Width of an attention head; all channels if null."), NETWORK
    ] = 8
    norm_num_groups: Annotated[Width, Meta(description="Groups of the group norms."), NETWORK] = 32
    attn_norm_num_groups: Annotated[
        Width | None, Meta(description="Groups of the norm before the middle attention."), NETWORK
    ] = None
    norm_eps: Annotated[float, Meta(ge=0, lt=FINITE, description="Epsilon of the group norms."), NETWORK] = 1e-5
    resnet_time_scale_shift: Annotated[
        Literal["default", "scale_shift"], Meta(description="How the time conditions a residual block."), NETWORK
    ] = "default"
    add_attention: Annotated[bool, Meta(description="Whether the middle block has attention."), NETWORK] = True
    class_embed_type: Annotated[
        Literal[None, "timestep", "identity"], Meta(description="How a class conditions the network."), NETWORK
    ] = None
    num_class_embeds: Annotated[
        Steps | None, Meta(description="Number of classes."), NETWORK, Summary("classes", 2)
    ] = None
    num_train_timesteps: Annotated[
        Steps | None, Meta(description="Steps of training, of a learned time embedding."), NETWORK
    ] = None
    scheduler: Annotated[
        Annotated[Scheduler, Meta(extra_json_schema=_SCHEDULER)] | None,
        Meta(description="Process that the network was trained to undo, as in scheduler_config.json; null: it is not "
                         "sampled."),
        Effect(gates=("E",)),
        Phrase("a table of values"),
    ] = None  # fmt: skip

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
        if self.time_embedding_type == "positional" and self.block_out_channels[0] // 2 == self.freq_shift:
            raise ValueError("freq_shift is half of block_out_channels[0], so the frequencies have no values")

    def _unify(self) -> None:
        """Replace names of old files and other spellings, and a table of values by the scheduler."""
        for name in ("down_block_types", "up_block_types"):
            if isinstance(value := getattr(self, name), list | tuple):
                plain = tuple(block.removeprefix(RES) if isinstance(block, str) else block for block in value)
                object.__setattr__(self, name, plain)
        if isinstance(self.scheduler, Mapping):
            object.__setattr__(self, "scheduler", Scheduler.from_dict(self.scheduler))
        if isinstance(self.act_fn, str):
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
