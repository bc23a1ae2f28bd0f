"""The PyTorch network that a port is compared with: the library's own class, or ours if it is not installed.

Both have the library's module names. In float64 they are built and called lifted, because the library explicitly
computes its time embedding in float32.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import torch
from torch import nn

from wdport.families.unet2d.config import Config
from wdport.families.unet2d.twin import UNet2DTwin
from wdport.model import Array
from wdport.recorder import lifted

CLASS = "UNet2DModel"


def library_class(config: Config) -> Callable[..., nn.Module] | None:
    """The library's class, if it is installed and has every field that ``config`` needs."""
    try:
        found: type[nn.Module] = getattr(importlib.import_module("diffusers"), CLASS)
    except (ImportError, AttributeError):
        return None
    known = inspect.signature(found.__init__).parameters
    return found if set(_arguments(config)) <= set(known) else None


def reference_of(config: Config) -> str:
    """Whose code the reference is, for a report."""
    return library_of(config) or "wdport's own PyTorch code; with diffusers installed it is the library's"


def library_of(config: Config) -> str:
    """The library's class and release, if it is the reference."""
    if library_class(config) is None:
        return ""
    return f"{CLASS} of diffusers {importlib.import_module('diffusers').__version__}"


def build_reference(config: Config, tensors: Mapping[str, Array], dtype: str) -> nn.Module:
    """The network in evaluation mode with these weights, every one of them used; ``dtype`` float32 or float64."""
    library = library_class(config)
    with lifted() if dtype == "float64" else nullcontext():
        model = UNet2DTwin(config) if library is None else library(**_arguments(config))
    kind = getattr(torch, dtype)
    model.load_state_dict({name: torch.from_numpy(array).to(kind) for name, array in tensors.items()}, assign=True)
    return model.requires_grad_(True).eval()


def _arguments(config: Config) -> dict[str, object]:
    """Arguments for the library's class: the fields that differ from its defaults."""
    usual = Config().to_dict()
    told = config.to_dict()
    return {name: value for name, value in told.items() if value != usual[name] and name != "scheduler"}
