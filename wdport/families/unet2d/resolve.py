"""Find a model's configuration: ``config.json``, the user's values, the library's defaults.

Names and shapes of the tensors also determine most sizes. Contradictions are reported in one error before a model is
built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from wdport.diffusion.scheduler import Scheduler
from wdport.diffusion.scheduler_classes import OWN_STEPS
from wdport.errors import MisfitError, UsageError, printable
from wdport.families.unet2d.config import FIELDS, MID, Config
from wdport.families.unet2d.sampled import unsampled
from wdport.families.unet2d.sizes import require_sizes
from wdport.families.unet2d.stages import Stage, down_stages, faults, up_stages
from wdport.mapping.axes import Shape
from wdport.model import UNITS, Document, Resolved, Source

CLASS: Final = "UNet2DModel"
SCHEDULER: Final = "scheduler_config.json"
_FIX: Final = "correct config.json, or give the right value with --config FILE or --set NAME=VALUE"
_SUPPORTED: Final = f"the fields of {CLASS} in diffusers 0.42.1 are supported"
_INDEX: Final = re.compile(r"\.(0|[1-9][0-9]{0,5})\.")


def resolve(source: Source, config: Document, flags: Document) -> Resolved:
    """Determine the configuration; raises :class:`MisfitError` naming every contradiction."""
    document = _fields(source.document(), source.path)
    if not document and not config:
        fix = "give the model's folder, or --config FILE"
        raise MisfitError(source.path, "there is no config.json with the network's configuration", fix)
    statistics = [name for name in UNITS if name in flags]
    if statistics:
        raise MisfitError(source.path, "an image model has no series to normalise", "leave out --norm-stats and --data")
    if "scheduler" in document:
        raise MisfitError(source.path, "unknown field 'scheduler'", _SUPPORTED)
    settled = {**config, **flags}
    undone, refusal, notes = (None, None, ()) if "scheduler" in settled else _scheduler(source)
    given = {
        "scheduler": "assumed" if undone is None else SCHEDULER,
        **dict.fromkeys(document, "config.json"),
        **dict.fromkeys(config, "config"),
        **dict.fromkeys(flags, "flag"),
    }
    try:
        made = load({"scheduler": undone or Scheduler(), **document, **settled})
    except ValueError as error:
        raise MisfitError(source.path, str(error), _FIX) from None
    if refusal is not None:
        if not unsampled(made):
            raise refusal
        made, notes = replace(made, scheduler=None), (f"{SCHEDULER} is not read: {refusal.what}",)
    wrong = list(contradictions(made, source.shapes))
    if wrong:
        raise MisfitError(source.path, "; ".join(wrong), _FIX, wrong)
    return Resolved(made, {name: given.get(name, "default") for name in FIELDS}, notes=(*_unused(made), *notes))


def _scheduler(source: Source) -> tuple[Scheduler | None, MisfitError | None, tuple[str, ...]]:
    """The scheduler from the file beside the model, the error for one that is not supported, and notes."""
    document = source.beside(SCHEDULER)
    if not document:
        return None, None, ()
    try:
        found = Scheduler.from_document(document)
    except ValueError as error:
        fix = "give --set scheduler='{...}' (docs/unet2d.md), or leave sampling out: --set scheduler=null"
        return None, MisfitError((source.path, SCHEDULER), str(error), fix), ()
    kind = str(document["_class_name"])
    note = f"of {SCHEDULER}, a {kind}, the diffusion is read; its steps are not among the samplers"
    return found, None, () if kind in OWN_STEPS else (note,)


def load(values: Document) -> Config:
    """Load a configuration and check that its network can be built; raises ``ValueError``."""
    made = require_sizes(Config.from_dict(values))
    if wrong := list(faults(made)):
        raise ValueError("; ".join(wrong))
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
    if config.class_embed_type is not None and config.num_class_embeds is not None:
        found.append(f"num_class_embeds is not used with class_embed_type {config.class_embed_type}, as in the library")
    if config.dropout:
        found.append(f"dropout {config.dropout} is off, as always in inference")
    return tuple(found)


def contradictions(config: Config, shapes: Mapping[str, Shape]) -> Iterator[str]:
    """Contradictions with the tensors; sizes that these do not determine are skipped."""
    ours, theirs = _sizes(config), _told_sizes(shapes)
    differing = [name for name in ours if theirs[name] not in (None, ours[name])]
    parts, told = _parts(config), _told_parts(shapes)
    for name in (*differing, *(name for name in parts if parts[name] != told[name])):
        mine, other = (ours[name], theirs[name]) if name in ours else (parts[name], told[name])
        yield f"{name} is {_word(mine)}, but {_word(other)} in the tensors"
    if "block_out_channels" not in differing:
        yield from _stages("down", down_stages(config), shapes)
        yield from _stages("up", up_stages(config), shapes)


def _sizes(config: Config) -> dict[str, object]:
    """What the shapes of the network's tensors tell."""
    return {
        "block_out_channels": list(config.block_out_channels),
        "in_channels": config.in_channels,
        "out_channels": config.out_channels,
        "time_embedding_dim": config.time_width,
        "layers_per_block": config.layers_per_block,
        "resnet_time_scale_shift": config.resnet_time_scale_shift,
        "num_train_timesteps": config.num_train_timesteps,
    }


