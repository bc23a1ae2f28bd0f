"""Lower functions that reshape, move and repeat axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wdport.porting.functions import canonical, dims, order_of
from wdport.porting.graph import Node, TracedTensor, numbers
from wdport.porting.lowering.arithmetic import aligned, common_order
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import (
    KerasSize,
    Order,
    Placed,
    channels_last,
    identity,
    inverse,
)
from wdport.porting.lowering.rules import NotLoweredError, lowers


def atoms_of(before: Sequence[int], after: Sequence[int]) -> tuple[list[list[int]], list[list[int]]] | None:
    """The axes of two shapes as groups of common factors, numbered in order; ``None`` if an axis of one ends inside
    an axis of the other that it does not divide. Axes of size one have no factors."""
    groups: tuple[list[list[int]], list[list[int]]] = ([[] for _ in before], [[] for _ in after])
    left = [list(before), list(after)]
    position, count = [0, 0], 0
    while True:
        for side in (0, 1):
            while position[side] < len(left[side]) and left[side][position[side]] == 1:
                position[side] += 1
        ends = [position[side] >= len(left[side]) for side in (0, 1)]
        if all(ends):
            return groups
        if any(ends):
            return None
        a, b = left[0][position[0]], left[1][position[1]]
        step = min(a, b)
        if max(a, b) % step:
            return None
        for side in (0, 1):
            groups[side][position[side]].append(count)
            left[side][position[side]] //= step
        count += 1


def _reshape_order(placed: Placed, after: Sequence[int]) -> Order | None:
    """The order of the axes after a reshape that moves no values; ``None`` if there is none."""
    if 0 in placed.shape or 0 in after:
        return identity(len(after)) if placed.plain else None
    groups = atoms_of(tuple(map(int, placed.shape)), tuple(map(int, after)))
    if groups is None:
        return identity(len(after)) if placed.plain else None
    before, behind = groups
    stored = [atom for axis in placed.order for atom in before[axis]]
    position = {atom: index for index, atom in enumerate(stored)}
    for group in behind:
        places = [position[atom] for atom in group]
        if places != list(range(places[0], places[0] + len(places))) if places else False:
            return None
    if placed.plain:
        return identity(len(after))
    # Axes of size one go where channels last has them, or after the axis before them.
    full = [axis for axis, group in enumerate(behind) if group]
    order = sorted(full, key=lambda axis: position[behind[axis][0]])
    last = channels_last(len(after))
    if [axis for axis in last if axis in full] == order:
        return last
    for axis in range(len(after)):
        if axis not in order:
            order.insert(order.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(order)


def _moved_before(placed: Placed, after: Sequence[int]) -> Order | None:
    """The order of the axes before a reshape whose result has channels last; ``None`` if axes must be split for it."""
    groups = (
        None if 0 in placed.shape or 0 in after else atoms_of(tuple(map(int, placed.shape)), tuple(map(int, after)))
    )
    if groups is None:
        return None
    before, behind = groups
    atoms = [atom for axis in channels_last(len(after)) for atom in behind[axis]]
    full = sorted((axis for axis in placed.order if before[axis]), key=lambda axis: atoms.index(before[axis][0]))
    if [atom for axis in full for atom in before[axis]] != atoms:
        return None
    return (*full, *(axis for axis in placed.order if not before[axis]))


def reshaped(lowering: GraphLowering, node: Node, tensor: TracedTensor, target: Sequence[Any]) -> Placed:
    """A reshape to ``target``, in PyTorch's order."""
    output = node.outputs[0]
    placed = lowering.place(tensor)
    order = _reshape_order(placed, output.shape)
    wants = output.source in lowering.wants_channels_last
    if order is None and wants and (moved := _moved_before(placed, output.shape)) is not None:
        placed = lowering.placed(lowering.moved(placed, moved), tensor, moved)
        order = channels_last(len(output.shape))
    if order is None:
        placed = lowering.placed(lowering.plain(tensor), tensor)
        order = identity(len(output.shape))
    if wants and placed.plain and order != channels_last(len(output.shape)):
        # An axis of size one in front of others may be the channels'.
        last = channels_last(len(output.shape))
        if _is_free(output.shape, last):
            order = last
    shape = tuple(target[axis] for axis in order)
    return lowering.placed(lowering.emit("ops.reshape", placed.value, shape), output, order)


