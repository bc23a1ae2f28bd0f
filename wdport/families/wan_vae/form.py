"""``config.json`` of an AutoencoderKLWan as a JSON Schema, from the lists that its reader uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wdport.families.wan_vae.config import BOUNDS, FIELDS, KINDS, LISTS, OPTIONAL
from wdport.limits import MAX_LEVELS, MAX_WIDTH

_TYPES: Final = {int: "integer", float: "number", bool: "boolean"}

_MEANINGS: Final[Mapping[str, str]] = {
    "base_dim": "Channels of the encoder's first level, before dim_mult.",
    "decoder_base_dim": "The same of the decoder; base_dim if null.",
    "z_dim": "Channels of the latents.",
    "dim_mult": "Channels of each level as a multiple of base_dim.",
    "num_res_blocks": "Residual blocks of a level of the encoder; the decoder has one more.",
    "attn_scales": "Sizes with attention among the down blocks; only an empty list is supported.",
    "temperal_downsample": "For each step between two levels, whether it halves the frames too (at most two do).",
    "dropout": "Dropout rate of the training; inference does not use it.",
    "latents_mean": "Mean of each channel of the latents, for pipelines.",
    "latents_std": "Standard deviation of each channel of the latents, for pipelines.",
    "is_residual": "Whether blocks have the shortcuts of Wan 2.2.",
    "in_channels": "Channels of the encoder's input, after patches have become channels.",
    "out_channels": "Channels of the decoder's output, before patches.",
    "patch_size": "Height and width of the patches of Wan 2.2; none if null.",
    "scale_factor_temporal": "Video frames of a latent frame; not used.",
    "scale_factor_spatial": "Pixels of a latent pixel, for tiles; not used.",
}

_ITEMS: Final[Mapping[str, Mapping[str, object]]] = {
    "dim_mult": {"minimum": 1, "maximum": MAX_WIDTH},
    "latents_mean": {"exclusiveMinimum": -1e30, "exclusiveMaximum": 1e30},
    "latents_std": {"exclusiveMinimum": 0, "exclusiveMaximum": 1e30},
}
_LENGTHS: Final[Mapping[str, Mapping[str, object]]] = {
    "dim_mult": {"minItems": 2, "maxItems": MAX_LEVELS},
    "temperal_downsample": {"minItems": 1, "maxItems": MAX_LEVELS - 1},
    "attn_scales": {"maxItems": 0},
}


def settings_schema() -> dict[str, object]:
    """Every field that is read; names that begin with ``_`` are the library's notes."""
    return {
        "type": "object",
        "description": "Configuration of an AutoencoderKLWan as diffusers writes it. Absent fields have its defaults.",
        "properties": {
            "_class_name": {"description": "Class of the model.", "const": "AutoencoderKLWan"},
            **{name: {"description": _MEANINGS[name], **_value(name)} for name in FIELDS},
        },
        "patternProperties": {"^_": {}},
        "additionalProperties": False,
    }


def _value(name: str) -> dict[str, object]:
    if name in LISTS:
        items = {"type": _TYPES[LISTS[name][0][-1]], **_ITEMS.get(name, {})}
        return {"type": "array", "items": items, **_LENGTHS.get(name, {})}
    limits = {"minimum": 0, "exclusiveMaximum": 1} if name == "dropout" else (
        dict(zip(("minimum", "maximum"), BOUNDS.get(name, ()), strict=False)))  # fmt: skip
    told: dict[str, object] = {"type": _TYPES[KINDS[name][0][-1]], **limits}
    return {"anyOf": [told, {"type": "null"}]} if name in OPTIONAL else told
