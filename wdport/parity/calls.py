"""What a layer was given and what it gave, and the one idea behind every isolated comparison.

A network whose every tapped layer is *answered for* by recorded calls falls apart into its edges: each
layer computes from recorded inputs, and what is handed on is the recorded output. One run of such a
network tells, for every tap, what the code around it would have fed it and what it makes of the right
input; no error travels further than one edge, so what is off is off where the fault is.
"""

from __future__ import annotations

from typing import Any

from wdport.recorder import Call as Call
from wdport.recorder import Calls as Calls
from wdport.recorder import cast as cast
from wdport.recorder import leaves as leaves


def shaped_like(values: list[Any], model: Any) -> Any:
    """``values`` in the nesting of ``model`` and in its leaves' shapes behind the batch axis.

    (B, L, D) becomes (B, L, H, K) where ``model`` has that. Raises ``ValueError`` where count or size differ.
    """
    rest = iter(values)
    made = _fill(rest, model)
    if next(rest, None) is not None:
        raise ValueError(f"{len(values)} tensors for {len(leaves(model))}")
    return made


def _fill(values: Any, model: Any) -> Any:
    if isinstance(model, (list, tuple)):
        return type(model)([_fill(values, item) for item in model])
    value = next(values, None)
    if value is None:
        raise ValueError("too few tensors")
    shape = tuple(model.shape)
    if tuple(value.shape) == shape:
        return value
    if tuple(value.shape)[:1] != shape[:1]:
        raise ValueError(f"shape {tuple(value.shape)} for {shape}")
    try:
        return value.reshape(shape)
    except TypeError as error:  # JAX's word for it
        raise ValueError(str(error)) from None
