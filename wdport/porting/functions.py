"""Convert functions of torch to equivalent modules, so that their settings can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wdport.mapping.kinds import KINDS

if TYPE_CHECKING:
    import torch

_FUNCTIONS = {
    function.name: function
    for kind in KINDS.values()
    for function in kind.functions
    if (kind.name == "activation" or (kind.evident and not kind.parts)) and len(function.parameters) > 1
}
"""Poolings, and activations with settings."""


def module_of(function: str, arguments: Mapping[str, object]) -> torch.nn.Module | None:
    """A module with a function's settings; ``None`` for a function without one."""
    from torch import nn

    if function not in _FUNCTIONS:
        return None
    order = _FUNCTIONS[function].parameters
    settings = {
        order[int(position)]: value
        for position, value in arguments.items()
        if position.isdigit() and 0 < int(position) < len(order)
    }
    settings |= {key: value for key, value in arguments.items() if key in order}
    if settings.get("stride") is None:
        settings.pop("stride", None)
    try:
        module: torch.nn.Module = getattr(nn, _FUNCTIONS[function].module)(**settings)
    except (TypeError, ValueError):
        return None
    return module
