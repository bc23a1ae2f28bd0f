"""The configuration: the fields of ``config.json`` that describe an AutoencoderKLWan, and the stages that they mean.

Source: diffusers 0.42.1, ``AutoencoderKLWan``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final

from msgspec import Meta

from wdport.base.fields import FINITE, NETWORK, UNUSED, Dropout, FieldRefusal, Fields, Summary, Width
from wdport.base.limits import MAX_LEVELS, MAX_RESIDUAL, require_model_size

MEAN: Final = (
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
    0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921,
)  # fmt: skip
STD: Final = (
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
    3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160,
)  # fmt: skip
"""Mean and standard deviation of the latents of Wan 2.1, by channel."""

GROUP: Final = 4
"""Video frames that the library's encoder takes at a time, after the first; it cannot halve them more than twice."""

NO_ATTENTION: Final = FieldRefusal("is not empty: the library cannot run attention among its down blocks")

Mean = Annotated[float, Meta(gt=-FINITE, lt=FINITE)]
Deviation = Annotated[float, Meta(gt=0, lt=FINITE)]


@dataclass(frozen=True)
class Config(Fields):
    """Sizes and switches of one autoencoder; raises ``ValueError`` for values that the library cannot run or this
    family does not support.

    ``temperal_downsample`` is the library's spelling; the decoder doubles the frames in reverse. ``is_residual`` and
    ``patch_size`` are those of Wan 2.2. Diffusers' pipelines normalise with ``latents_mean`` and ``latents_std``
    outside the network.
    """

    base_dim: Annotated[
        Width,
        "Number of channels at the encoder's first level, before multiplication by `dim_mult`.",
        NETWORK,
        Summary(),
    ] = 96
    decoder_base_dim: Annotated[
        Width | None, "The same for the decoder; `base_dim` if null.", NETWORK, Summary("decoder")
    ] = None
    z_dim: Annotated[Width, "Number of channels of the latents.", NETWORK, Summary("z_dim", 2)] = 16
    dim_mult: Annotated[
        tuple[Width, ...],
        Meta(min_length=2, max_length=MAX_LEVELS),
        "Number of channels at each level, as a multiple of `base_dim`.",
        NETWORK,
        Summary(),
    ] = (1, 2, 4, 4)
    num_res_blocks: Annotated[
        int,
        Meta(ge=1, le=MAX_RESIDUAL),
        "Number of residual blocks per level of the encoder; the decoder has one more per level.",
        NETWORK,
        Summary("blocks", 1),
    ] = 2
    attn_scales: Annotated[
        tuple[float, ...],
        Meta(max_length=0),
        "Scales, relative to the input, at which the encoder has attention; only an empty list is supported.",
        UNUSED,
        NO_ATTENTION,
    ] = ()
    temperal_downsample: Annotated[
        tuple[bool, ...],
        Meta(min_length=1, max_length=MAX_LEVELS - 1),
        "For each transition between levels, whether it also halves the number of frames (at most two do).",
        NETWORK,
        Summary("temporal", 3),
    ] = (False, True, True)
    dropout: Dropout = 0.0
    latents_mean: Annotated[tuple[Mean, ...], "Mean of each channel of the latents; used by pipelines.", UNUSED] = MEAN
    latents_std: Annotated[
        tuple[Deviation, ...], "Standard deviation of each channel of the latents; used by pipelines.", UNUSED
    ] = STD
    is_residual: Annotated[
        bool, "Whether the blocks have the shortcuts of Wan 2.2.", NETWORK, Summary("residual", 4)
    ] = False
    in_channels: Annotated[
        Width, "Number of channels of the encoder's input, after patches have become channels.", NETWORK
    ] = 3
    out_channels: Annotated[
        Width, "Number of channels of the decoder's output, before channels become patches.", NETWORK
    ] = 3
    patch_size: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        "Height and width of the patches of Wan 2.2; null for no patches.",
        NETWORK,
        Summary("patch", 5),
    ] = None
    scale_factor_temporal: Annotated[Width | None, "Number of video frames per latent frame; not used.", UNUSED] = 4
    scale_factor_spatial: Annotated[
        Width | None, "Number of pixels per latent pixel along each axis, for tiling; not used.", UNUSED
    ] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        levels, steps = len(self.dim_mult), len(self.temperal_downsample)
        if steps != levels - 1:
            raise ValueError(
                f"temperal_downsample has {steps} values for {levels - 1} steps between levels of dim_mult"
            )
        if sum(self.temperal_downsample) > 2:
            raise ValueError(
                f"temperal_downsample halves the frames {sum(self.temperal_downsample)} times; the library's encoder, "
                f"which takes {GROUP} at a time, cannot run more than 2"
            )
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.patch**2:
                raise ValueError(
                    f"{name} {getattr(self, name)} is not a multiple of the {self.patch**2} pixels of a patch"
                )
        if wrong := list(faults(self)):
            raise ValueError("; ".join(wrong))
        require_sizes(self)

    @property
    def patch(self) -> int:
        """Height and width of the patches whose pixels are channels of the network; 1 without patches."""
        return self.patch_size or 1

    @property
    def decoder_dim(self) -> int:
        """The decoder's base width."""
        return self.base_dim if self.decoder_base_dim is None else self.decoder_base_dim

    @property
    def frames(self) -> int:
        """Video frames of one latent frame, except for the first, which has one."""
        return int(2 ** sum(self.temperal_downsample))

    @property
    def pixels(self) -> int:
        """Height and width in pixels of one latent pixel; those of a video must be multiples of it."""
        return int(self.patch * 2 ** (len(self.dim_mult) - 1))

    @property
    def normalises(self) -> bool:
        """Whether there is a mean and a deviation for each channel of the latents."""
        return len(self.latents_mean) == len(self.latents_std) == self.z_dim


