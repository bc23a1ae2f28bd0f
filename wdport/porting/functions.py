"""Convert functions of torch to equivalent modules, so that their settings can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wdport.mapping.kinds import KINDS

if TYPE_CHECKING:
    import torch

_FUNCTIONS = {
    each.name: each
    for kind in KINDS.values()
    for each in kind.functions
    if (kind.name == "activation" or (kind.evident and not kind.parts)) and len(each.parameters) > 1
}
"""Poolings, and activations with settings."""


def module_of(function: str, arguments: Mapping[str, object]) -> torch.nn.Module | None:
    """A module with a function's settings; ``None`` for a function without one."""
    from torch import nn

    if function not in _FUNCTIONS:
        return None
    order = _FUNCTIONS[function].parameters
    told = {order[int(at)]: value for at, value in arguments.items() if at.isdigit() and 0 < int(at) < len(order)}
    told |= {key: value for key, value in arguments.items() if key in order}
    if told.get("stride") is None:
        told.pop("stride", None)
    try:
        made: torch.nn.Module = getattr(nn, _FUNCTIONS[function].module)(**told)
    except (TypeError, ValueError):
        return None
    return made
