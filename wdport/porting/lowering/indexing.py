"""Lower reads and assignments through an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wdport.porting.functions import canonical
from wdport.porting.graph import Node, Size, Slice, TensorSource, TracedTensor
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import (
    Indices,
    KerasSize,
    KerasValue,
    Placed,
    identity,
    keras_dtype,
)
from wdport.porting.lowering.reshapes import sizes_of
from wdport.porting.lowering.rules import NotLoweredError, lowers, named_arguments


@lowers("getitem")
def _getitem(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    items = list(arguments["index"]) if isinstance(arguments["index"], tuple) else [arguments["index"]]
    items = [_listed(lowering, item) for item in items]
    if any(isinstance(item, TracedTensor) for item in items):
        return _advanced(lowering, node, tensor, items)
    placed = lowering.place(tensor)
    items = _filled(items, len(tensor.shape))
    plain = [item for item in items if item is not None]
    if placed.plain:
        return lowering.placed(_indexed(lowering, placed.value, items), output)
    # Without new axes first, each place its place in Keras's layout; then the new axes.
    moved = [plain[axis] for axis in placed.order]
    rest = [axis for axis in placed.order if isinstance(plain[axis], Slice)]
    order = tuple(sorted(rest).index(axis) for axis in rest)
    value = _indexed(lowering, placed.value, moved)
    shape = tuple(size for size, item in zip(output.shape, [i for i in items if not isinstance(i, int)], strict=True)
                  if item is not None)  # fmt: skip
    result = Placed(value, order, shape, output.dtype)
    new = [axis for axis, item in enumerate([i for i in items if not isinstance(i, int)]) if item is None]
    if not new:
        return lowering.placed(value, output, order)
    value = lowering.emit("index", lowering.moved(result, identity(len(shape))), Indices(tuple(
        None if axis in new else Slice(None, None, None) for axis in range(len(output.shape)))))  # fmt: skip
    return lowering.placed(value, output)


def _listed(lowering: GraphLowering, item: Any) -> Any:
    """An item of an index; a list of numbers is a tensor."""
    if not isinstance(item, tuple):
        return item
    if any(not isinstance(number, int) or isinstance(number, Size) for number in item):
        raise NotLoweredError("an index that is a list of sizes or lists")
    if all(isinstance(number, bool) for number in item):
        raise NotLoweredError("an index that is a mask")
    return _unnamed(lowering, lowering.constant(np.array(item)), "int64")


def _filled(items: list[Any], rank: int) -> list[Any]:
    """An index with a slice for every axis that it does not name."""
    used = sum(item is not None and item is not ... for item in items)
    full = [Slice(None, None, None)] * (rank - used)
    if ... in items:
        place = items.index(...)
        return [*items[:place], *full, *items[place + 1 :]]
    return [*items, *full]


def _indexed(lowering: GraphLowering, value: KerasValue, items: Sequence[Any]) -> KerasValue:
    indices = indices_of(lowering, items)
    return lowering.emit("index", value, indices) if indices.items else value


def indices_of(lowering: GraphLowering, items: Sequence[Any]) -> Indices:
    listed: list[Any] = []
    for item in items:
        if isinstance(item, Slice):
            listed.append(Slice(*(None if limit is None else lowering.size(limit)
                                  for limit in (item.start, item.stop, item.step))))  # fmt: skip
        else:
            listed.append(item if item is None else lowering.size(item))
    while listed and listed[-1] == Slice(None, None, None):
        listed.pop()
    return Indices(tuple(listed))


def _advanced(lowering: GraphLowering, node: Node, tensor: TracedTensor, items: list[Any]) -> Placed:
    """An index with tensors of integers."""
    if any(isinstance(item, TracedTensor) and item.kind == "bool" for item in items):
        raise NotLoweredError("an index that is a mask, whose size depends on values")
    value = lowering.plain(tensor)
    filled = _filled(items, len(tensor.shape))
    full = Slice(None, None, None)
    basic = [full if isinstance(item, TracedTensor) else item for item in filled]
    if any(item != full for item in basic):
        # First the numbers and slices: beside tensors, NumPy's numbers would move the axes.
        value = lowering.emit("index", value, indices_of(lowering, basic))
    rest: list[Any] = [item if isinstance(item, TracedTensor) else full
            for item in filled if isinstance(item, (TracedTensor, Slice)) or item is None]  # fmt: skip
    places = [axis for axis, item in enumerate(rest) if isinstance(item, TracedTensor)]
    if len(places) == 1:
        index = lowering.plain(rest[places[0]])
        return lowering.placed(lowering.emit("ops.take", value, index, axis=places[0]), node.outputs[0])
    listed = tuple(lowering.plain(item) if isinstance(item, TracedTensor) else item for item in rest)
    return lowering.placed(lowering.emit("index", value, Indices(listed)), node.outputs[0])


@lowers("select", "narrow", "index_select", "gather")
def _picked(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output, function = arguments["input"], node.outputs[0], canonical(node.name)
    dim = int(arguments["dim"]) % len(tensor.shape)
    value = lowering.plain(tensor)
    if function == "gather":
        index = lowering.plain(arguments["index"])
        sizes = [size for axis, size in enumerate(tensor.shape) if axis != dim]
        if sizes != [size for axis, size in enumerate(arguments["index"].shape) if axis != dim]:
            raise NotLoweredError("gather with an index of other sizes")
        return lowering.placed(lowering.emit("ops.take_along_axis", value, index, axis=dim), output)
    if function == "index_select":
        return lowering.placed(lowering.emit("ops.take", value, lowering.plain(arguments["index"]), axis=dim), output)
    full: list[Any] = [Slice(None, None, None)] * dim
    if function == "select":
        index = lowering.size(arguments["index"])
        return lowering.placed(lowering.emit("index", value, Indices((*full, index))), output)
    start, length = lowering.size(arguments["start"]), lowering.size(arguments["length"])
    stop = start + length if isinstance(start, int) and isinstance(length, int) else KerasSize("+", (start, length))
    return lowering.placed(lowering.emit("index", value, Indices((*full, Slice(start, stop, None)))), output)


@lowers("setitem")
def _setitem(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    return assigned(lowering, arguments["input"], arguments["index"], arguments["value"])


def assigned(lowering: GraphLowering, tensor: TracedTensor, index: Any, value: Any) -> Placed:
    """A tensor with ``value`` place an index."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [_listed(lowering, item) for item in items]
    if len(items) == 1 and isinstance(items[0], TracedTensor) and items[0].kind == "bool":
        return _masked(lowering, tensor, items[0], value)
    target = lowering.plain(tensor)
    sizes = sizes_of(lowering, lowering.placed(target, tensor))
    if all(isinstance(item, (TracedTensor, int)) for item in items) and any(isinstance(i, TracedTensor) for i in items):
        return _scattered(lowering, tensor, items, value)
    if any(isinstance(item, (TracedTensor, tuple)) or item is None for item in items):
        raise NotLoweredError("assignment through an index of tensors")
    filled = _filled(items, len(tensor.shape))
    steps = [axis for axis, item in enumerate(filled) if isinstance(item, Slice) and item.step not in (None, 1)]
    if steps:
        return _every(lowering, tensor, filled, steps[0], value)
    starts: list[Any] = []
    shape: list[Any] = []
    for item, length, size in zip(filled, tensor.shape, sizes, strict=True):
        start, count = _span(lowering, item, int(length), size)
        starts.append(start)
        shape.append(count)
    if isinstance(value, TracedTensor):
        update = lowering.plain(value)
        rest = [size for size, item in zip(shape, filled, strict=True) if isinstance(item, Slice)]
        if len(value.shape) != len(rest) or 1 in value.shape:
            update = lowering.emit("ops.broadcast_to", update, tuple(rest))
        if added := tuple(axis for axis, item in enumerate(filled) if not isinstance(item, Slice)):
            update = lowering.emit("ops.expand_dims", update, added[0] if len(added) == 1 else added)
    else:
        update = lowering.emit("ops.full", tuple(shape), value)
    if not isinstance(value, TracedTensor) or value.dtype != tensor.dtype or tensor.kind != "float":
        update = lowering.emit("ops.cast", update, keras_dtype(tensor.dtype))
    return lowering.placed(lowering.emit("ops.slice_update", target, tuple(starts), update), tensor)