_VARIABLES = 10
"""Variables of a residual block with its shortcut, and of its part of the steps."""


@dataclass(frozen=True)
class CoderStage:
    """One level of the encoder or the decoder.

    ``inputs`` are the input channels of each residual block, ``channels`` its output channels. ``resized`` are the
    channels after the step to the next level, 0 without one; ``temporal`` states whether that step also changes the
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


def down_stages(config: Config) -> list[CoderStage]:
    """The encoder's levels, from the video's size to the smallest."""
    widths = [config.base_dim * factor for factor in (1, *config.dim_mult)]
    stages = []
    for index, (before, channels) in enumerate(pairwise(widths)):
        last = index == len(config.dim_mult) - 1
        inputs = (before, *[channels] * (config.num_res_blocks - 1))
        stages.append(
            CoderStage(inputs, channels, 0 if last else channels, not last and config.temperal_downsample[index])
        )
    return stages


def up_stages(config: Config) -> list[CoderStage]:
    """The decoder's levels, from the smallest size to the video's."""
    # The decoder begins at the width that the encoder ends with.
    widths = [config.decoder_dim * factor for factor in (config.dim_mult[-1], *config.dim_mult[::-1])]
    stages = []
    for index, (before, channels) in enumerate(pairwise(widths)):
        last = index == len(config.dim_mult) - 1
        first = before // 2 if index and not config.is_residual else before  # the step before it has halved them
        inputs = (first, *[channels] * config.num_res_blocks)
        # In Wan 2.1 a step up also halves the channels, in Wan 2.2 the next level's first block changes them.
        resized = 0 if last else channels if config.is_residual else channels // 2
        stages.append(CoderStage(inputs, channels, resized, not last and config.temperal_downsample[::-1][index]))
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
    # Two convolutions of 3 x 3 x 3.
    blocks = [27 * (inputs + stage.channels) * stage.channels for stage in stages for inputs in stage.inputs]
    require_model_size(_VARIABLES * len(blocks), sum(blocks), "about ")
