"""Windows of convolutions and poolings along an axis, and the padding in Keras that equals PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wdport.mapping.kinds.kind import KerasCall, TorchCall, layer

Widths = tuple[tuple[int, int], ...]
"""Padding before and after, by spatial axis."""

PADDING_MODES: Mapping[str, str] = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""Modes of PyTorch's convolutions, and of ``keras.ops.pad`` and NumPy."""


@dataclass(frozen=True)
class LayerWindows:
    """``count`` windows, the first of which begins at ``start`` <= 0."""

    count: int
    start: int


@dataclass(frozen=True)
class Axis:
    """The windows along one axis: their extent and their stride."""

    reach: int
    stride: int

    def padded(self, size: int, before: int, after: int, ceil: bool = False) -> LayerWindows:
        """The windows with this padding; ``ceil`` as in PyTorch, where the last window begins within the input."""
        room = size + before + after - self.reach
        count = (-(-room // self.stride) if ceil else room // self.stride) + 1
        # PyTorch drops a window that would begin in the padding at the end.
        if ceil and (count - 1) * self.stride >= size + before:
            count -= 1
        return LayerWindows(count, -before)

    def same(self, size: int) -> LayerWindows:
        """The windows of Keras's ``same``: one for every stride."""
        count = -(-size // self.stride)
        # Keras's "same" puts the odd place at the end.
        return LayerWindows(count, -(max((count - 1) * self.stride + self.reach - size, 0) // 2))


def rank_of(name: str) -> int:
    """The number of spatial axes of ``Conv2d`` or ``max_pool2d``."""
    return int(name.rstrip("d")[-1])


def several(value: object, rank: int) -> tuple[int, ...]:
    """One number per axis."""
    if isinstance(value, (tuple, list)):
        return tuple(value) * (rank if len(value) == 1 else 1)
    return (value,) * rank if isinstance(value, int) else (1,) * rank


def agree(axis: Axis, before: int, after: int, ceil: bool = False) -> bool:
    """Whether Keras's ``same`` has the windows of this padding for inputs of every size."""
    # Both counts repeat with the stride, so four periods show every case.
    sizes = range(axis.reach, axis.reach + 4 * axis.stride + 1)
    return all(axis.same(size) == axis.padded(size, before, after, ceil) for size in sizes)


def padding_call(widths: Widths, mode: str = "zeros", value: float = 0.0) -> KerasCall:
    """The layer or function that pads a channels-last image; ``mode`` is PyTorch's."""
    mode = PADDING_MODES.get(mode, mode)
    if mode == "constant" and not value:
        return layer(f"ZeroPadding{len(widths)}D", {"padding": sides(widths)})
    arguments: dict[str, object] = {"pad_width": ((0, 0), *widths, (0, 0))}
    if mode != "constant":
        arguments["mode"] = mode
    if value:
        arguments["constant_values"] = value
    return KerasCall("ops.pad", arguments)


def sides(widths: Widths) -> object:
    """Widths in the form of Keras's layers."""
    if len({width for pair in widths for width in pair}) == 1:
        return widths[0][0]
    if len(widths) == 1:
        return widths[0]
    return tuple(before for before, _ in widths) if all(a == b for a, b in widths) else widths


def agree_at_size(axes: Sequence[Axis], widths: Widths, ceil: bool, call: TorchCall) -> bool:
    """Whether Keras's ``same`` has the windows of this padding for inputs of the recorded size."""
    sizes = call.shape[2:]
    return len(sizes) == len(axes) and all(
        axis.same(int(size)) == axis.padded(int(size), *width, ceil)
        for axis, size, width in zip(axes, sizes, widths, strict=True)
    )