def _span(lowering: GraphLowering, item: Any, length: int, size: Any) -> tuple[Any, Any]:
    """The first place that an index takes along an axis, and how many."""
    if not isinstance(item, Slice):
        return (lowering.size(item) if int(item) >= 0 else KerasSize("-", (size, -item))), 1
    start, stop = _limits(lowering, item, length, size)
    if start == 0:
        return start, stop
    return start, stop - start if isinstance(stop, int) and isinstance(start, int) else KerasSize("-", (stop, start))


def _limits(lowering: GraphLowering, item: Slice, length: int, size: Any) -> tuple[Any, Any]:
    """The limits of a slice of an axis, counted from its front."""

    def limit(value: Any, usual: Any) -> Any:
        if value is None or int(value) >= length:
            return usual
        return lowering.size(value) if int(value) >= 0 else KerasSize("-", (size, -value))

    return limit(item.start, 0), limit(item.stop, size)


def _every(lowering: GraphLowering, tensor: TracedTensor, items: Sequence[Any], axis: int, value: Any) -> Placed:
    """An assignment to every n-th place along an axis: with indices of other axes, to these of what is there."""
    full, item = Slice(None, None, None), items[axis]
    target = lowering.plain(tensor)
    rest = [full if index == axis else other for index, other in enumerate(items)]
    values = lowering.plain(value) if isinstance(value, TracedTensor) else value
    if any(other != full for other in rest):
        index = indices_of(lowering, [item if place == axis else full for place in range(len(items))])
        length = len(range(*slice(item.start, item.stop, item.step).indices(int(tensor.shape[axis]))))
        part = lowering.placed(
            lowering.emit("index", target, index), [*tensor.shape[:axis], length, *tensor.shape[axis + 1 :]]
        )
        values = assigned(lowering, _unnamed(lowering, part, tensor.dtype), tuple(rest), value).value
    size = sizes_of(lowering, lowering.placed(target, tensor))[axis]
    start, stop = _limits(lowering, item, int(tensor.shape[axis]), size)
    more = {} if stop == size else {"stop": stop}
    result = lowering.emit("helpers.put_every", target, values, axis, start, lowering.size(item.step), **more)
    return lowering.placed(result, tensor)


