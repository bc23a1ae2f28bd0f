"""The inputs of models of transformers, timm and torchvision, as ``--input`` states them, from their configurations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from wdport.recording.watching import parameter_names

LENGTHS = (6, 16)
"""Lengths of a sequence, as far as the configuration has positions."""

_POSITIONS = ("max_position_embeddings", "n_positions", "max_source_positions")


def library_inputs(module: torch.nn.Module) -> tuple[str, ...]:
    """The inputs of a model of one of these libraries; empty if its configuration does not tell, and for any other."""
    bases = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(module).__mro__}
    if "transformers.PreTrainedModel" in bases:
        return tuple(_transformers_inputs(module))
    names = parameter_names(module)
    size = _image_size(module)
    return (f"{names[0]}: b {' '.join(map(str, size))}",) if names and size else ()


def _transformers_inputs(module: Any) -> Iterator[str]:
    config, name = module.config, module.main_input_name
    if name == "input_ids":
        yield _ids(name, "t", config)
    elif name == "pixel_values" and isinstance(size := getattr(config, "image_size", None), (int, tuple, list)):
        height, width = (size, size) if isinstance(size, int) else size
        yield f"{name}: b {config.num_channels} {height} {width}"
    elif name == "input_features" and hasattr(config, "max_source_positions"):
        # Whisper's encoder halves the length.
        yield f"{name}: b {config.num_mel_bins} {2 * config.max_source_positions}"
    elif name == "input_values" and hasattr(config, "num_mel_bins"):
        yield f"{name}: b {config.max_length} {config.num_mel_bins}"
    elif name == "input_values":
        yield f"{name}: b t=4000..4800"
    else:
        return
    if config.is_encoder_decoder:
        yield _ids("decoder_input_ids", "u", config)


def _ids(name: str, axis: str, config: Any) -> str:
    limit = next((int(getattr(config, key)) for key in _POSITIONS if getattr(config, key, None)), LENGTHS[1])
    low, high = (min(length, limit) for length in LENGTHS)
    return f"{name}: b {axis}={low}..{high}, below {config.vocab_size}" if low < high else (
        f"{name}: b {low}, below {config.vocab_size}"
    )  # fmt: skip


_TORCHVISION = {"segmentation": (3, 224, 224), "video": (3, 16, 112, 112)}
"""Sizes of the inputs by the package of the model; other models classify images."""

_IMAGES = {"Inception3": 299}


def _image_size(module: torch.nn.Module) -> tuple[int, ...]:
    """Channels and sizes of the images of a model of timm or torchvision; empty for any other."""
    library, *packages = type(module).__module__.split(".")
    if library == "timm":
        if image := getattr(getattr(module, "patch_embed", None), "img_size", None):
            return 3, *image
        config: Any = getattr(module, "pretrained_cfg", {})
        size = config.get("input_size") if isinstance(config, dict) else getattr(config, "input_size", None)
        return tuple(size or ())
    if library != "torchvision" or {"detection", "optical_flow"} & {*packages}:
        return ()
    for package, sizes in _TORCHVISION.items():
        if package in packages:
            return sizes
    size = int(getattr(module, "image_size", _IMAGES.get(type(module).__name__, 224)))
    return 3, size, size
