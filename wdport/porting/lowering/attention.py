"""Multi-head attention with PyTorch's packed weights, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wdport.mapping.kinds.kind import layer
from wdport.porting.graph import Slice
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import Indices, KerasSize, KerasValue


def attend(
    lowering: GraphLowering, tokens: Sequence[KerasValue], packed: Sequence[KerasValue | None], width: int, heads: int,
    mask: KerasValue | None = None, rate: float = 0.0,
) -> tuple[KerasValue, KerasValue]:  # fmt: skip
    """Multi-head attention of tokens of (batch, time, features) with PyTorch's packed weights: its output and its
    weights. ``mask`` is added to the scores, and ``rate`` is the share of weights that are dropped in training."""
    kernel, bias, out_kernel, out_bias = packed
    assert out_kernel is not None
    parts = []
    for index, one in enumerate(tokens):
        part = Indices((Slice(index * width, (index + 1) * width, None),))
        held = [None if value is None else lowering.emit("index", value, part) for value in (kernel, bias)]
        parts.append(lowering.emit("helpers.attention_heads", one, *held, heads))
    more: dict[str, Any] = {} if mask is None else {"mask": mask}
    weights = dropped = lowering.emit("helpers.attention_weights", *parts[:2], **more)
    if rate:
        drop = layer("Dropout", {"rate": rate})
        dropped = lowering.layer(drop, weights, torch=lowering.unnamed(drop))
    attended = lowering.transposed(lowering.emit("@", dropped, parts[2]), (0, 2, 1, 3))
    sizes = [KerasSize("size", tensor=tokens[0], axis=axis) for axis in (0, 1)]
    output = lowering.emit("ops.reshape", attended, (*sizes, width))
    output = lowering.emit("@", output, lowering.transposed(out_kernel, (1, 0)))
    return output if out_bias is None else lowering.emit("+", output, out_bias), dropped
