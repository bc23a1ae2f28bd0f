"""Convolutions and transposed ones: stride, dilation, groups, padding and output padding, where channels lie."""

from __future__ import annotations

from functools import partial

from keras import layers
from torch import nn

from .layers import Cut, Padded
from .pair import FIRST, IMAGE, LAST, SEQ, VOLUME, Pair

C1, C2, C3 = layers.Conv1D, layers.Conv2D, layers.Conv3D
NO, ONE = (0, 0), (1, 1)
INNER = ("", "/inner")
PADDED = {"padding same": {"padding": "same"}}
UNDILATED = {"no dilation": {"dilation_rate": 1}}


def strided(make: object, rank: int) -> Pair:
    """Stride 2 and padding 1 on an even size, where Keras's ``same`` pads only at the end."""
    module = getattr(nn, f"Conv{rank}d")
    widths = ((1, 1),) * rank + (NO,)
    return Pair(
        f"conv{rank}d, stride 2, padding 1", f"conv{rank}d", partial(module, 4, 5, 3, stride=2, padding=1),
        partial(Padded, partial(make, 5, 3, strides=2), widths=widths), ((2, 4, *(8, 6, 4)[:rank]),),
        {"padding at the end, as with padding same": {"widths": ((0, 1),) * rank + (NO,)},
         "all padding in front": {"widths": ((2, 0),) * rank + (NO,)}},
        LAST[rank], at=INNER, code=("widths",),
    )  # fmt: skip


def moded(mode: str, name: str) -> Pair:
    return Pair(
        f"conv2d, padding_mode {mode}", "conv2d", partial(nn.Conv2d, 4, 5, 3, padding=(1, 2), padding_mode=mode),
        partial(Padded, partial(C2, 5, 3), widths=(ONE, (2, 2), NO), mode=name), ((2, 4, 6, 5),),
        {"zeros": {"mode": "constant"}, "symmetric": {"mode": "symmetric"},
         "widths of the other axis": {"widths": ((2, 2), ONE, NO)}},
        LAST[2], at=INNER, code=("mode", "widths"),
    )  # fmt: skip


