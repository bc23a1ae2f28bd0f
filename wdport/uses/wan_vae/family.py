"""AutoencoderKLWan as a family: the object through which the rest of wdport uses it, with inputs and outputs at a size
suitable for comparisons in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from wdport.compare.findings import Gate
from wdport.compare.gate_bounds import Bound
from wdport.families.shapes import Shapes, any_below, count, size
from wdport.models.interface import Coded, Function, Port, Signature
from wdport.recording.input_text import parse_input
from wdport.uses.library_config import LibraryFamily
from wdport.uses.wan_vae.config import GROUP, Config, down_stages, up_stages

if TYPE_CHECKING:
    from wdport.families.roles import Documented, Family, Referenced
    from wdport.uses.roles import Autoencoder, Programmed
    from wdport.uses.wan_vae.port import WanVAE

BOUNDS: Final[Mapping[str, Bound]] = MappingProxyType({
    "chunks": Bound(
        1e-10,
        "relative float64 error of latents and videos computed in chunks, and of the videos as bytes",
        "chunks (G)",
    ),
})  # fmt: skip
"""Measured: below 1e-14; a wrong byte is an error of 1e-4 and more."""

GROUPS: Final = 2
"""Groups of frames after the first: in the second, every layer at the latents' size sees two frames before it."""

HEIGHT, WIDTH = 2, 3
"""Size of the latents; height and width differ, so that an exchange is noticed."""


def signature(config: Config) -> Signature:
    """A video (B, C, T, H, W) of two lengths; the outputs are the mean and log-variance of its posterior, and the video
    decoded from the mean."""
    channels, frames = config.in_channels // config.patch**2, 1 + GROUP * GROUPS
    height, width = HEIGHT * config.pixels, WIDTH * config.pixels
    video = parse_input(f"video: b c={channels} t={frames}..{frames + GROUP} h={height} w={width} -> b t h w c")
    axes = "b c t h w -> b t h w c"
    outputs = tuple(Port(name, axes) for name in ("mean", "logvar", "video"))
    note = (
        f"compared at {frames} frames of {height} x {width}: the network takes any multiple of {config.pixels} pixels"
    )
    return Signature((video,), outputs, (note,))


_UPSAMPLERS: Final = ("upsampler", "upsamplers.0")
"""The step of a level of the decoder, in Wan 2.2 and in Wan 2.1."""


class WanVaeFamily(LibraryFamily[Config]):
    """A video autoencoder in the roles of :mod:`wdport.families.roles`."""

    name = "wan_vae"
    configuration = Config
    keras_class = "WanVAE"
    library_class = "AutoencoderKLWan"
    part, model_phrase = "autoencoder", "a video autoencoder"
    bounds: Mapping[str, Bound] = BOUNDS
    signature = staticmethod(signature)

    def sizes(self, shapes: Shapes) -> dict[str, object]:
        levels, blocks = count(shapes, "decoder.up_blocks"), count(shapes, "decoder.up_blocks.0.resnets")
        ups = [f"decoder.up_blocks.{level}." for level in reversed(range(levels))]
        widths = [size(shapes, f"{up}resnets.0.conv2.bias", 0) for up in ups]
        # Listed as the encoder's steps, which the decoder has in reverse.
        steps = [any(f"{up}{name}.time_conv.bias" in shapes for name in _UPSAMPLERS) for up in ups[1:]]
        return {
            "is_residual": any_below(shapes, "encoder.down_blocks.0.resnets."),
            "base_dim": size(shapes, "encoder.conv_in.weight", 0),
            "decoder_base_dim": size(shapes, "decoder.conv_in.weight", 0),
            "z_dim": size(shapes, "post_quant_conv.weight", 0),
            "in_channels": size(shapes, "encoder.conv_in.weight", 1),
            "out_channels": size(shapes, "decoder.conv_out.weight", 0),
            # A level of the decoder has one block more than one of the encoder.
            "num_res_blocks": blocks - 1 if blocks else None,
            "dim_mult": None if not widths or None in widths else widths,
            "temperal_downsample": steps if levels else None,
        }

    def compared(self, config: Config) -> dict[str, object]:
        base, factors = config.decoder_dim, config.dim_mult
        return {
            "decoder_base_dim": ("decoder_base_dim times the last of dim_mult", base * factors[-1]),
            "dim_mult": ("dim_mult times decoder_base_dim", [base * factor for factor in factors]),
        }

    def notes(self, config: Config) -> Iterator[str]:
        if not config.normalises:
            lengths = f"{len(config.latents_mean)} and {len(config.latents_std)} values for {config.z_dim} channels"
            yield f"latents_mean and latents_std have {lengths}, so latents cannot be normalised"
        yield from super().notes(config)

    def features(self, config: Config) -> frozenset[str]:
        """Optional parts, by their names under ``when:`` in the table."""
        kind = "residual" if config.is_residual else "plain"
        names = {kind}
        if any(config.temperal_downsample):
            names.add(f"{kind}_temporal")
        if any(stage.shortcut for stage in down_stages(config)):
            names.add(f"{kind}_down_shortcut")
        if any(stage.shortcut for stage in up_stages(config)):
            names.add("up_shortcut")
        return frozenset(names)

    def coded(self, config: Config) -> Coded:
        pixels = config.patch**2
        return Coded(config.in_channels // pixels, config.out_channels // pixels, config.z_dim, config.frames,
                     config.pixels, config.normalises)  # fmt: skip

    def coder(self, model: WanVAE) -> WanVAE:
        return model

    def functions(self, model: WanVAE) -> Mapping[str, Function]:
        from wdport.uses.wan_vae.codec import functions

        return functions(model)

    def gates(self, config: Config) -> Sequence[Gate]:
        import keras  # noqa: F401  as in build

        from wdport.uses.wan_vae.gates import gates

        return gates(config, BOUNDS)


FAMILY = WanVaeFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Referenced, Autoencoder, Programmed] = (FAMILY,) * 5
