"""The axes of the outputs of functions of torch: products, indexing, sums, broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wdport.mapping.kinds.image_axes import Atom, Axes, Group
from wdport.porting.outline.axes import atom_size, unique
from wdport.porting.outline.events import Slice, TracedTensor
from wdport.porting.outline.functions import numbers


def product(a: Axes, b: Axes, output: TracedTensor) -> Axes | None:
    """Axes of a matrix product: rows of the first factor and columns of the second."""
    if len(a) < 2 or len(b) < 2 or len(output.shape) != max(len(a), len(b)):
        return None
    batch = a[:-2] if len(a) >= len(b) else b[:-2]
    return unique(plain((*batch, a[-2], b[-1])))


def summed(equation: str, operands: Sequence[Axes]) -> Axes | None:
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow or "..." in equation:
        return None
    groups: dict[str, Group] = {}
    for letters, axes in zip(left.split(","), operands, strict=False):
        groups |= {letter: group for letter, group in zip(letters, axes, strict=False) if group}
    return unique(plain(tuple(groups.get(letter, ()) for letter in right)))


def plain(axes: Axes) -> Axes:
    """The axes without image channels, which the output of a product is not known to have."""
    return tuple(tuple(replace(atom, channel=False) if atom.channel else atom for atom in group) for group in axes)


def stacked(axes: Axes, output: TracedTensor, dim: int) -> Axes:
    axis = dim % len(output.shape)
    return unique([*axes[:axis], (Atom("n", output.shape[axis]),), *axes[axis:]])


def without(axes: Axes, gone: Sequence[int]) -> Axes:
    return tuple(group for axis, group in enumerate(axes) if axis not in gone)


def indexed(axes: Axes, index: object) -> Axes | None:
    """Axes after indexing: slices keep an axis, numbers remove one, ``None`` adds one."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(item, (TracedTensor, tuple)) for item in items):
        return None
    used = sum(item is not None and item is not ... for item in items)
    if ... not in items:
        items.append(...)
    groups: list[Group] = []
    rest = list(axes)
    for item in items:
        if item is ...:
            count = len(axes) - used
            groups += rest[:count]
            rest = rest[count:]
        elif item is None:
            groups.append(())
        elif isinstance(item, Slice):
            groups.append(rest.pop(0))
        elif rest and numbers(item):
            rest.pop(0)
        else:
            return None
    return tuple(groups)


def broadcast(operands: Sequence[Axes], output: TracedTensor) -> Axes | None:
    """Axes after broadcasting, aligned at the last axis: each is named by the first tensor with an axis of its size."""
    groups: list[Group] = []
    for back, size in enumerate(reversed(output.shape), 1):
        group = next((axes[-back] for axes in operands if len(axes) >= back and atom_size(axes[-back]) == size), None)
        if group is None:
            group = (Atom("b" if str(size) == "b" else "n", size),)
        groups.append(group)
    return unique(groups[::-1])