def _is_free(shape: Sequence[int], order: Order) -> bool:
    """Whether a tensor of this shape has the same values in the same places in another order."""
    full = [axis for axis in order if int(shape[axis]) != 1]
    return full == sorted(full)


@lowers("reshape")
def _reshape(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor = arguments["input"]
    if node.name.endswith(("view_as", "reshape_as")):
        return reshaped(lowering, node, tensor, sizes_of(lowering, lowering.place(node.args[1])))  # type: ignore[arg-type]
    if isinstance(node.kwargs.get("dtype"), str) or any(isinstance(value, str) for value in node.args[1:]):
        raise NotLoweredError("a view of another dtype")
    listed = [*node.args[1:], *(value for key, value in node.kwargs.items() if key in ("shape", "size"))]
    target = listed[0] if len(listed) == 1 and isinstance(listed[0], tuple) else tuple(listed)
    return reshaped(lowering, node, tensor, [lowering.size(size) for size in target])


def sizes_of(lowering: GraphLowering, placed: Placed) -> list[Any]:
    """The sizes of a tensor, in PyTorch's order."""
    inverted = inverse(placed.order)
    return [KerasSize("size", tensor=placed.value, axis=inverted[axis]) for axis in range(len(placed.order))]


@lowers("flatten", "ravel")
def _flatten(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor = arguments["input"]
    rank = len(tensor.shape)
    more = list(arguments.get("more", ()))
    start = int(arguments.get("start_dim", more[0] if more else 0)) % max(rank, 1)
    end = int(arguments.get("end_dim", more[1] if len(more) > 1 else -1)) % max(rank, 1)
    sizes = sizes_of(lowering, lowering.place(tensor))
    return reshaped(lowering, node, tensor, [*sizes[:start], -1, *sizes[end + 1 :]])


@lowers("unflatten")
def _unflatten(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, listed = arguments["input"], arguments["sizes" if "sizes" in arguments else "unflattened_size"]
    dim = int(arguments["dim"]) % len(tensor.shape)
    sizes = sizes_of(lowering, lowering.place(tensor))
    return reshaped(lowering, node, tensor, [*sizes[:dim], *map(lowering.size, listed), *sizes[dim + 1 :]])


@lowers("squeeze", "unsqueeze")
def _squeeze(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    placed = lowering.place(tensor)
    rank = len(tensor.shape)
    listed = arguments.get("dim", next(iter(arguments.get("more", ())), None))
    if canonical(node.name) == "unsqueeze":
        (dim,) = numbers(listed)
        dim %= rank + 1
        moved = [axis + (axis >= dim) for axis in placed.order]
        # Where the axis is in PyTorch, or place the end.
        place = moved.index(dim - 1) + 1 if dim else 0
        if placed.plain:
            place = dim
            last = channels_last(rank + 1)
            if output.source in lowering.wants_channels_last and [axis for axis in last if axis != dim] == moved:
                place = last.index(dim)
        order = (*moved[:place], dim, *moved[place:])
        return lowering.placed(lowering.emit("ops.expand_dims", placed.value, place), output, order)
    axes = [axis for axis in (dims(listed, rank) or range(rank)) if int(tensor.shape[axis]) == 1]
    if not axes:
        return lowering.placed(placed.value, output, placed.order)
    places = tuple(sorted(placed.order.index(axis) for axis in axes))
    rest = [axis for axis in placed.order if axis not in axes]
    order = tuple(sorted(rest).index(axis) for axis in rest)
    return lowering.placed(
        lowering.emit("ops.squeeze", placed.value, places[0] if len(places) == 1 else places), output, order
    )


@lowers("permute", "transpose", "movedim", "T", "mT")
def _permute(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    rank = len(tensor.shape)
    axes = order_of(node, rank)
    if axes is None:
        raise NotLoweredError("a transpose of axes that are not known")
    placed, back = lowering.place(tensor), inverse(axes)
    # The same values in the same places, read as PyTorch's new axes.
    same = tuple(back[axis] for axis in placed.order)
    goal = channels_last(rank) if output.source in lowering.wants_channels_last else identity(rank)
    stays = same in (goal, identity(rank)) or (same == channels_last(rank) and (rank > 3 or not placed.plain))
    # Of more axes than an image has, a reshape that follows knows better where they go.
    if stays or (rank > 4 and not placed.plain):
        return lowering.placed(placed.value, output, same)
    value = lowering.emit("ops.transpose", placed.value, tuple(same.index(axis) for axis in goal))
    return lowering.placed(value, output, goal)


@lowers("expand", "expand_as", "broadcast_to")
def _expand(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    other = next((value for value in node.args[1:] if isinstance(value, TracedTensor)), None)
    if other is not None:
        target = sizes_of(lowering, lowering.place(other))
    else:
        listed = [*node.args[1:], *node.kwargs.values()]
        target = list(listed[0]) if len(listed) == 1 and isinstance(listed[0], tuple) else listed
        sizes = sizes_of(lowering, lowering.place(tensor))
        missing = len(target) - len(sizes)
        target = [sizes[axis - missing] if isinstance(size, int) and size == -1 else lowering.size(size)
                  for axis, size in enumerate(target)]  # fmt: skip
    order = common_order(lowering, [tensor], len(output.shape))
    shape = tuple(target[axis] for axis in order)
    return lowering.placed(lowering.emit("ops.broadcast_to", aligned(lowering, tensor, order), shape), output, order)


@lowers("repeat", "tile")
def _repeat(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    listed = [*node.args[1:], *node.kwargs.values()]
    counts = list(listed[0]) if len(listed) == 1 and isinstance(listed[0], tuple) else listed
    value = lowering.plain(tensor)
    return lowering.placed(lowering.emit("ops.tile", value, tuple(map(lowering.size, counts))), output)


@lowers("repeat_interleave")
def _repeat_interleave(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    if isinstance(arguments.get("repeats"), TracedTensor):
        raise NotLoweredError("repeat_interleave by a tensor")
    axis = arguments.get("dim")
    value = lowering.emit("ops.repeat", lowering.plain(tensor), lowering.size(arguments["repeats"]),
                          axis=None if axis is None else int(axis))  # fmt: skip
    return lowering.placed(value, output)


@lowers("rot90")
def _rotated(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """Quarter turns: axes that are flipped and change their places."""
    tensor, output, turns = arguments["input"], node.outputs[0], int(arguments.get("k", 1)) % 4
    placed = lowering.place(tensor)
    first, second = dims(arguments.get("dims", (0, 1)), len(tensor.shape)) or []
    flipped = {0: (), 1: (second,), 2: (first, second), 3: (first,)}[turns]
    value = placed.value
    if flipped:
        value = lowering.emit("ops.flip", value, axis=tuple(placed.order.index(axis) for axis in flipped))
    swapped = {first: second, second: first} if turns % 2 else {}
    return lowering.placed(value, output, tuple(swapped.get(axis, axis) for axis in placed.order))


@lowers("flip", "roll")
def _flip(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output = arguments["input"], node.outputs[0]
    placed = lowering.place(tensor)
    if canonical(node.name) == "flip":
        flipped = dims([*node.args[1:], *node.kwargs.values()], len(tensor.shape)) or []
        value = placed.value
        places = tuple(placed.order.index(axis) for axis in flipped)
        return lowering.placed(lowering.emit("ops.flip", value, axis=places), output, placed.order)
    listed = arguments.get("dims", next(iter(arguments.get("more", ())), None))
    axes = dims(listed, len(tensor.shape))
    if not axes:
        raise NotLoweredError("roll over all axes")
    shifts = lowering.size(arguments["shifts"])
    shifts = shifts if isinstance(shifts, tuple) else (shifts,)
    places = tuple(placed.order.index(axis) for axis in axes)
    value = placed.value
    for shift, place in zip(shifts, places, strict=True):
        value = lowering.emit("ops.roll", value, shift, axis=place)
    return lowering.placed(value, output, placed.order)


@lowers("clone", "contiguous", "detach", "identity")
def _same(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    placed = lowering.place(arguments["input"])
    return lowering.placed(placed.value, node.outputs[0], placed.order)
