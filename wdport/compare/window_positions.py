"""Positions of the windows of a convolution or a pooling, by the two libraries' settings and the input size.

PyTorch pads both sides equally and may round the count up; Keras's ``same`` pads as much as needed, with the smaller
half first. Layers with different settings may therefore agree on one size and not on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wdport.mapping.kinds.windows import Axis, LayerWindows
from wdport.model import KerasLayer

if TYPE_CHECKING:
    import torch

Numbers = int | tuple[int, ...] | list[int]
"""A size along every axis, or one for all."""


def differing(
    module: torch.nn.Module, layer: KerasLayer, port_input: Sequence[int], output: Sequence[int] = ()
) -> str | None:
    """How the windows of the two layers differ on an input of the port of shape ``port_input``: a sentence, "" if they
    do not, ``None`` if it cannot be determined.

    If PyTorch's layer cannot produce ``output`` from that shape, the port's input is different, for example padded, and
    the result is "".
    """
    spatial = slice(2, None) if getattr(layer, "data_format", "") == "channels_first" else slice(1, -1)
    sizes, left = port_input[spatial], output[spatial]
    window = getattr(layer, "kernel_size", None) or getattr(layer, "pool_size", None)
    if not window or not hasattr(module, "kernel_size") or getattr(module, "transposed", False):
        return None
    ours = _axes(len(sizes), window, layer.strides, getattr(layer, "dilation_rate", 1))
    theirs = _axes(
        len(sizes), getattr(module, "kernel_size"), getattr(module, "stride"), getattr(module, "dilation", 1)
    )
    if ours is None or theirs is None:
        return None
    expected = [_torch(theirs[index], module, index, size) for index, size in enumerate(sizes)]
    # The reference's layer sees another input than the port's, so the windows cannot be compared on this size.
    if left and [windows.count for windows in expected] != list(left):
        return ""
    for axis, first, size in zip(ours, expected, sizes, strict=True):
        second = _keras(axis, layer.padding, size)
        if second is None:
            return None
        if first != second:
            names = [name for name in ("padding", "ceil_mode") if hasattr(module, name)]
            settings = ", ".join(f"{name} {getattr(module, name)}" for name in names)
            return f"padding {layer.padding} has {second} of {size} where the reference ({settings}) has {first}"
    return ""


@dataclass(frozen=True)
class Cut:
    """How much a transposed convolution crops from the extent of its windows at both ends; negative means added
    zeros."""

    before: int
    behind: int

    def __str__(self) -> str:
        return f"{self.before} and {self.behind}"


def cuts(module: torch.nn.Module, layer: KerasLayer) -> tuple[list[Cut], list[Cut]] | None:
    """What the reference's transposed convolution and the port's crop along every axis; ``None`` for other layers, and
    if windows, strides or the number of axes differ.

    PyTorch crops ``padding`` from both ends and adds ``output_padding`` at the end; Keras derives both from ``same`` or
    ``valid`` and its own ``output_padding``.
    """
    words = ("kernel_size", "strides", "dilation_rate", "output_padding")
    if not getattr(module, "transposed", False) or not all(hasattr(layer, word) for word in words):
        return None
    count = len(layer.kernel_size)
    ours = _axes(count, layer.kernel_size, layer.strides, layer.dilation_rate)
    theirs = _axes(count, *(getattr(module, word) for word in ("kernel_size", "stride", "dilation")))
    widths = [_several(getattr(module, word), count) for word in ("padding", "output_padding")]
    if ours is None or ours != theirs or any(len(numbers) != count for numbers in widths):
        return None
    more = [None] * count if layer.output_padding is None else _several(layer.output_padding, count)
    return (
        [Cut(before, before - behind) for before, behind in zip(*widths, strict=True)],
        [_keras_cut(axis, layer.padding, output_padding) for axis, output_padding in zip(ours, more, strict=True)],
    )


def _keras_cut(axis: Axis, padding: str, more: int | None) -> Cut:
    """As Keras computes it for JAX, in ``compute_conv_transpose_padding_args_for_jax``."""
    if padding == "valid":
        return Cut(0, -(max(axis.stride - axis.reach, 0) if more is None else more))
    room = axis.stride + axis.reach - 2 if more is None else axis.reach + axis.reach % 2 - 2 + more
    before = min(room // 2 + room % 2, axis.reach - 1)
    return Cut(axis.reach - 1 - before, axis.reach - 1 - (room - before))


def _axes(count: int, window: Numbers, stride: Numbers, dilation: Numbers) -> list[Axis] | None:
    columns = [_several(numbers, count) for numbers in (window, stride, dilation)]
    if any(len(column) != count for column in columns):
        return None
    return [Axis(d * (k - 1) + 1, s) for k, s, d in zip(*columns, strict=True)]


def _several(value: Numbers, count: int) -> list[int]:
    return [int(number) for number in value] if isinstance(value, (tuple, list)) else [int(value)] * count


def _torch(axis: Axis, module: torch.nn.Module, index: int, size: int) -> LayerWindows:
    padding: Numbers | str = getattr(module, "padding")
    if padding == "same":
        # Of an odd number of steps, PyTorch pads one more at the end.
        return axis.padded(size, (axis.reach - 1) // 2, axis.reach // 2)
    width = 0 if isinstance(padding, str) else _several(padding, index + 1)[index]  # "valid"
    return axis.padded(size, width, width, bool(getattr(module, "ceil_mode", False)))


def _keras(axis: Axis, padding: str, size: int) -> LayerWindows | None:
    if padding == "causal":
        return axis.padded(size, axis.reach - 1, 0)
    return {"same": axis.same(size), "valid": axis.padded(size, 0, 0)}.get(padding)