PAIRS = (
    Pair("conv1d", "conv1d", partial(nn.Conv1d, 4, 5, 3), partial(C1, 5, 3), SEQ, PADDED, LAST[1]),
    Pair("conv1d, stride 2", "conv1d", partial(nn.Conv1d, 4, 5, 3, stride=2), partial(C1, 5, 3, strides=2), SEQ,
         {"stride 1": {"strides": 1}, "stride 3": {"strides": 3}}, LAST[1]),
    Pair("conv1d, dilation 2", "conv1d", partial(nn.Conv1d, 4, 5, 3, dilation=2), partial(C1, 5, 3, dilation_rate=2),
         SEQ, UNDILATED, LAST[1]),
    Pair("conv1d, dilation 2, padding 2", "conv1d", partial(nn.Conv1d, 4, 5, 3, padding=2, dilation=2),
         partial(C1, 5, 3, dilation_rate=2, padding="same"), SEQ, UNDILATED | {"causal": {"padding": "causal"}},
         LAST[1]),
    Pair("conv1d, causal", "conv1d",
         lambda: nn.Sequential(nn.ConstantPad1d((4, 0), 0.0), nn.Conv1d(4, 5, 3, dilation=2)),
         partial(C1, 5, 3, dilation_rate=2, padding="causal"), SEQ,
         UNDILATED | {"padding on both sides": {"padding": "same"}}, LAST[1], at=(".1", ""),
         unnamed={"padding on both sides": "PyTorch's padding is a separate module"},
         no_outline="its module is more layers than one"),
    Pair("conv1d, groups and dilation", "conv1d", partial(nn.Conv1d, 4, 6, 3, dilation=2, groups=2),
         partial(C1, 6, 3, dilation_rate=2, groups=2), SEQ, UNDILATED, LAST[1]),
    Pair("conv1d, channels first", "conv1d", partial(nn.Conv1d, 4, 5, 3, padding=1),
         partial(C1, 5, 3, padding="same", **FIRST), SEQ, {"padding valid": {"padding": "valid"}}, channels_first=True),
    strided(C1, 1),
    Pair("conv2d, no bias", "conv2d", partial(nn.Conv2d, 4, 5, (3, 2), bias=False),
         partial(C2, 5, (3, 2), use_bias=False), IMAGE, PADDED, LAST[2]),
    Pair("conv2d, strides (2, 1)", "conv2d", partial(nn.Conv2d, 4, 5, 3, stride=(2, 1)),
         partial(C2, 5, 3, strides=(2, 1)), ((2, 4, 7, 7),),
         {"strides (1, 2)": {"strides": (1, 2)}, "strides (1, 1)": {"strides": 1}}, LAST[2]),
    Pair("conv2d, padding same, even kernel size", "conv2d", partial(nn.Conv2d, 4, 5, 4, padding="same"),
         partial(C2, 5, 4, padding="same"), IMAGE, {"padding valid": {"padding": "valid"}}, LAST[2]),
    strided(C2, 2),
    Pair("conv2d, stride 2, padding 1, odd size", "conv2d", partial(nn.Conv2d, 4, 5, 3, stride=2, padding=1),
         partial(C2, 5, 3, strides=2, padding="same"), ((2, 4, 7, 9),), {"padding valid": {"padding": "valid"}},
         LAST[2]),
    Pair("conv2d, dilation (2, 3)", "conv2d", partial(nn.Conv2d, 4, 5, 2, dilation=(2, 3)),
         partial(C2, 5, 2, dilation_rate=(2, 3)), IMAGE, {"dilation (3, 2)": {"dilation_rate": (3, 2)}}, LAST[2]),
    Pair("conv2d, groups 2", "conv2d", partial(nn.Conv2d, 4, 6, 3, groups=2), partial(C2, 6, 3, groups=2), IMAGE,
         PADDED, LAST[2]),
    Pair("conv2d, channels first", "conv2d", partial(nn.Conv2d, 4, 5, 3, stride=2),
         partial(C2, 5, 3, strides=2, **FIRST), IMAGE, {"stride 1": {"strides": 1}}, channels_first=True),
    moded("reflect", "reflect"),
    moded("replicate", "edge"),
    moded("circular", "wrap"),
    Pair("conv2d with kernel (k, 1) as conv1d", "conv2d", partial(nn.Conv2d, 4, 5, (3, 1)), partial(C1, 5, 3),
         ((2, 4, 9, 1),), PADDED, "b c l 1 -> b l c", row='axes: "b c l 1 -> b l c"',
         no_outline="its twin is another layer than the nearest",
         no_model="its input has no layout that a table states"),
    Pair("1 x 1 conv2d as dense", "conv2d", partial(nn.Conv2d, 4, 5, 1), partial(layers.Dense, 5), IMAGE,
         {"an activation is fused": {"activation": "relu"}}, LAST[2],
         no_outline="its twin is another layer than the nearest"),
    Pair("conv3d", "conv3d", partial(nn.Conv3d, 4, 5, (2, 3, 2)), partial(C3, 5, (2, 3, 2)), VOLUME, PADDED, LAST[3]),
    Pair("conv3d, strides (1, 2, 1)", "conv3d", partial(nn.Conv3d, 4, 5, 2, stride=(1, 2, 1)),
         partial(C3, 5, 2, strides=(1, 2, 1)), VOLUME, {"strides (2, 1, 1)": {"strides": (2, 1, 1)}}, LAST[3]),
    Pair("conv3d, as many groups as channels", "conv3d", partial(nn.Conv3d, 4, 4, 2, groups=4),
         partial(C3, 4, 2, groups=4), VOLUME, PADDED, LAST[3]),
    strided(C3, 3),
    Pair("depthwise_conv1d, two outputs per channel", "depthwise_conv1d", partial(nn.Conv1d, 4, 8, 3, groups=4),
         partial(layers.DepthwiseConv1D, 3, depth_multiplier=2), SEQ, PADDED, LAST[1]),
    Pair("depthwise_conv2d, stride 2", "depthwise_conv2d", partial(nn.Conv2d, 4, 4, 3, stride=2, groups=4),
         partial(layers.DepthwiseConv2D, 3, strides=2), IMAGE, PADDED | {"stride 1": {"strides": 1}}, LAST[2]),
    Pair("depthwise_conv2d, dilation 2, padding 2", "depthwise_conv2d",
         partial(nn.Conv2d, 4, 8, 3, dilation=2, padding=2, groups=4),
         partial(layers.DepthwiseConv2D, 3, depth_multiplier=2, dilation_rate=2, padding="same"), IMAGE, UNDILATED,
         LAST[2]),
    Pair("depthwise_conv2d, channels first", "depthwise_conv2d", partial(nn.Conv2d, 4, 8, (3, 2), groups=4),
         partial(layers.DepthwiseConv2D, (3, 2), depth_multiplier=2, **FIRST), IMAGE, PADDED, channels_first=True),
)  # fmt: skip


