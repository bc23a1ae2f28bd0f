"""Where Keras has the axes of an image: channels last, and so in what it flattens."""

from __future__ import annotations

from wdport.porting.outline.axes import Axes, Group


def keras_order(axes: Axes) -> Axes | None:
    """The axes as Keras has them, channels last; ``None`` where the tensor is no image with one axis of channels."""
    spaces = sorted((group for group in axes if group and group[0].space >= 0), key=lambda group: group[0].space)
    channels = [group for group in axes if group and group[0].channel]
    if not spaces or len(channels) != 1:
        return None
    plain = [group for group in axes if not group or (group[0].space < 0 and not group[0].channel)]
    return (*plain, *spaces, *channels)


def moved(axes: Axes) -> tuple[int, ...] | None:
    """PyTorch's axes in the order of Keras's layout; ``None`` where that is the same, or no image's."""
    order = keras_order(axes)
    if order is None or order == axes or not all(axes):
        return None
    return tuple(next(at for at, own in enumerate(axes) if own is group) for group in order)


def keras_axis(axes: Axes | None, at: int) -> int | None:
    """The number of an axis in Keras's layout, the last as -1; ``None`` where it is the same as PyTorch's."""
    if axes is None or not 0 <= at < len(axes):
        return None
    order = keras_order(axes)
    if order is None or order == axes or not axes[at]:
        return None
    found = next(index for index, group in enumerate(order) if group is axes[at])
    return -1 if found == len(axes) - 1 else found


def keras_group(group: Group) -> Group:
    """The atoms of one flattened axis as Keras's Flatten orders them: rows, columns, channels."""
    spaces = sorted((atom for atom in group if atom.space >= 0), key=lambda atom: atom.space)
    channels = [atom for atom in group if atom.channel]
    return (*(atom for atom in group if atom.space < 0 and not atom.channel), *spaces, *channels)
