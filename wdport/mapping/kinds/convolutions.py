"""Convolutions of one, two and three spatial axes: plain and grouped, depthwise, transposed."""

from __future__ import annotations

from collections.abc import Sequence

from wdport.mapping.axes import layouts, rules
from wdport.mapping.kinds.kind import (
    SPACES,
    Arguments,
    Compared,
    Counterpart,
    KerasCall,
    Kind,
    Part,
    Settings,
    Shape,
    TorchCall,
    TorchFunction,
    layer,
    torch_classes,
)
from wdport.mapping.kinds.windows import Axis, Widths, agree, agree_at_size, padding_call, rank_of, several, sides

_NAMES = {"weight": "weight", "bias": "bias"}
_BIAS = Part(("{bias}",), ("bias",), rules("identity"))
_WINDOW = (
    Compared("kernel_size", "kernel_size", "tuple"),
    Compared("stride", "strides", "tuple"),
    Compared("dilation", "dilation_rate", "tuple"),
    Compared("padding", "padding", "padding"),
    Compared("bias", "use_bias", "present"),
    Compared("", "data_format", "channels"),
)
_PLAIN = (Compared("out_channels", "filters", "equal"), Compared("groups", "groups", "equal"))

# What the same weight may be in a port of another rank: axes of size one are added or left out. Shapes
# distinguish the alternatives; where two fit, the window is one and both give the same kernel.
_RULES = {
    1: ("conv1d", "out in 1 -> in out", "out in k -> k 1 in out", "out in k -> 1 k in out"),
    2: ("conv2d", "out in k 1 -> k in out", "out in 1 k -> k in out", "out in 1 1 -> in out"),
    3: ("conv3d", "out in 1 h w -> h w in out", "out in k 1 1 -> k in out", "out in 1 1 1 -> in out"),
}
_DEPTHWISE = {
    1: ("depthwise_conv1d", "(in mult) 1 k -> k 1 in mult"),
    2: ("depthwise_conv2d", "(in mult) 1 k 1 -> k in mult", "(in mult) 1 1 k -> k in mult"),
}


def _axes(rank: int) -> tuple[str, str]:
    """The layouts with channels last and channels first."""
    spatial = " ".join(SPACES[rank])
    return f"b c {spatial} -> b {spatial} c", f"b c {spatial}"


# A dense layer is a convolution with a window of one, and a convolution may have axes of size one.
_KERAS = {
    "conv1d": ("Conv1D", "Conv2D", "Dense"),
    "conv2d": ("Conv2D", "Conv1D", "Dense"),
    "conv3d": ("Conv3D", "Conv2D", "Dense"),
    "depthwise_conv1d": ("DepthwiseConv1D", "DepthwiseConv2D"),
    "depthwise_conv2d": ("DepthwiseConv2D", "DepthwiseConv1D"),
    **{f"conv_transpose{rank}d": (f"Conv{rank}DTranspose",) for rank in SPACES},
}


def _settings(shape: Shape, arguments: Arguments) -> Arguments:
    channels = shape[1] * arguments.get("groups", 1)
    return {"in_channels": channels, "out_channels": shape[0], "kernel_size": shape[2:]}


def _transposed_settings(shape: Shape, arguments: Arguments) -> Arguments:
    channels = shape[1] * arguments.get("groups", 1)
    return {"in_channels": shape[0], "out_channels": channels, "kernel_size": shape[2:]}


_NOTES = {
    "conv": "may be grouped. In the port, a convolution with a kernel size of (k, 1) or (1, k) may be a Conv1D, and "
    "one with a kernel size of 1 may be a Dense layer",
    "depthwise_conv": "as many groups as input channels",
    "conv_transpose": "only one group, because Keras does not support more",
}
_WEIGHTS = ("input", "weight", "bias", "stride", "padding")
_FUNCTIONS = {
    **{
        f"conv{rank}d": TorchFunction(
            f"conv{rank}d", f"Conv{rank}d", (*_WEIGHTS, "dilation", "groups"), _settings
        )
        for rank in SPACES
    },
    **{
        f"conv_transpose{rank}d": TorchFunction(
            f"conv_transpose{rank}d", f"ConvTranspose{rank}d", (*_WEIGHTS, "output_padding", "groups", "dilation"),
            _transposed_settings,
        )
        for rank in SPACES
    },
}  # fmt: skip


_BOTH = "Keras has no stride and dilation both above 1: dilate with strides 1 and slice the output, [::stride]"
_GROUPS = "Keras's transposed convolutions have one group: split the channels over several layers"


