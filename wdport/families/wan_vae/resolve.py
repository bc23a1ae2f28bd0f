"""Find an autoencoder's configuration in ``config.json`` and the user's values, and compare it with the tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from wdport.families.library_config import LibraryConfig, require_sizes
from wdport.families.tensor_shapes import any_below, count, size
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.stages import down_stages, faults, up_stages
from wdport.mapping.axes import Shape
from wdport.model import Document, Resolved, Source

_VARIABLES: Final = 10
"""Of a residual block with its shortcut, and its part of the steps."""


def resolve(source: Source, config: Document, flags: Document) -> Resolved:
    """Determine the configuration; raises :class:`MisfitError` naming every contradiction."""
    document = CONFIG.read(source.document(), source.path)
    CONFIG.require_document(source, (document, config))
    resolved = CONFIG.resolve(source, {"config.json": document, "config": config, "flag": flags})
    return replace(resolved, notes=_unused(resolved.config))


def load(values: Document) -> Config:
    """Load a configuration and check that its model can be built; raises ``ValueError``."""
    config = Config.from_dict(values)
    if wrong := list(faults(config)):
        raise ValueError("; ".join(wrong))
    stages = (*down_stages(config), *up_stages(config))
    blocks = [27 * (inputs + stage.channels) * stage.channels for stage in stages for inputs in stage.inputs]
    require_sizes(_VARIABLES * len(blocks), sum(blocks))
    return config


def _unused(config: Config) -> tuple[str, ...]:
    """Notes on values without effect."""
    found = []
    if not config.normalises:
        told = f"{len(config.latents_mean)} and {len(config.latents_std)} values for {config.z_dim} channels"
        found.append(f"latents_mean and latents_std have {told}, so latents cannot be normalised")
    if config.dropout:
        found.append(f"dropout {config.dropout} is off, as always in inference")
    return tuple(found)


def contradictions(config: Config, shapes: Mapping[str, Shape]) -> Iterator[str]:
    """Contradictions with the tensors; what these do not determine is skipped."""
    ours, theirs = _sizes(config), _told(shapes)
    for name, value in ours.items():
        if theirs[name] not in (None, value):
            yield f"{name} is {json.dumps(value)}, but {json.dumps(theirs[name])} in the tensors"


def _sizes(config: Config) -> dict[str, object]:
    """What the names and shapes of the model's tensors tell."""
    return {
        "is_residual": config.is_residual,
        "base_dim": config.base_dim,
        "decoder_base_dim times the last of dim_mult": config.decoder_dim * config.dim_mult[-1],
        "z_dim": config.z_dim,
        "in_channels": config.in_channels,
        "out_channels": config.out_channels,
        "num_res_blocks": config.num_res_blocks,
        "dim_mult times decoder_base_dim": [stage.channels for stage in up_stages(config)][::-1],
        "temperal_downsample": list(config.temperal_downsample),
    }


def _told(shapes: Mapping[str, Shape]) -> dict[str, object]:
    """The same, read from the tensors; ``None`` if unknown."""
    levels = count(shapes, "decoder.up_blocks")
    widths = [size(shapes, f"decoder.up_blocks.{at}.resnets.0.conv2.bias", 0) for at in range(levels)]
    steps = [any(f"decoder.up_blocks.{at}.{name}.time_conv.bias" in shapes for name in ("upsampler", "upsamplers.0"))
             for at in range(levels - 1)]  # fmt: skip
    blocks = count(shapes, "decoder.up_blocks.0.resnets")
    return {
        "is_residual": any_below(shapes, "encoder.down_blocks.0.resnets."),
        "base_dim": size(shapes, "encoder.conv_in.weight", 0),
        "decoder_base_dim times the last of dim_mult": size(shapes, "decoder.conv_in.weight", 0),
        "z_dim": size(shapes, "post_quant_conv.weight", 0),
        "in_channels": size(shapes, "encoder.conv_in.weight", 1),
        "out_channels": size(shapes, "decoder.conv_out.weight", 0),
        "num_res_blocks": blocks - 1 if blocks else None,
        "dim_mult times decoder_base_dim": None if not widths or None in widths else widths[::-1],
        "temperal_downsample": steps[::-1] if levels else None,
    }


CONFIG: Final = LibraryConfig(
    Config, "AutoencoderKLWan", "diffusers 0.42.1", "autoencoder", "a video autoencoder", load, contradictions
)
"""The library's class, and how its ``config.json`` is read."""