def _told_sizes(shapes: Mapping[str, Shape]) -> dict[str, object]:
    """The same, read from the tensors; ``None`` if unknown."""
    first = "down_blocks.0.resnets.0."
    levels = [_axis(shapes, f"down_blocks.{at}.resnets.0.conv1.bias", 0) for at in range(_count(shapes, "down_blocks"))]
    projected, channels = _axis(shapes, f"{first}time_emb_proj.weight", 0), _axis(shapes, f"{first}conv1.bias", 0)
    known = projected is not None and channels is not None
    scales = "scale_shift" if known and projected == 2 * (channels or 0) else "default"
    learned = _time_type(shapes) == "learned"
    return {
        "block_out_channels": None if not levels or None in levels else levels,
        "in_channels": _axis(shapes, "conv_in.weight", 1),
        "out_channels": _axis(shapes, "conv_out.weight", 0),
        "time_embedding_dim": _axis(shapes, "time_embedding.linear_1.weight", 0),
        "layers_per_block": _count(shapes, "down_blocks.0.resnets") or None,
        "resnet_time_scale_shift": scales if known else None,
        "num_train_timesteps": _axis(shapes, "time_proj.weight", 0) if learned else None,
    }


def _parts(config: Config) -> dict[str, object]:
    """Optional parts of the network, by their configuration field."""
    mid = config.mid_block_type is not None
    return {
        "time_embedding_type": config.time_embedding_type,
        "num_class_embeds": config.num_class_embeds if config.classes == "table" else None,
        "class_embed_type": "timestep" if config.classes == "timestep" else None,
        "mid_block_type": config.mid_block_type,
        **({"add_attention": config.add_attention} if mid else {}),
    }


def _told_parts(shapes: Mapping[str, Shape]) -> dict[str, object]:
    """The same, from the existing tensors."""
    return {
        "time_embedding_type": _time_type(shapes),
        "num_class_embeds": _axis(shapes, "class_embedding.weight", 0),
        "class_embed_type": "timestep" if _any(shapes, "class_embedding.linear_1.") else None,
        "mid_block_type": MID if _any(shapes, "mid_block.") else None,
        "add_attention": _any(shapes, "mid_block.attentions."),
    }


def _stages(way: str, stages: Iterable[Stage], shapes: Mapping[str, Shape]) -> Iterator[str]:
    """Blocks whose attention or change of resolution contradicts their types."""
    for at, stage in enumerate(stages):
        field, prefix = f"{way}_block_types[{at}]", f"{way}_blocks.{at}."
        if stage.attention != _any(shapes, f"{prefix}attentions."):
            yield f"{field} has {'' if stage.attention else 'no '}attention, but the tensors show the opposite"
        sampler = f"{prefix}{way}samplers.0."
        found = "conv" if _any(shapes, f"{sampler}conv.") else "resnet" if _any(shapes, f"{sampler}conv1.") else ""
        if found != stage.step:
            yield f"{field} ends with {_STEPS[stage.step]}, but {_STEPS[found]} in the tensors"


_STEPS: Final = {"conv": "a convolution", "resnet": "a resnet", "": "nothing"}
"""How a stage changes the resolution, as text."""


def _count(shapes: Mapping[str, Shape], prefix: str) -> int:
    """The count of consecutive numbers from 0 after ``prefix``."""
    found = {int(m[1]) for name in shapes if name.startswith(prefix) and (m := _INDEX.match(name, len(prefix)))}
    return next(i for i in range(len(found) + 1) if i not in found)


def _axis(shapes: Mapping[str, Shape], name: str, axis: int) -> int | None:
    shape = shapes.get(name, ())
    return shape[axis] if axis < len(shape) else None


def _any(shapes: Mapping[str, Shape], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in shapes)


def _time_type(shapes: Mapping[str, Shape]) -> str:
    return {0: "positional", 1: "fourier"}.get(len(shapes.get("time_proj.weight", ())), "learned")


def _word(value: object) -> str:
    return "null" if value is None else str(value)
