"""Find a network's configuration in ``config.json``, ``scheduler_config.json`` and the user's values, and compare it
with the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from wdport.diffusion.scheduler import Scheduler
from wdport.diffusion.scheduler_classes import OWN_STEPS
from wdport.errors import MisfitError
from wdport.families.library_config import LibraryConfig
from wdport.families.tensor_shapes import any_below, count, size
from wdport.families.unet2d.config import MID, Config
from wdport.families.unet2d.sampled import unsampled
from wdport.families.unet2d.sizes import require_sizes
from wdport.families.unet2d.stages import Stage, down_stages, faults, up_stages
from wdport.mapping.axes import Shape
from wdport.model import Document, Resolved, Source

SCHEDULER: Final = "scheduler_config.json"


def resolve(source: Source, config: Document, flags: Document) -> Resolved:
    """Determine the configuration; raises :class:`MisfitError` naming every contradiction."""
    document = CONFIG.read(source.document(), source.path)
    CONFIG.require_document(source, (document, config))
    if "scheduler" in document:
        raise MisfitError(source.path, "unknown field 'scheduler'", CONFIG.supported)
    stated = "scheduler" in config or "scheduler" in flags
    undone, refusal, notes = (None, None, ()) if stated else _scheduler(source)
    origin = "assumed" if undone is None else SCHEDULER
    resolved = CONFIG.resolve(source, {
        origin: {"scheduler": undone or Scheduler()}, "config.json": document, "config": config, "flag": flags,
    })  # fmt: skip
    if refusal is not None:
        if not unsampled(resolved.config):
            raise refusal
        unread = replace(resolved.config, scheduler=None)
        resolved, notes = replace(resolved, config=unread), (f"{SCHEDULER} is not read: {refusal.what}",)
    return replace(resolved, notes=(*_unused(resolved.config), *notes))


def _scheduler(source: Source) -> tuple[Scheduler | None, MisfitError | None, tuple[str, ...]]:
    """The scheduler from the file beside the model, the error for one that is not supported, and notes."""
    document = source.beside(SCHEDULER)
    if not document:
        return None, None, ()
    try:
        found = Scheduler.from_document(document)
    except ValueError as error:
        fix = "give `--set scheduler='{...}'` (docs/unet2d.md), or leave sampling out: `--set scheduler=null`"
        return None, MisfitError((source.path, SCHEDULER), str(error), fix), ()
    kind = str(document["_class_name"])
    note = f"of {SCHEDULER}, a {kind}, the diffusion is read; its steps are not among the samplers"
    return found, None, () if kind in OWN_STEPS else (note,)


def load(values: Document) -> Config:
    """Load a configuration and check that its network can be built; raises ``ValueError``."""
    config = require_sizes(Config.from_dict(values))
    if wrong := list(faults(config)):
        raise ValueError("; ".join(wrong))
    return config


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
    levels = [size(shapes, f"down_blocks.{at}.resnets.0.conv1.bias", 0) for at in range(count(shapes, "down_blocks"))]
    projected, channels = size(shapes, f"{first}time_emb_proj.weight", 0), size(shapes, f"{first}conv1.bias", 0)
    known = projected is not None and channels is not None
    scales = "scale_shift" if known and projected == 2 * (channels or 0) else "default"
    learned = _time_type(shapes) == "learned"
    return {
        "block_out_channels": None if not levels or None in levels else levels,
        "in_channels": size(shapes, "conv_in.weight", 1),
        "out_channels": size(shapes, "conv_out.weight", 0),
        "time_embedding_dim": size(shapes, "time_embedding.linear_1.weight", 0),
        "layers_per_block": count(shapes, "down_blocks.0.resnets") or None,
        "resnet_time_scale_shift": scales if known else None,
        "num_train_timesteps": size(shapes, "time_proj.weight", 0) if learned else None,
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
        "num_class_embeds": size(shapes, "class_embedding.weight", 0),
        "class_embed_type": "timestep" if any_below(shapes, "class_embedding.linear_1.") else None,
        "mid_block_type": MID if any_below(shapes, "mid_block.") else None,
        "add_attention": any_below(shapes, "mid_block.attentions."),
    }


def _stages(way: str, stages: Iterable[Stage], shapes: Mapping[str, Shape]) -> Iterator[str]:
    """Blocks whose attention or change of resolution contradicts their types."""
    for at, stage in enumerate(stages):
        field, prefix = f"{way}_block_types[{at}]", f"{way}_blocks.{at}."
        if stage.attention != any_below(shapes, f"{prefix}attentions."):
            yield f"{field} has {'' if stage.attention else 'no '}attention, but the tensors show the opposite"
        sampler = f"{prefix}{way}samplers.0."
        found = (
            "conv"
            if any_below(shapes, f"{sampler}conv.")
            else "resnet"
            if any_below(shapes, f"{sampler}conv1.")
            else ""
        )
        if found != stage.step:
            yield f"{field} ends with {_STEPS[stage.step]}, but {_STEPS[found]} in the tensors"


_STEPS: Final = {"conv": "a convolution", "resnet": "a resnet", "": "nothing"}
"""How a stage changes the resolution, as text."""


def _time_type(shapes: Mapping[str, Shape]) -> str:
    return {0: "positional", 1: "fourier"}.get(len(shapes.get("time_proj.weight", ())), "learned")


def _word(value: object) -> str:
    return "null" if value is None else str(value)


CONFIG: Final = LibraryConfig(
    Config, "UNet2DModel", "diffusers 0.42.1", "network", "an image model", load, contradictions
)
"""The library's class, and how its ``config.json`` is read."""
