"""Find an autoencoder's configuration: ``config.json``, the user's values, the library's defaults.

Names and shapes of the tensors also determine most sizes. Contradictions are reported in one error before a model is
built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from wdport.errors import MisfitError, UsageError, printable
from wdport.families.wan_vae.config import FIELDS, Config
from wdport.families.wan_vae.stages import down_stages, faults, up_stages
from wdport.limits import MAX_VALUES, MAX_VARIABLES
from wdport.mapping.axes import Shape
from wdport.model import UNITS, Document, Resolved, Source

CLASS: Final = "AutoencoderKLWan"
_FIX: Final = "correct config.json, or give the right value with --config FILE or --set NAME=VALUE"
_SUPPORTED: Final = f"the fields of {CLASS} in diffusers 0.42.1 are supported"
_INDEX: Final = re.compile(r"\.(0|[1-9][0-9]{0,5})\.")

_VARIABLES: Final = 10
"""Of a residual block with its shortcut, and its part of the steps."""


def resolve(source: Source, config: Document, flags: Document) -> Resolved:
    """Determine the configuration; raises :class:`MisfitError` naming every contradiction."""
    document = _fields(source.document(), source.path)
    if not document and not config:
        fix = "give the model's folder, or --config FILE"
        raise MisfitError(source.path, "there is no config.json with the autoencoder's configuration", fix)
    if any(name in flags for name in UNITS):
        what = "a video autoencoder has no series to normalise"
        raise MisfitError(source.path, what, "leave out --norm-stats and --data")
    given = {
        **dict.fromkeys(document, "config.json"),
        **dict.fromkeys(config, "config"),
        **dict.fromkeys(flags, "flag"),
    }
    try:
        made = load({**document, **config, **flags})
    except ValueError as error:
        raise MisfitError(source.path, str(error), _FIX) from None
    wrong = list(contradictions(made, source.shapes))
    if wrong:
        raise MisfitError(source.path, "; ".join(wrong), _FIX, wrong)
    return Resolved(made, {name: given.get(name, "default") for name in FIELDS}, notes=_unused(made))


def load(values: Document) -> Config:
    """Load a configuration and check that its model can be built; raises ``ValueError``."""
    made = Config.from_dict(values)
    if wrong := list(faults(made)):
        raise ValueError("; ".join(wrong))
    blocks = [27 * (inputs + stage.channels) * stage.channels for stages in (down_stages(made), up_stages(made))
              for stage in stages for inputs in stage.inputs]  # fmt: skip
    for count, most, word in ((_VARIABLES * len(blocks), MAX_VARIABLES, "variables"),
                              (sum(blocks), MAX_VALUES, "values")):  # fmt: skip
        if count > most:
            raise ValueError(f"the sizes are those of a model of about {count} {word}, at most {most} are supported")
    return made


def read_settings(document: Document, where: str | Path) -> dict[str, object]:
    """The fields of a configuration file, which is a ``config.json`` or part of one."""
    return dict(_fields(document, where))


def parse_setting(key: str, text: str) -> object:
    """One ``--set KEY=VALUE``, the value as JSON or text; raises ``UsageError``."""
    if key not in FIELDS:
        raise UsageError(
            f"--set {printable(key)}", "is not a field of this model's config.json", f"use one of {', '.join(FIELDS)}"
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None if text in ("None", "null") else text


def _fields(document: Document, where: str | Path) -> dict[str, object]:
    """The fields of the model; raises :class:`MisfitError` for unknown names. Names that begin with ``_`` are the
    library's own notes."""
    own = {name: value for name, value in document.items() if not name.startswith("_")}
    kind = document.get("_class_name", CLASS)
    if kind != CLASS:
        what = f"_class_name is {printable(repr(kind), 60)}"
        raise MisfitError(where, what, f"{CLASS} is supported; other classes need their own table (--mapping)")
    if unknown := [name for name in own if name not in FIELDS]:
        raise MisfitError(where, f"unknown field {printable(repr(unknown[0]), 60)}", _SUPPORTED, unknown)
    return own


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
            yield f"{name} is {_word(value)}, but {_word(theirs[name])} in the tensors"


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
    levels = _count(shapes, "decoder.up_blocks")
    widths = [_axis(shapes, f"decoder.up_blocks.{at}.resnets.0.conv2.bias", 0) for at in range(levels)]
    steps = [any(f"decoder.up_blocks.{at}.{name}.time_conv.bias" in shapes for name in ("upsampler", "upsamplers.0"))
             for at in range(levels - 1)]  # fmt: skip
    blocks = _count(shapes, "decoder.up_blocks.0.resnets")
    return {
        "is_residual": _any(shapes, "encoder.down_blocks.0.resnets."),
        "base_dim": _axis(shapes, "encoder.conv_in.weight", 0),
        "decoder_base_dim times the last of dim_mult": _axis(shapes, "decoder.conv_in.weight", 0),
        "z_dim": _axis(shapes, "post_quant_conv.weight", 0),
        "in_channels": _axis(shapes, "encoder.conv_in.weight", 1),
        "out_channels": _axis(shapes, "decoder.conv_out.weight", 0),
        "num_res_blocks": blocks - 1 if blocks else None,
        "dim_mult times decoder_base_dim": None if not widths or None in widths else widths[::-1],
        "temperal_downsample": steps[::-1] if levels else None,
    }


def _count(shapes: Mapping[str, Shape], prefix: str) -> int:
    """The count of consecutive numbers from 0 after ``prefix``."""
    found = {int(m[1]) for name in shapes if name.startswith(prefix) and (m := _INDEX.match(name, len(prefix)))}
    return next(i for i in range(len(found) + 1) if i not in found)


def _axis(shapes: Mapping[str, Shape], name: str, axis: int) -> int | None:
    shape = shapes.get(name, ())
    return shape[axis] if axis < len(shape) else None


def _any(shapes: Mapping[str, Shape], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in shapes)


def _word(value: object) -> str:
    return json.dumps(value)
