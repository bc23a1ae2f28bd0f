"""Convolutions of one, two and three spatial axes: plain and grouped, depthwise, transposed."""

from __future__ import annotations

from wdport.mapping.catalog import layouts, rules
from wdport.mapping.kinds.kind import Arguments, Compared, Kind, Part, Shape, TorchFunction, torch_classes

_SPATIAL = {1: "l", 2: "h w", 3: "d h w"}
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

# What the same weight may be in a port of another rank: axes of size one are added or left out. Shapes tell
# the alternatives apart; where two fit, the window is one and both give the same kernel.
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
    return f"b c {_SPATIAL[rank]} -> b {_SPATIAL[rank]} c", f"b c {_SPATIAL[rank]}"


# A dense layer is a convolution with a window of one, and a convolution may have axes of size one.
_KERAS = {
    "conv1d": ("Conv1D", "Conv2D", "Dense"),
    "conv2d": ("Conv2D", "Conv1D", "Dense"),
    "conv3d": ("Conv3D", "Conv2D", "Dense"),
    "depthwise_conv1d": ("DepthwiseConv1D", "DepthwiseConv2D"),
    "depthwise_conv2d": ("DepthwiseConv2D", "DepthwiseConv1D"),
    **{f"conv_transpose{rank}d": (f"Conv{rank}DTranspose",) for rank in _SPATIAL},
}


def _settings(shape: Shape, arguments: Arguments) -> Arguments:
    channels = shape[1] * arguments.get("groups", 1)
    return {"in_channels": channels, "out_channels": shape[0], "kernel_size": shape[2:]}


def _transposed_settings(shape: Shape, arguments: Arguments) -> Arguments:
    channels = shape[1] * arguments.get("groups", 1)
    return {"in_channels": shape[0], "out_channels": channels, "kernel_size": shape[2:]}


_WEIGHTS = ("input", "weight", "bias", "stride", "padding")
_FUNCTIONS = {
    **{
        f"conv{rank}d": TorchFunction(
            f"conv{rank}d", f"Conv{rank}d", (*_WEIGHTS, "dilation", "groups"), _settings
        )
        for rank in _SPATIAL
    },
    **{
        f"conv_transpose{rank}d": TorchFunction(
            f"conv_transpose{rank}d", f"ConvTranspose{rank}d", (*_WEIGHTS, "output_padding", "groups", "dilation"),
            _transposed_settings,
        )
        for rank in _SPATIAL
    },
}  # fmt: skip


def _kind(name: str, rank: int, texts: tuple[str, ...], compared: tuple[Compared, ...]) -> Kind:
    weight = Part(("{weight}",), ("kernel",), rules(*texts), normed=True)
    crops = name == "conv_transpose"
    function = _FUNCTIONS.get(f"{name}{rank}d")
    grouped = (lambda module: module.groups > 1) if name == "depthwise_conv" else None
    return Kind(
        f"{name}{rank}d", (weight, _BIAS), layouts(*_axes(rank)), (*_WINDOW, *compared), _NAMES,
        padded="" if crops else "module", cropped=crops, keras=_KERAS[f"{name}{rank}d"],
        torch=torch_classes(f"ConvTranspose{rank}d" if crops else f"Conv{rank}d", when=grouped),
        functions=(function,) if function else (),
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
        for rank in _SPATIAL
    ),
)
