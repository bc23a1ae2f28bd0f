"""``config.json`` of a UNet2DModel as a JSON Schema, from the lists that its reader uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from wdport.diffusion.scheduler import Scheduler
from wdport.families.unet2d.config import BOUNDS, CHOICES, DOWN, FIELDS, KINDS, OPTIONAL, RES, UP

_TYPES: Final = {int: "integer", float: "number", bool: "boolean", str: "string"}

_MEANINGS: Final[Mapping[str, str]] = {
    "sample_size": "Height and width of the images that the model was made for: one number, or two.",
    "in_channels": "Channels of the input.",
    "out_channels": "Channels of the output.",
    "center_input_sample": "Whether the input x is rescaled to 2 x - 1.",
    "time_embedding_type": "Kind of the time embedding.",
    "time_embedding_dim": "Width of the time embedding; four times the first of block_out_channels if null.",
    "freq_shift": "Shift in the frequencies of a positional time embedding.",
    "flip_sin_to_cos": "Whether cosines come first.",
    "down_block_types": "Block of each level on the way down.",
    "mid_block_type": "Block between the down and the up blocks; null for none.",
    "up_block_types": "Block of each level on the way up.",
    "block_out_channels": "Channels of each level.",
    "layers_per_block": "Residual blocks of a level.",
    "mid_block_scale_factor": "Divisor of the outputs of residual blocks in the middle; not zero.",
    "downsample_padding": "Padding of the strided convolutions.",
    "downsample_type": "How the resolution is halved.",
    "upsample_type": "How the resolution is doubled.",
    "dropout": "Dropout rate of the training; inference does not use it.",
    "act_fn": "Activation.",
    "attention_head_dim": "Width of an attention head; all channels if null.",
    "norm_num_groups": "Groups of the group norms.",
    "attn_norm_num_groups": "Groups of the norm before the middle attention.",
    "norm_eps": "Epsilon of the group norms.",
    "resnet_time_scale_shift": "How the time conditions a residual block.",
    "add_attention": "Whether the middle block has attention.",
    "class_embed_type": "How a class conditions the network.",
    "num_class_embeds": "Number of classes.",
    "num_train_timesteps": "Steps of training, of a learned time embedding.",
    "scheduler": "Process that the network was trained to undo, as in scheduler_config.json; null: it is not sampled.",
}


_ALSO: Final[Mapping[str, tuple[str | None, ...]]] = {
    "act_fn": ("swish",), "downsample_type": (None,), "upsample_type": (None,),
}  # fmt: skip
"""Other words for the same."""

_LIMITS: Final[Mapping[str, Mapping[str, object]]] = {
    "dropout": {"minimum": 0, "exclusiveMaximum": 1},
    "norm_eps": {"minimum": 0, "exclusiveMaximum": 1e30},
    "mid_block_scale_factor": {"not": {"const": 0}, "exclusiveMinimum": -1e30, "exclusiveMaximum": 1e30},
    "freq_shift": {"exclusiveMinimum": -1e30, "exclusiveMaximum": 1e30},
}

_WIDTH: Final = dict(zip(("minimum", "maximum"), BOUNDS["in_channels"], strict=True))


def settings_schema() -> dict[str, object]:
    """Every field that is read; names that begin with ``_`` are the library's notes."""
    return {
        "type": "object",
        "description": "Configuration of a UNet2DModel as diffusers writes it. Absent fields have its defaults.",
        "properties": {
            "_class_name": {"description": "Class of the model.", "const": "UNet2DModel"},
            **{name: {"description": _MEANINGS[name], **_value(name)} for name in FIELDS},
        },
        "patternProperties": {"^_": {}},
        "additionalProperties": False,
    }


def _value(name: str) -> dict[str, object]:
    if name == "scheduler":
        known = {field.name: True for field in fields(Scheduler)}
        return {"anyOf": [{"type": "object", "properties": known, "additionalProperties": False}, {"type": "null"}]}
    if name in CHOICES:
        return {"enum": [*CHOICES[name], *_ALSO.get(name, ())]}
    told = _one(name)
    return {"anyOf": [told, {"type": "null"}]} if name in OPTIONAL else told


def _one(name: str) -> dict[str, Any]:
    """A value that is not null."""
    least_most = dict(zip(("minimum", "maximum"), BOUNDS.get(name, ()), strict=False))
    if name == "sample_size":
        size = {"type": "integer", **least_most}
        return {"anyOf": [size, {"type": "array", "items": size, "minItems": 2, "maxItems": 2}]}
    if name == "block_out_channels":
        return {"type": "array", "minItems": 1, "items": {"type": "integer", **_WIDTH}}
    if name in ("down_block_types", "up_block_types"):
        blocks = "|".join(DOWN if name == "down_block_types" else UP)
        return {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "pattern": f"^({RES})?({blocks})$"},
        }
    return {"type": _TYPES[KINDS[name][0][-1]], **least_most, **_LIMITS.get(name, {})}