def _convolution(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``Conv1d``, ``Conv2d`` and ``Conv3d``, also depthwise."""
    rank = rank_of(name)
    kernel, stride, dilation = (several(settings.get(key, 1), rank) for key in ("kernel_size", "stride", "dilation"))
    groups, inputs, outputs = settings.get("groups", 1), settings["in_channels"], settings["out_channels"]
    # Keras has DepthwiseConv1D and DepthwiseConv2D, but none for three axes.
    depthwise = groups == inputs > 1 and rank < 3
    kind = f"depthwise_conv{rank}d" if depthwise else ""
    if max(stride) > 1 and max(dilation) > 1:
        return Counterpart((), (_BOTH,), kind)
    axes = [Axis(d * (k - 1) + 1, s) for k, s, d in zip(kernel, stride, dilation, strict=True)]
    mode, widths = settings.get("padding_mode", "zeros"), _widths(settings.get("padding", 0), axes)
    padding, before, notes = _padding(axes, widths, mode, call)
    arguments = {
        "strides": stride, "padding": padding, "dilation_rate": dilation, "use_bias": bool(settings.get("bias")),
    }  # fmt: skip
    origin = {"strides": "stride", "dilation_rate": "dilation", "use_bias": "bias"}
    if depthwise:
        arguments = {"kernel_size": kernel, "depth_multiplier": outputs // inputs, **arguments}
        conv_layer = layer(f"DepthwiseConv{rank}D", arguments, **origin)
    else:
        arguments = {"filters": outputs, "kernel_size": kernel, "groups": groups, **arguments}
        conv_layer = layer(f"Conv{rank}D", arguments, groups="groups", **origin)
    return Counterpart((*before, conv_layer), notes, kind)


def _widths(padding: object, axes: Sequence[Axis]) -> Widths:
    if padding == "same":
        # PyTorch's "same" puts the odd place at the end, and only exists with a stride of one.
        return tuple(((axis.reach - 1) // 2, axis.reach // 2) for axis in axes)
    sizes = (0,) * len(axes) if isinstance(padding, str) else several(padding, len(axes))
    return tuple((size, size) for size in sizes)


def _padding(
    axes: Sequence[Axis], widths: Widths, mode: str, call: TorchCall
) -> tuple[str, tuple[KerasCall, ...], tuple[str, ...]]:
    """The layer's own padding, the padding before it, and notes."""
    if call.padded_before:
        return "valid", (padding_call(widths, mode),), ()
    if not any(any(width) for width in widths):
        return "valid", (), ()
    if mode == "zeros" and all(agree(axis, *width) for axis, width in zip(axes, widths, strict=True)):
        return "same", (), ()
    if mode != "zeros" or max(axis.stride for axis in axes) == 1:
        return "valid", (padding_call(widths, mode),), ()
    note = 'padding="same" with a stride pads as needed, more at the end; PyTorch pads both sides equally'
    if agree_at_size(axes, widths, False, call):
        note = f"{note} (on inputs of this size they agree)"
    return "valid", (padding_call(widths, mode),), (note,)


def _transposed(name: str, settings: Settings, call: TorchCall) -> Counterpart:
    """``ConvTranspose1d`` and so on: Keras's output with ``valid``, cropped as in PyTorch."""
    rank = rank_of(name)
    kernel, stride, dilation = (several(settings.get(key, 1), rank) for key in ("kernel_size", "stride", "dilation"))
    cropped, more = several(settings.get("padding", 0), rank), several(settings.get("output_padding", 0), rank)
    if settings.get("groups", 1) != 1:
        return Counterpart((), (_GROUPS,))
    if max(stride) > 1 and max(dilation) > 1:
        return Counterpart((), (_BOTH,))
    reaches = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    same = any(cropped) and not any(more) and all(
        reach - step == 2 * cut for reach, step, cut in zip(reaches, stride, cropped, strict=True)
    )  # fmt: skip
    arguments = {
        "filters": settings["out_channels"], "kernel_size": kernel, "strides": stride,
        "padding": "same" if same else "valid", "dilation_rate": dilation, "use_bias": bool(settings.get("bias")),
    }  # fmt: skip
    conv_layer = layer(f"Conv{rank}DTranspose", arguments, strides="stride", dilation_rate="dilation", use_bias="bias")
    # Keras's output has n * stride + max(reach - stride, 0) places, PyTorch's (n - 1) * stride + reach, then cut.
    cuts = tuple(
        (cut, max(step - reach, 0) + cut - extra)
        for reach, step, cut, extra in zip(reaches, stride, cropped, more, strict=True)
    )
    notes = ("output_size sets output_padding in this call",) if "output_size" in call.arguments else ()
    if same or not any(any(cut) for cut in cuts):
        return Counterpart((conv_layer,), notes)
    if any(after < 0 for _, after in cuts):
        more = tuple(max(-after, 0) for _, after in cuts)
        note = f", followed by {more} more places of the bias (zeros without one), for output_padding"
        return Counterpart((), (*notes, note), partial=conv_layer)
    return Counterpart((conv_layer, layer(f"Cropping{rank}D", {"cropping": sides(cuts)})), notes)


def _kind(name: str, rank: int, texts: tuple[str, ...], compared: tuple[Compared, ...]) -> Kind:
    weight = Part(("{weight}",), ("kernel",), rules(*texts), normed=True)
    crops = name == "conv_transpose"
    function = _FUNCTIONS.get(f"{name}{rank}d")
    grouped = (lambda module: module.groups > 1) if name == "depthwise_conv" else None
    return Kind(
        f"{name}{rank}d", (weight, _BIAS), layouts(*_axes(rank)), (*_WINDOW, *compared), _NAMES,
        padded="" if crops else "module", cropped=crops, activates=True, keras=_KERAS[f"{name}{rank}d"],
        torch=torch_classes(f"ConvTranspose{rank}d" if crops else f"Conv{rank}d", when=grouped, output="image"),
        functions=(function,) if function else (), call=_transposed if crops else _convolution,
        note=_NOTES[name],
    )  # fmt: skip


ALL = (
    *(_kind("conv", rank, texts, (*_PLAIN, Compared("padding_mode", "", "zeros"))) for rank, texts in _RULES.items()),
    *(_kind("depthwise_conv", rank, texts, ()) for rank, texts in _DEPTHWISE.items()),
    *(
        _kind(
            "conv_transpose",
            rank,
            (f"conv_transpose{rank}d",),
            (_PLAIN[0], Compared("groups", "", "ones"), Compared("output_padding", "output_padding", "tuple")),
        )
        for rank in SPACES
    ),
)