T1, T2, T3 = layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose

TRANSPOSED = (
    Pair("conv_transpose1d", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3), partial(T1, 5, 3), SEQ,
         {"padding same": {"padding": "same"}}, LAST[1]),
    Pair("conv_transpose1d, stride 2", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3, stride=2),
         partial(T1, 5, 3, strides=2), SEQ, {"stride 1": {"strides": 1}, "padding same": {"padding": "same"}}, LAST[1]),
    Pair("conv_transpose1d, dilation 2", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3, dilation=2),
         partial(T1, 5, 3, dilation_rate=2), SEQ, {"no dilation": {"dilation_rate": 1}}, LAST[1]),
    Pair("conv_transpose1d, stride 4, kernel size 8, padding 2", "conv_transpose1d",
         partial(nn.ConvTranspose1d, 4, 5, 8, stride=4, padding=2), partial(T1, 5, 8, strides=4, padding="same"), SEQ,
         {"padding valid": {"padding": "valid"}, "stride 2": {"strides": 2}}, LAST[1],
         unnamed={"padding valid": "a following layer can crop what it leaves"}),
    Pair("conv_transpose1d, padding 1", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3, stride=2, padding=1),
         partial(Cut, partial(T1, 5, 3, strides=2), widths=((1, 1),)), SEQ,
         {"cut at the start": {"widths": ((2, 0),)}, "cut at the end": {"widths": ((0, 2),)}}, LAST[1], at=INNER,
         code=("widths",)),
    Pair("conv_transpose1d, channels first", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3, stride=2),
         partial(T1, 5, 3, strides=2, **FIRST), SEQ, {"stride 1": {"strides": 1}}, channels_first=True),
    Pair("conv_transpose2d, kernel size (3, 4), stride 2", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, (3, 4), stride=2), partial(T2, 5, (3, 4), strides=2), IMAGE,
         {"strides (2, 1)": {"strides": (2, 1)}, "padding same": {"padding": "same"}}, LAST[2]),
    Pair("conv_transpose2d, kernel size 4, stride 2, padding 1", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, 4, stride=2, padding=1), partial(T2, 5, 4, strides=2, padding="same"),
         IMAGE, {"padding valid": {"padding": "valid"}}, LAST[2],
         unnamed={"padding valid": "a following layer can crop what it leaves"}),
    Pair("conv_transpose2d, kernel size 3, stride 2, padding 1, output padding 1", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, 3, stride=2, padding=1, output_padding=1),
         partial(Cut, partial(T2, 5, 3, strides=2), widths=((1, 0), (1, 0))), IMAGE,
         {"cut at the end, as Keras's same does": {"widths": ((0, 1), (0, 1))},
          "no output padding": {"widths": ((1, 1), (1, 1))}}, LAST[2], at=INNER, code=("widths",)),
    Pair("conv_transpose2d, output padding beyond the kernels", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, 2, stride=2, output_padding=1),
         partial(Cut, partial(T2, 5, 2, strides=2), widths=((0, -1), (0, -1))), IMAGE,
         {"no output padding": {"widths": ((0, 0), (0, 0))}}, LAST[2], at=INNER,
         code=("widths",), in_words="zeros plus the bias after the windows are no call of a layer"),
    Pair("conv_transpose1d, kernel size 2, stride 3: gaps", "conv_transpose1d",
         partial(nn.ConvTranspose1d, 4, 5, 2, stride=3), partial(Cut, partial(T1, 5, 2, strides=3), widths=((0, 1),)),
         SEQ, {"a gap after the last element, as in Keras": {"widths": ((0, 0),)}}, LAST[1], at=INNER,
         code=("widths",)),
    Pair("conv_transpose2d, no bias, channels first", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, 2, stride=2, bias=False),
         partial(T2, 5, 2, strides=2, use_bias=False, **FIRST), IMAGE, {"stride 1": {"strides": 1}},
         channels_first=True),
    Pair("conv_transpose3d, stride 2", "conv_transpose3d", partial(nn.ConvTranspose3d, 4, 5, 2, stride=2),
         partial(T3, 5, 2, strides=2), VOLUME, {"stride 1": {"strides": 1}}, LAST[3]),
)  # fmt: skip
