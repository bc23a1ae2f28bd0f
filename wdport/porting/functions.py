"""Convert functions of torch to equivalent modules, so that their settings can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MODULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **{f"max_pool{rank}d": (f"MaxPool{rank}d", ("kernel_size", "stride", "padding", "dilation", "ceil_mode"))
       for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d": (f"AvgPool{rank}d", ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"))
       for rank in (1, 2, 3)},
    "gelu": ("GELU", ("approximate",)),
    "leaky_relu": ("LeakyReLU", ("negative_slope",)),
    "elu": ("ELU", ("alpha",)),
    "softplus": ("Softplus", ("beta", "threshold")),
    "hardtanh": ("Hardtanh", ("min_val", "max_val")),
}  # fmt: skip
"""By function: the class of ``torch.nn`` and the function's arguments after the input, in order."""


def module_of(function: str, arguments: Mapping[str, object]) -> torch.nn.Module | None:
    """A module with a function's settings; ``None`` for a function without one."""
    from torch import nn

    if function not in _MODULES:
        return None
    name, order = _MODULES[function]
    told = {order[int(at) - 1]: value for at, value in arguments.items() if at.isdigit() and 0 < int(at) <= len(order)}
    told |= {key: value for key, value in arguments.items() if key in order}
    if told.get("stride") is None:
        told.pop("stride", None)
    try:
        made: torch.nn.Module = getattr(nn, name)(**told)
    except (TypeError, ValueError):
        return None
    return made
