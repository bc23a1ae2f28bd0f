"""Lower functions that join, split and pad tensors."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from wdport.porting.functions import canonical
from wdport.porting.graph import Node, Slice
from wdport.porting.lowering.arithmetic import common_order
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.indexing import indices_of
from wdport.porting.lowering.keras_graph import (
    KerasSize,
    KerasValue,
    Placed,
    channels_last,
    identity,
)
from wdport.porting.lowering.needs import sizes_in
from wdport.porting.lowering.rules import NotLoweredError, lowers


@lowers("cat", "stack", "hstack", "vstack")
def _cat(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    output, function = node.outputs[0], canonical(node.name)
    # An empty tensor of one axis, as a cache begins with, adds nothing.
    tensors = [tensor for tensor in arguments["tensors"] if tuple(tensor.shape) != (0,) or len(output.shape) == 1]
    rank = len(output.shape)
    dim = int(arguments.get("dim", 0)) % rank
    if function == "stack":
        ranks = [lowering.place(tensor).order for tensor in tensors]
        order = next((one for one in ranks if one != identity(rank - 1)), identity(rank - 1))
        values = tuple(lowering.moved(lowering.place(tensor), order) for tensor in tensors)
        moved = [axis + (axis >= dim) for axis in order]
        place = dim if order == identity(rank - 1) else (moved.index(dim - 1) + 1 if dim else 0)
        return lowering.placed(
            lowering.emit("ops.stack", values, axis=place), output, (*moved[:place], dim, *moved[place:])
        )
    if function != "cat":
        raise NotLoweredError(f"{function} has no counterpart")
    wants = output.source in lowering.wants_channels_last
    order = channels_last(rank) if wants else common_order(lowering, tensors, rank)
    values = tuple(lowering.moved(lowering.place(tensor), order) for tensor in tensors)
    if len(values) == 1:
        return lowering.placed(values[0], output, order)
    axis = order.index(dim)
    return lowering.placed(
        lowering.emit("ops.concatenate", values, axis=-1 if axis == rank - 1 else axis), output, order
    )


@lowers("chunk", "split", "tensor_split", "split_with_sizes", "unbind")
def _split(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> list[Placed]:
    tensor, function = arguments["input"], canonical(node.name)
    dim = int(arguments.get("dim", (arguments.get("more") or (0, 0))[-1] if function == "split_with_sizes" else 0))
    dim %= len(tensor.shape)
    placed = lowering.place(tensor)
    axis = placed.order.index(dim)
    axis = -1 if axis == len(placed.order) - 1 else axis
    order = placed.order
    if function == "unbind":
        value = lowering.emit("ops.unstack", placed.value, len(node.outputs), axis=axis)
        rest = [axis for axis in order if axis != dim]
        order = tuple(sorted(rest).index(axis) for axis in rest)
    else:
        where = _sections(lowering, node, arguments, dim)
        value = lowering.emit("ops.split", placed.value, where, axis=axis)
    return [lowering.placed(KerasValue("step", step=value.step, index=index), output, order)
            for index, output in enumerate(node.outputs)]  # fmt: skip


def _sections(lowering: GraphLowering, node: Node, arguments: dict[str, Any], dim: int) -> Any:
    """The number of equal parts, or where they begin."""
    sizes = [int(output.shape[dim]) for output in node.outputs]
    stated = arguments.get("split_size_or_sections", arguments.get("more", (None,))[0])
    if isinstance(stated, tuple) and any(True for _ in sizes_in(stated)):
        places: list[Any] = [lowering.size(stated[0])]
        for size in stated[1:-1]:
            places.append(KerasSize("+", (places[-1], lowering.size(size))))
        return tuple(places)
    if lowering.is_free(arguments["input"], dim) and canonical(node.name) in ("chunk", "tensor_split"):
        if canonical(node.name) == "tensor_split" or len(sizes) != int(arguments["chunks"]):
            raise NotLoweredError("parts of an axis whose size is not a multiple of their number")
        placed = lowering.place(arguments["input"])
        length = KerasSize("size", tensor=placed.value, axis=placed.order.index(dim))
        # As torch.chunk does: rounded up, so that the last part is the smallest.
        part = KerasSize("//", (KerasSize("+", (length, len(sizes) - 1)), len(sizes)))
        return tuple(part if count == 1 else KerasSize("*", (part, count)) for count in range(1, len(sizes)))
    return len(sizes) if len(set(sizes)) == 1 else tuple(accumulate(sizes[:-1]))


@lowers("pad")
def _pad(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    placed, rank = lowering.place(tensor), len(tensor.shape)
    listed = [lowering.size(width) for width in arguments["pad"]]
    pairs: list[tuple[Any, Any]] = [(0, 0)] * rank
    for index in range(0, len(listed), 2):
        pairs[rank - 1 - index // 2] = (listed[index], listed[index + 1])
    mode, value = arguments.get("mode", "constant"), arguments.get("value") or 0.0
    flat = [width for pair in pairs for width in pair]
    current = placed.value
    if any(isinstance(width, int) and width < 0 for width in flat):
        cut = [Slice(-a if isinstance(a, int) and a < 0 else None, b if isinstance(b, int) and b < 0 else None, None)
               for a, b in pairs]  # fmt: skip
        current = lowering.emit("index", current, indices_of(lowering, [cut[axis] for axis in placed.order]))
        pairs = [tuple(0 if isinstance(w, int) and w < 0 else w for w in pair) for pair in pairs]  # type: ignore[misc]
        if not any(width != 0 for pair in pairs for width in pair):
            return lowering.placed(current, output, placed.order)
    widths = tuple(pairs[axis] for axis in placed.order)
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in modes:
        raise NotLoweredError(f"padding of mode {mode}")
    more = {"mode": modes[mode]} if mode != "constant" else {"constant_values": value} if value else {}
    return lowering.placed(lowering.emit(pad_function(modes[mode]), current, widths, **more), output, placed.order)


def pad_function(mode: str) -> str:
    """The function that pads with Keras's ``mode``: ``ops.pad`` repeats borders with the JAX backend alone."""
    return "helpers.pad" if mode in ("edge", "wrap") else "ops.pad"