def _unnamed(lowering: GraphLowering, placed: Placed, dtype: str) -> TracedTensor:
    """A tensor that PyTorch's run does not have."""
    source = TensorSource("constant", f"unnamed {len(lowering.places)}", index=-1)
    lowering.places[source] = placed
    return TracedTensor(source, placed.shape, dtype)


def _masked(lowering: GraphLowering, tensor: TracedTensor, mask: TracedTensor, value: Any) -> Placed:
    if isinstance(value, TracedTensor) and value.shape:
        raise NotLoweredError("assignment of several values through a mask")
    visible = lowering.plain(mask)
    for axis in range(len(mask.shape), len(tensor.shape)):
        visible = lowering.emit("ops.expand_dims", visible, axis)
    filled = lowering.plain(value) if isinstance(value, TracedTensor) else value
    return lowering.placed(lowering.emit("ops.where", visible, filled, lowering.plain(tensor)), tensor)


def _scattered(lowering: GraphLowering, tensor: TracedTensor, items: Sequence[Any], value: Any) -> Placed:
    """An assignment to single elements."""
    first = next((item for item in items if isinstance(item, TracedTensor)), None)
    if first is None or len(first.shape) != 1:
        raise NotLoweredError("assignment through an index of tensors")
    listed = [lowering.plain(item) if isinstance(item, TracedTensor) else
              lowering.emit("ops.full_like", lowering.plain(first), item) for item in items]  # fmt: skip
    listed = [lowering.emit("ops.cast", index, "int32") for index in listed]
    places = lowering.emit("ops.stack", tuple(listed), axis=-1)
    count = KerasSize("size", tensor=places, axis=0)
    shape = (count, *sizes_of(lowering, lowering.placed(lowering.plain(tensor), tensor))[len(items) :])
    update = (lowering.emit("ops.broadcast_to", lowering.plain(value), shape) if isinstance(value, TracedTensor)
              else lowering.emit("ops.full", shape, value, dtype=keras_dtype(tensor.dtype)))  # fmt: skip
    return lowering.placed(lowering.emit("ops.scatter_update", lowering.plain(tensor), places, update), tensor)


@lowers("scatter", "scatter_add", "index_add")
def _scatter(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    names = ("input", "dim", "index", "src")
    options = named_arguments(node, names)
    tensor, index = options["input"], options["index"]
    if options.get("reduce") is not None:
        raise NotLoweredError(f"{canonical(node.name)} with reduce")
    values = options.get("src", options.get("source", options.get("value")))
    dim = int(options["dim"]) % len(tensor.shape)
    name, shape = canonical(node.name), tensor.shape
    if name != "scatter" and dim == 0 and len(index.shape) == 1 and options.get("alpha", 1) == 1:
        value = lowering.emit("helpers.add_rows", *map(lowering.plain, (tensor, index, values)))
        return lowering.placed(value, tensor)
    if name != "scatter":
        raise NotLoweredError(f"{name} with an index of several axes")
    if any(a != b for axis, (a, b) in enumerate(zip(shape, index.shape, strict=True)) if axis != dim):
        raise NotLoweredError("scatter with an index of other sizes")
    written = lowering.plain(values) if isinstance(values, TracedTensor) else values
    value = lowering.emit("helpers.scatter_along", lowering.plain(tensor), lowering.plain(index), written, dim)
    return lowering.placed(value, tensor)
