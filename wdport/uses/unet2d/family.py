"""UNet2DModel as a family: the object through which the rest of wdport uses it, its sampling, and inputs for
comparisons in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wdport.base.errors import MisfitError
from wdport.families.shapes import Shapes, any_below, count, size
from wdport.models.interface import (
    PIXELS,
    Array,
    ArrayNames,
    Clipping,
    ConfigurationSource,
    Decoding,
    Diffused,
    Document,
    Port,
    Resolved,
    Signature,
    Stated,
    labels_of,
    unchanged,
)
from wdport.recording.input_text import parse_inputs
from wdport.uses.diffusion.diffusion import LEAST_SIGNAL
from wdport.uses.diffusion.noise_levels import EDM_SOLVER, LEVEL_CLASSES, NoiseLevels
from wdport.uses.diffusion.reference_scheduler import SCORE_SDE
from wdport.uses.diffusion.scheduler_config import LEARNED_RANGE, OWN_STEPS, Scheduler, read_scheduler
from wdport.uses.libraries import released_class
from wdport.uses.library_config import NONE, LibraryFamily
from wdport.uses.unet2d.config import MID, SCHEDULER, Config, attends, down_stages, mid_groups, up_stages

if TYPE_CHECKING:
    from jax import Array as Tensor
    from torch.nn import Module

    from wdport.families.roles import Documented, Family, Referenced
    from wdport.uses.diffusion.process import Process
    from wdport.uses.roles import Sampled

COUNT = 5
"""Number of steps that are compared."""

UNREAD: Final = "give `--set scheduler='{...}'` (docs/unet2d.md), or leave sampling out: `--set scheduler=null`"
"""What to do about a scheduler that is not supported."""

ROUNDING = 1e-5
"""Relative tolerance for the library's tables, which are products in float32."""


def misread_scheduler(config: Config, stated: Stated) -> list[str]:
    """The differences in words; none where the file does not exist, or is not what samples are drawn with. Raises
    :class:`MisfitError` for a file that is not supported."""
    document, ours = stated.beside(SCHEDULER), config.scheduler
    if not document or ours is None or "scheduler" in stated.values:
        return []
    try:
        read = read_scheduler(document)
    except ValueError as error:
        raise MisfitError(SCHEDULER, str(error), UNREAD) from None
    if type(read) is not type(ours):
        return [f"the class of the samplers' scheduler is not that of {SCHEDULER}"]
    kind = str(document["_class_name"])
    theirs: Any = released_class("diffusers", kind).from_config(dict(document))
    if isinstance(ours, NoiseLevels):
        return _misread_levels(theirs, ours)
    assert isinstance(ours, Scheduler)
    bars = theirs.alphas_cumprod.numpy()
    agreement = {
        "noise schedule": np.allclose(bars, ours.schedule().alpha_bar[1:], ROUNDING, LEAST_SIGNAL),
        "prediction_type": theirs.config.prediction_type == ours.prediction_type,
        **({"clipping": _clip(theirs) == ours.clipping, **_steps(theirs, ours)} if kind in OWN_STEPS else {}),
    }
    return [f"the {name} of the samplers is not that of {kind} as diffusers reads {SCHEDULER}"
            for name, same in agreement.items() if not same]  # fmt: skip


def _misread_levels(theirs: Any, ours: NoiseLevels) -> list[str]:
    theirs.set_timesteps(COUNT)
    if ours.kind == SCORE_SDE:
        theirs.set_sigmas(COUNT)
        levels = theirs.discrete_sigmas.flip(0)
    else:
        levels = theirs.sigmas[:COUNT]
    read, stored = dict(theirs.config), ours.to_dict()
    wrong = [name for name in stored if name in LEVEL_CLASSES[ours.kind] and read[name] != stored[name]]
    if not np.allclose(levels.numpy(), ours.levels(COUNT), ROUNDING):
        wrong.append("noise levels")
    return [f"{name} of the samplers is not that of {ours.kind} as diffusers reads {SCHEDULER}" for name in wrong]


