"""Lower functions of windows of an image: convolutions with computed weights, pooling, resizing and samples."""

from __future__ import annotations

from typing import Any

from wdport.porting.functions import canonical
from wdport.porting.graph import Node, Slice, expressions_in, numbers
from wdport.porting.lowering.graph_lowering import GraphLowering
from wdport.porting.lowering.keras_graph import (
    Indices,
    KerasSize,
    Placed,
    channels_last,
)
from wdport.porting.lowering.rules import NotLoweredError, lowers, named_arguments


@lowers("unfold")
def _unfold(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    if not node.name.startswith("torch.Tensor."):
        raise NotLoweredError("unfold has no counterpart")
    names = ("input", "dimension", "size", "step")
    options = named_arguments(node, names)
    axis = int(options["dimension"]) % len(options["input"].shape)
    sizes = lowering.size(options["size"]), lowering.size(options["step"])
    return lowering.placed(
        lowering.emit("helpers.windows", lowering.plain(options["input"]), axis, *sizes), node.outputs[0]
    )


@lowers("grid_sample")
def _grid_sample(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    names = ("input", "grid", "mode", "padding_mode", "align_corners")
    options = named_arguments(node, names, mode="bilinear", padding_mode="zeros", align_corners=False)
    if (
        options["mode"] != "bilinear"
        or options["padding_mode"] not in ("zeros", "border")
        or len(options["input"].shape) != 4
    ):
        raise NotLoweredError(f"grid_sample of mode {options['mode']} with padding {options['padding_mode']}")
    image = lowering.moved(lowering.place(options["input"]), channels_last(4))
    value = lowering.emit("helpers.grid_sample", image, lowering.plain(options["grid"]), options["mode"],
                          options["padding_mode"], bool(options["align_corners"]))  # fmt: skip
    return lowering.placed(value, node.outputs[0], channels_last(4))


@lowers("interpolate", "upsample")
def _resize(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """An interpolation that is no layer of Keras."""
    tensor, output, mode = arguments["input"], node.outputs[0], arguments.get("mode", "nearest")
    rank = len(tensor.shape) - 2
    if arguments.get("antialias") or arguments.get("recompute_scale_factor"):
        raise NotLoweredError("an interpolation with antialias or recompute_scale_factor")
    names = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
    if mode not in names:
        raise NotLoweredError(f"an interpolation of mode {mode}")
    value = lowering.moved(lowering.place(tensor), channels_last(rank + 2))
    more: dict[str, Any] = {}
    if arguments.get("size") is not None:
        listed = arguments["size"]
        size = tuple(map(lowering.size, listed)) if isinstance(listed, tuple) else (lowering.size(listed),) * rank
    else:
        factor = arguments["scale_factor"]
        factors = factor if isinstance(factor, tuple) else (factor,) * rank
        more["scale"] = tuple(map(float, factors))
        sizes = [KerasSize("size", tensor=value, axis=axis + 1) for axis in range(rank)]
        size = tuple(KerasSize("int*", (old, factor)) for old, factor in zip(sizes, more["scale"], strict=True))
    if names[mode] != "nearest":
        more["align_corners"] = bool(arguments.get("align_corners"))
    return lowering.placed(
        lowering.emit(f"helpers.resize_{names[mode]}", value, size, **more), output, channels_last(rank + 2)
    )


@lowers("max_pool1d", "max_pool2d", "max_pool3d")
def _largest(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """A maximum pooling that is no layer of Keras: its windows are rounded up."""
    tensor, output = arguments["input"], node.outputs[0]
    rank = len(tensor.shape) - 2
    if arguments.get("return_indices") or any(numbers(arguments.get("dilation", 1))[0] != 1 for _ in (0,)):
        raise NotLoweredError("a maximum pooling with indices or gaps")
    window, stride = _several(arguments["kernel_size"], rank), arguments.get("stride")
    strides = window if stride in (None, ()) else _several(stride, rank)
    value = lowering.moved(lowering.place(tensor), channels_last(rank + 2))
    padding = _several(arguments.get("padding", 0), rank)
    more: dict[str, Any] = {"ceil": True} if arguments.get("ceil_mode") else {}
    value = lowering.emit("helpers.max_pool", value, window, strides, padding, **more)
    return lowering.placed(value, output, channels_last(rank + 2))


def _several(value: Any, rank: int) -> tuple[int, ...]:
    if any(True for _ in expressions_in(value)):
        raise NotLoweredError("a window that is computed from sizes")
    listed = tuple(map(int, value)) if isinstance(value, tuple) else (int(value),)
    return listed * rank if len(listed) == 1 else listed


@lowers("conv1d", "conv2d", "conv3d")
def _convolution(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """A convolution whose weights are computed."""
    tensor, output = arguments["input"], node.outputs[0]
    rank = len(tensor.shape) - 2
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    options = named_arguments(node, names, bias=None, stride=1, padding=0, dilation=1, groups=1)
    if isinstance(options["padding"], str):
        raise NotLoweredError("a convolution whose padding is a text")
    value = lowering.moved(lowering.place(tensor), channels_last(rank + 2))
    kernel = lowering.moved(lowering.place(options["weight"]), (*range(2, rank + 2), 1, 0))
    widths = _several(options["padding"], rank)
    if any(widths):
        value = lowering.emit("ops.pad", value, ((0, 0), *((width, width) for width in widths), (0, 0)))
    value = lowering.emit("ops.conv", value, kernel, _several(options["stride"], rank), "valid",
                          dilation_rate=_several(options["dilation"], rank))  # fmt: skip
    if options["bias"] is not None:
        value = lowering.emit("+", value, lowering.plain(options["bias"]))
    return lowering.placed(value, output, channels_last(rank + 2))


@lowers("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _transposed(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """A transposed convolution that is no layer of Keras: in groups, or with weights that are computed."""
    tensor, output, module = arguments["input"], node.outputs[0], node.module
    rank = len(tensor.shape) - 2
    names = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
    usual = {"bias": None, "stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}
    options = {**usual, **arguments} if module is not None else named_arguments(node, names, **usual)
    if node.kwargs.get("output_size") is not None or rank < 1:
        raise NotLoweredError("a transposed convolution with output_size, or without a batch axis")
    if module is not None:
        for name in ("weight", "bias"):
            options[name] = lowering.held(f"{module.path}.{name}".lstrip(".")) if name in module.parameters else None
    strides, cut = _several(options["stride"], rank), _several(options["padding"], rank)
    windows = tuple(map(int, options["weight"].shape[2:]))
    value = lowering.moved(lowering.place(tensor), channels_last(rank + 2))
    extra, dilation = (_several(options[name], rank) for name in ("output_padding", "dilation"))
    if options["groups"] != 1 or any(extra) or set(dilation) != {1}:
        if max(strides) > 1 and max(dilation) > 1:
            raise NotLoweredError("a transposed convolution with a stride and a dilation")
        bias = None if options["bias"] is None else lowering.plain(options["bias"])
        value = lowering.emit("helpers.grouped_conv_transpose", value, lowering.plain(options["weight"]), bias, strides,
                              cut, extra, dilation, int(options["groups"]))  # fmt: skip
        return lowering.placed(value, output, channels_last(rank + 2))
    kernel = lowering.moved(lowering.place(options["weight"]), (*range(2, rank + 2), 1, 0))
    value = lowering.emit("ops.conv_transpose", value, kernel, strides, "valid")
    ends = [-(width + max(stride - window, 0)) or None
            for width, stride, window in zip(cut, strides, windows, strict=True)]  # fmt: skip
    if any(cut) or any(ends):
        slices = (Slice(width or None, end, None) for width, end in zip(cut, ends, strict=True))
        value = lowering.emit("index", value, Indices((Slice(None, None, None), *slices)))
    if options["bias"] is not None:
        value = lowering.emit("+", value, lowering.plain(options["bias"]))
    return lowering.placed(value, output, channels_last(rank + 2))


@lowers("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _average(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    """An average pooling that is no layer of Keras."""
    tensor, output = arguments["input"], node.outputs[0]
    rank = len(tensor.shape) - 2
    window = _several(arguments["kernel_size"], rank)
    stride = arguments.get("stride")
    strides = window if stride in (None, ()) else _several(stride, rank)
    value = lowering.moved(lowering.place(tensor), channels_last(rank + 2))
    more: dict[str, Any] = {}
    if arguments.get("ceil_mode"):
        more["ceil"] = True
    if arguments.get("count_include_pad") is False:
        more["counted"] = False
    if arguments.get("divisor_override"):
        more["divisor"] = int(arguments["divisor_override"])
    value = lowering.emit(
        "helpers.average_pool", value, window, strides, _several(arguments.get("padding", 0), rank), **more
    )
    return lowering.placed(value, output, channels_last(rank + 2))


@lowers("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def _shuffle(lowering: GraphLowering, node: Node, arguments: dict[str, Any]) -> Placed:
    tensor, output, function = arguments["input"], node.outputs[0], canonical(node.name)
    if node.module is not None:
        function = {"PixelShuffle": "pixel_shuffle", "PixelUnshuffle": "pixel_unshuffle"}.get(
            node.module.torch, "channel_shuffle")  # fmt: skip
    placed = lowering.place(tensor)
    value = lowering.moved(placed, channels_last(4))
    b, h, w = (KerasSize("size", tensor=value, axis=axis) for axis in range(3))
    channels = int(tensor.shape[1])
    if function == "channel_shuffle":
        groups = int(arguments["groups"])
        split = lowering.emit("ops.reshape", value, (b, h, w, groups, channels // groups))
        turned = lowering.emit("ops.transpose", split, (0, 1, 2, 4, 3))
        return lowering.placed(lowering.emit("ops.reshape", turned, (b, h, w, channels)), output, channels_last(4))
    r = int(arguments.get("upscale_factor", arguments.get("downscale_factor", 1)))
    if function == "pixel_shuffle":
        split = lowering.emit("ops.reshape", value, (b, h, w, channels // (r * r), r, r))
        turned = lowering.emit("ops.transpose", split, (0, 1, 4, 2, 5, 3))
        shape: tuple[Any, ...] = (b, KerasSize("*", (h, r)), KerasSize("*", (w, r)), channels // (r * r))
    else:
        split = lowering.emit(
            "ops.reshape", value, (b, KerasSize("//", (h, r)), r, KerasSize("//", (w, r)), r, channels)
        )
        turned = lowering.emit("ops.transpose", split, (0, 1, 3, 5, 2, 4))
        shape = (b, KerasSize("//", (h, r)), KerasSize("//", (w, r)), channels * r * r)
    return lowering.placed(lowering.emit("ops.reshape", turned, shape), output, channels_last(4))
