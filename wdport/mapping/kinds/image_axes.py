"""Named axes of a tensor, and their order in Keras, where an image has its channels last, also when flattened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SPACES: Mapping[int, tuple[str, ...]] = {1: ("l",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Names of the spatial axes by their number."""


@dataclass(frozen=True, eq=False)
class Atom:
    """A named axis. ``space`` is its number among the spatial axes of an image, or -1; ``channel`` whether it is
    the image's channels."""

    name: str
    size: int
    space: int = -1
    channel: bool = False


Group = tuple[Atom, ...]
Axes = tuple[Group, ...]


def keras_permutation(axes: Axes) -> tuple[int, ...] | None:
    """PyTorch's axes in the order of Keras's layout: spatial ones in their own order, then the channels. ``None`` if
    the order is the same, or if the tensor is not an image with one axis of channels."""
    spaces = [axis for axis, group in enumerate(axes) if group and group[0].space >= 0]
    channels = [axis for axis, group in enumerate(axes) if group and group[0].channel]
    if not spaces or len(channels) != 1:
        return None
    ordered = iter(sorted(spaces, key=lambda axis: axes[axis][0].space))
    order = [next(ordered) if axis in spaces else axis for axis in range(len(axes))]
    # An image that already has its channels last only needs its spatial axes in order.
    if channels[0] < spaces[-1]:
        order = [*(axis for axis in order if axis not in channels), *channels]
    return None if order == list(range(len(axes))) else tuple(order)


def keras_order(axes: Axes) -> Axes:
    """The axes in Keras's order."""
    order = keras_permutation(axes)
    return axes if order is None else tuple(axes[axis] for axis in order)


def keras_axis(axes: Axes | None, axis: int) -> int | None:
    """The index of an axis in Keras's layout, the last as -1; ``None`` if the order is PyTorch's."""
    order = keras_permutation(axes) if axes is not None else None
    if order is None or not 0 <= axis < len(order):
        return None
    position = order.index(axis)
    return -1 if position == len(order) - 1 else position


def keras_group(group: Group) -> Group:
    """The atoms of a flattened axis in the order of Keras's Flatten: rows, columns, channels; others are unchanged."""
    if not any(atom.space >= 0 for atom in group) or not any(atom.channel for atom in group):
        return group
    spaces = sorted((atom for atom in group if atom.space >= 0), key=lambda atom: atom.space)
    channels = [atom for atom in group if atom.channel]
    return (*(atom for atom in group if atom.space < 0 and not atom.channel), *spaces, *channels)