def _clip(theirs: Any) -> Clipping | None:
    stated = theirs.config
    if stated.thresholding:
        return Clipping(stated.sample_max_value, stated.dynamic_thresholding_ratio)
    return Clipping(stated.clip_sample_range) if stated.clip_sample else None


def _steps(theirs: Any, ours: Scheduler) -> dict[str, bool]:
    count = min(COUNT, ours.num_train_timesteps)
    # The library numbers steps from 0, a plan from 1: step 0 is the clean sample.
    theirs.set_timesteps(count)
    return {"spacing of steps": np.array_equal(theirs.timesteps.numpy() + 1, ours.steps(count))}


STATES: Final = ArrayNames("states", "pixel", "pixel")
IMAGES: Final = ArrayNames("images", "pixel", "pixel")

_LAYERS: Final = 12
"""Upper estimate of the activations of a stage's size that exist at once, including skip connections."""


def unsampled(config: Config) -> str:
    """Why a model of this configuration cannot draw samples; "" if it can."""
    levels = isinstance(config.scheduler, NoiseLevels)
    if config.time_embedding_type == "fourier" and getattr(config.scheduler, "kind", "") != SCORE_SDE:
        return f"it takes noise levels, and no {SCHEDULER} of {SCORE_SDE} states them"
    if config.time_embedding_type == "learned" and levels:
        return "its learned embedding takes whole steps, and its scheduler has noise levels"
    learned = getattr(config.scheduler, "variance_type", "") == LEARNED_RANGE
    if config.out_channels != config.in_channels * (2 if learned else 1):
        needed = ", and its scheduler needs a variance for each" if learned else ""
        return f"it maps {config.in_channels} channels to {config.out_channels}{needed}"
    if config.classes not in ("", "table"):
        return f"its class embedding is a {config.classes}, and only tables of classes are sampled"
    if config.sample_size is None:
        return "its sample_size is null; convert it with `--set sample_size=N`"
    if any(size % config.stride for size in _size(config)):
        return f"its sample_size is not a multiple of {config.stride}, and the network does not run there"
    if config.scheduler is None:
        return "its scheduler is null; convert it with `--set scheduler='{...}'`"
    return ""


def diffused(config: Config) -> Diffused:
    """Images (H, W, C) as states and as samples."""
    shape = (*_size(config), config.in_channels)
    clip = None if config.scheduler is None else config.scheduler.clipping
    factor, offset = _pixels(config)
    mean, deviation = (offset,) * config.in_channels, (factor,) * config.in_channels
    decoding = Decoding(shape, unchanged, unchanged, mean, deviation, PIXELS)
    sizes = dict(zip(("height", "width", "channels"), shape, strict=True))
    labels = labels_of(config.num_class_embeds, config.no_class)
    return Diffused(shape, STATES, IMAGES, decoding, _numbers(config), sizes, clip, labels)


def to_images(config: Config, states: Array | Tensor, /) -> Tensor:
    """States (B, H, W, C) as images from 0 to 1, as in diffusers' pipelines."""
    import jax.numpy as jnp

    factor, offset = _pixels(config)
    return jnp.clip(states * factor + offset, 0.0, 1.0)


def _pixels(config: Config) -> tuple[float, float]:
    """The factor and the offset that make images from 0 to 1 of clean states."""
    return config.scheduler.pixels if isinstance(config.scheduler, NoiseLevels) else (0.5, 0.5)


def _size(config: Config) -> tuple[int, int]:
    size = config.sample_size or 0
    return (size, size) if isinstance(size, int) else size


def _numbers(config: Config) -> int:
    height, width = _size(config)
    total = 0
    for level, stage in enumerate(down_stages(config)):
        pixels = (height >> level) * (width >> level)
        heads = stage.channels // (config.attention_head_dim or stage.channels) if stage.attention else 0
        # Attention has a number for every pair of pixels and every head.
        total += _LAYERS * pixels * stage.channels + 2 * heads * pixels**2
    return total


LARGEST: Final = 64
"""Height and width up to which a model is compared at its own size: attention among 64 x 64 pixels takes 1 GB for eight
heads in float64."""

USUAL: Final = 16
"""The smallest height and width chosen, if the network can halve them often enough."""

HIGHEST: Final = 1000
"""Times of a Fourier embedding, which are noise levels, are drawn up to here; published models have at most 1348."""


def signature(config: Config) -> Signature:
    """Images (B, C, H, W) of two heights, timesteps (B,) as in the library, and labels for class-conditional
    networks."""
    (height, width), note = image_size(config)
    image = (
        f"x: b c={config.in_channels} h={height}..{_other_height(height, width, config.stride)} w={width} -> b h w c"
    )
    inputs = [image, f"t: b, {_times(config)}"]
    if config.classes == "table":
        inputs.append(f"labels: b, below {config.num_class_embeds}")
    elif config.classes == "timestep":
        inputs.append(f"labels: b, {_times(config)}")
    elif config.classes == "identity":
        inputs.append(f"labels: b {config.time_width}")
    output = Port("sample", "b c h w -> b h w c", decode=partial(_images, *_pixels(config)))
    free = dict.fromkeys("hw", config.stride)
    return Signature(parse_inputs(inputs), (output,), (note,) if note else (), free)


def _other_height(height: int, width: int, stride: int) -> int:
    """The height of the image in a batch of one: twice as large, or half as large if attention would take too much
    memory."""
    # Attention takes memory with the square of the number of pixels.
    if 2 * height * width <= LARGEST**2:
        return 2 * height
    return max(stride, height // 2 // stride * stride)


def _times(config: Config) -> str:
    if config.time_embedding_type == "fourier":
        return f"from 0.01 to {HIGHEST}"
    if isinstance(config.scheduler, NoiseLevels):
        return "from {:.4g} to {:.4g}".format(*config.scheduler.times)
    return f"below {config.steps}"


def image_size(config: Config) -> tuple[tuple[int, int], str]:
    """Height and width for comparisons, and a note if these are not those of the model."""
    model_size = (config.sample_size,) * 2 if isinstance(config.sample_size, int) else config.sample_size
    least = max(USUAL, 2 * config.stride)
    chosen = -(-least // config.stride) * config.stride
    if model_size is None:
        return (chosen, chosen), f"compared at {chosen} x {chosen}: sample_size is null"
    if any(length % config.stride for length in model_size):
        size = f"{model_size[0]} x {model_size[1]}"
        why = f"its own {size} is not a multiple of {config.stride}, and the library does not run there"
        return (chosen, chosen), f"compared at {chosen} x {chosen}: {why}"
    if max(model_size) > LARGEST and max(model_size) > chosen:
        sizes = (min(model_size[0], chosen), min(model_size[1], chosen))
        why = f"the network is convolutional, and its own size is {model_size[0]} x {model_size[1]}"
        return sizes, f"compared at {sizes[0]} x {sizes[1]}: {why}"
    return model_size, ""


def _images(factor: float, offset: float, states: Array) -> Array:
    """States (B, H, W, C) as the library's pipelines return them: from 0 to 1."""
    return np.minimum(np.maximum(factor * states + offset, 0.0), 1.0)


_STEPS: Final = {"conv": "a convolution", "resnet": "a resnet", "": "nothing"}
"""How a stage changes the resolution, as text."""


class UNet2DFamily(LibraryFamily[Config]):
    """An image diffusion in the roles of :mod:`wdport.families.roles`, except training."""

    name = "unet2d"
    configuration = Config
    keras_class = "UNet2D"
    library_class = "UNet2DModel"
    model_phrase = "an image model"
    signature = staticmethod(signature)
    unsampled = staticmethod(unsampled)
    diffused = staticmethod(diffused)
    to_series = staticmethod(to_images)

    def resolve(self, source: ConfigurationSource, config: Document, flags: Document) -> Resolved:
        """As for other families, with the scheduler of a file next to the model."""
        document = self.read_settings(source.document(), source.path)
        self.require_document(source, document, config)
        if unknown := {"scheduler", "no_class"} & set(document):
            raise MisfitError(source.path, f"unknown field {min(unknown)!r}", self.supported)
        stated = "scheduler" in config or "scheduler" in flags
        # The file is read only if no scheduler is given, so that a faulty one can be left out.
        undone, refusal, notes = (None, None, ()) if stated else _scheduler(source)
        origin = "assumed" if undone is None else SCHEDULER
        resolved = self.resolve_values(source, {
            origin: {"scheduler": undone or Scheduler()}, "config.json": document, "config": config, "flag": flags,
        })  # fmt: skip
        if refusal is not None:
            # A scheduler that is not supported concerns only a model that could be sampled with it.
            if any(not unsampled(replace(resolved.config, scheduler=usual)) for usual in _usual(source)):
                raise refusal
            unread = replace(resolved.config, scheduler=None)
            resolved, notes = replace(resolved, config=unread), (f"{SCHEDULER} is not read: {refusal.what}",)
        elif undone is not None and (why := unsampled(resolved.config)):
            notes = (*notes, f"no samples can be drawn: {why}")
        if stated:
            notes = tuple(_replaced(source, resolved.config.scheduler))
        return replace(resolved, notes=(*resolved.notes, *notes))

    def notes(self, config: Config) -> Iterator[str]:
        kind = config.class_embed_type
        if kind is not None and config.num_class_embeds is not None:
            yield f"num_class_embeds is not used with class_embed_type {kind}, as in the library"
        yield from super().notes(config)

    def contradictions(self, config: Config, shapes: Shapes) -> Iterator[str]:
        yield from super().contradictions(config, shapes)
        attention = any_below(shapes, "mid_block.attentions.")
        if config.mid_block_type is not None and config.add_attention != attention:
            yield f"add_attention is {config.add_attention}, but {attention} in the tensors"
        if self.sizes(shapes)["block_out_channels"] in (None, list(config.block_out_channels)):
            yield from _block_contradictions(config, shapes)

    def sizes(self, shapes: Shapes) -> dict[str, object]:
        first = "down_blocks.0.resnets.0."
        levels = [
            size(shapes, f"down_blocks.{level}.resnets.0.conv1.bias", 0)
            for level in range(count(shapes, "down_blocks"))
        ]
        projected, channels = size(shapes, f"{first}time_emb_proj.weight", 0), size(shapes, f"{first}conv1.bias", 0)
        # A scale and a shift for every channel, so twice as many outputs.
        scales = "scale_shift" if projected == 2 * (channels or 0) else "default"
        classes = size(shapes, "class_embedding.weight", 0)
        # Sines have no tensor, Fourier frequencies are a vector, and a learned embedding is a table.
        time = {0: "positional", 1: "fourier"}.get(len(shapes.get("time_proj.weight", ())), "learned")
        return {
            "block_out_channels": None if not levels or None in levels else levels,
            "in_channels": size(shapes, "conv_in.weight", 1),
            "out_channels": size(shapes, "conv_out.weight", 0),
            "time_embedding_dim": size(shapes, "time_embedding.linear_1.weight", 0),
            "layers_per_block": count(shapes, "down_blocks.0.resnets") or None,
            "resnet_time_scale_shift": None if None in (projected, channels) else scales,
            "num_train_timesteps": size(shapes, "time_proj.weight", 0) if time == "learned" else None,
            "time_embedding_type": time,
            "num_class_embeds": NONE if classes is None else classes,
            "class_embed_type": "timestep" if any_below(shapes, "class_embedding.linear_1.") else NONE,
            "mid_block_type": MID if any_below(shapes, "mid_block.") else NONE,
        }

    def compared(self, config: Config) -> dict[str, object]:
        return {
            "time_embedding_dim": config.time_width,
            "num_class_embeds": config.num_class_embeds if config.classes == "table" else NONE,
            "class_embed_type": "timestep" if config.classes == "timestep" else NONE,
            "mid_block_type": config.mid_block_type or NONE,
        }

    def features(self, config: Config) -> frozenset[str]:
        """Optional parts of a network, by their names under ``when:`` in the table."""
        names = {config.time_embedding_type, f"classes_{config.classes or 'none'}"}
        for way, stages in (("down", down_stages(config)), ("up", up_stages(config))):
            names |= {f"{way}_attention" for stage in stages if stage.attention}
            names |= {f"{way}_shortcut" for stage in stages if stage.shortcut}
            names |= {name for stage in stages if stage.step for name in (f"{way}_{stage.step}", f"{way}_step")}
        if config.mid_block_type is not None:
            names.add("mid")
        if attends(config):
            names |= {"mid_attention", *(["mid_norm"] if mid_groups(config) is not None else [])}
        return frozenset(names)

    def misread(self, config: Config, stated: Stated, module: Module) -> list[str]:
        return [*super().misread(config, stated, module), *misread_scheduler(config, stated)]

    def process(self, config: Config, table: Callable[[str], Array]) -> Process:
        # A learned embedding is a table with a row for every step.
        scheduler = config.scheduler or Scheduler()
        if isinstance(scheduler, NoiseLevels):
            return scheduler.process()
        assert isinstance(scheduler, Scheduler)
        return scheduler.process(integer_times=config.time_embedding_type == "learned")


def _replaced(source: ConfigurationSource, scheduler: Scheduler | NoiseLevels | None) -> Iterator[str]:
    """A note on what a scheduler that is given has otherwise than the file next to the model, which it replaces."""
    undone, _, _ = _scheduler(source)
    if undone is None or scheduler is None or undone == scheduler:
        return
    ours, theirs = (vars(side) for side in (scheduler, undone))
    differing = sorted(name for name in ours if ours[name] != theirs.get(name))
    others = f", which has another {', '.join(differing)}" if type(scheduler) is type(undone) else ""
    yield f"the given scheduler replaces all of {SCHEDULER}{others}"


def _scheduler(
    source: ConfigurationSource,
) -> tuple[Scheduler | NoiseLevels | None, MisfitError | None, tuple[str, ...]]:
    """The scheduler from the file next to the model, the error for one that is not supported, and notes."""
    document = source.beside(SCHEDULER)
    if not document:
        return None, None, ()
    try:
        scheduler = read_scheduler(document)
    except ValueError as error:
        return None, MisfitError((source.path, SCHEDULER), str(error), UNREAD), ()
    kind = str(document["_class_name"])
    article = "an" if kind[0] in "AEIO" else "a"
    note = f"of {SCHEDULER}, {article} {kind}, the diffusion is read; its steps are not among the samplers"
    return scheduler, None, () if _takes_steps(document) else (note,)


def _usual(source: ConfigurationSource) -> list[Scheduler | NoiseLevels]:
    """Schedulers like that of the file, with the library's defaults: what the network could be sampled with."""
    document = source.beside(SCHEDULER)
    kind = str(document.get("_class_name")) if document else ""
    if kind in LEVEL_CLASSES:
        return [NoiseLevels.from_fields(kind, LEVEL_CLASSES[kind])]
    return [Scheduler(), Scheduler(variance_type=LEARNED_RANGE)]


def _takes_steps(document: Document) -> bool:
    """Whether the samplers take the steps of the class itself."""
    kind = str(document["_class_name"])
    if kind != EDM_SOLVER:
        return kind in (*OWN_STEPS, *LEVEL_CLASSES)
    steps = ("solver_order", "algorithm_type", "solver_type", "lower_order_final")
    return all(document.get(name, LEVEL_CLASSES[kind][name]) == LEVEL_CLASSES[kind][name] for name in steps)


def _block_contradictions(config: Config, shapes: Shapes) -> Iterator[str]:
    """Blocks whose attention or change of resolution contradicts their types."""
    for way, stages in (("down", down_stages(config)), ("up", up_stages(config))):
        for index, stage in enumerate(stages):
            field, prefix = f"{way}_block_types[{index}]", f"{way}_blocks.{index}."
            if stage.attention != any_below(shapes, f"{prefix}attentions."):
                yield f"{field} has {'' if stage.attention else 'no '}attention, but the tensors show the opposite"
            kinds = (kind for kind, layer in (("conv", "conv."), ("resnet", "conv1."))
                     if any_below(shapes, f"{prefix}{way}samplers.0.{layer}"))  # fmt: skip
            step = next(kinds, "")
            if step != stage.step:
                yield f"{field} ends with {_STEPS[stage.step]}, but {_STEPS[step]} in the tensors"


FAMILY = UNet2DFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Referenced, Sampled] = (FAMILY, FAMILY, FAMILY, FAMILY)
