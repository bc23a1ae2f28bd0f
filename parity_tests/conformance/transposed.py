"""Transposed convolutions: stride, padding and output padding, which Keras counts in another way."""

from __future__ import annotations

from functools import partial

from keras import layers
from torch import nn

from .layers import Cut
from .pair import FIRST, IMAGE, LAST, SEQ, VOLUME, Pair

T1, T2, T3 = layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose
INNER = ("", "/inner")

PAIRS = (
    Pair("conv_transpose1d", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3), partial(T1, 5, 3), SEQ,
         {"padding same": {"padding": "same"}}, LAST[1]),
    Pair("conv_transpose1d, stride 2", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3, stride=2),
         partial(T1, 5, 3, strides=2), SEQ, {"stride 1": {"strides": 1}, "padding same": {"padding": "same"}}, LAST[1]),
    Pair("conv_transpose1d, dilation 2", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3, dilation=2),
         partial(T1, 5, 3, dilation_rate=2), SEQ, {"no dilation": {"dilation_rate": 1}}, LAST[1]),
    Pair("conv_transpose1d, stride 4, window 8, padding 2", "conv_transpose1d",
         partial(nn.ConvTranspose1d, 4, 5, 8, stride=4, padding=2), partial(T1, 5, 8, strides=4, padding="same"), SEQ,
         {"padding valid": {"padding": "valid"}, "stride 2": {"strides": 2}}, LAST[1],
         unnamed={"padding valid": "a following layer can crop what it leaves"}),
    Pair("conv_transpose1d, padding 1", "conv_transpose1d",
         partial(nn.ConvTranspose1d, 4, 5, 3, stride=2, padding=1), partial(Cut, partial(T1, 5, 3, strides=2),
         widths=((1, 1),)),
         SEQ, {"cut at the start": {"widths": ((2, 0),)}, "cut at the end": {"widths": ((0, 2),)}}, LAST[1], at=INNER,
         code=("widths",)),
    Pair("conv_transpose1d, channels first", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 3, stride=2),
         partial(T1, 5, 3, strides=2, **FIRST), SEQ, {"stride 1": {"strides": 1}}, channels_first=True),
    Pair("conv_transpose2d, window (3, 4), stride 2", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, (3, 4), stride=2), partial(T2, 5, (3, 4), strides=2), IMAGE,
         {"strides (2, 1)": {"strides": (2, 1)}, "padding same": {"padding": "same"}}, LAST[2]),
    Pair("conv_transpose2d, window 4, stride 2, padding 1", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, 4, stride=2, padding=1), partial(T2, 5, 4, strides=2, padding="same"),
         IMAGE, {"padding valid": {"padding": "valid"}}, LAST[2],
         unnamed={"padding valid": "a following layer can crop what it leaves"}),
    Pair("conv_transpose2d, window 3, stride 2, padding 1, output padding 1", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, 3, stride=2, padding=1, output_padding=1),
         partial(Cut, partial(T2, 5, 3, strides=2), widths=((1, 0), (1, 0))), IMAGE,
         {"cut at the end, as Keras's same does": {"widths": ((0, 1), (0, 1))},
          "no output padding": {"widths": ((1, 1), (1, 1))}}, LAST[2], at=INNER, code=("widths",)),
    Pair("conv_transpose2d, output padding beyond the windows", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, 2, stride=2, output_padding=1),
         partial(Cut, partial(T2, 5, 2, strides=2), widths=((0, -1), (0, -1))), IMAGE,
         {"no output padding": {"widths": ((0, 0), (0, 0))}}, LAST[2], at=INNER,
         code=("widths",), in_words="zeros plus the bias after the windows are no call of a layer"),
    Pair("conv_transpose1d, window 2, stride 3: gaps", "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 5, 2,
         stride=3),
         partial(Cut, partial(T1, 5, 2, strides=3), widths=((0, 1),)), SEQ,
         {"Keras's gap after the last": {"widths": ((0, 0),)}}, LAST[1], at=INNER, code=("widths",)),
    Pair("conv_transpose2d, no bias, channels first", "conv_transpose2d",
         partial(nn.ConvTranspose2d, 4, 5, 2, stride=2, bias=False),
         partial(T2, 5, 2, strides=2, use_bias=False, **FIRST), IMAGE, {"stride 1": {"strides": 1}},
         channels_first=True),
    Pair("conv_transpose3d, stride 2", "conv_transpose3d", partial(nn.ConvTranspose3d, 4, 5, 2, stride=2),
         partial(T3, 5, 2, strides=2), VOLUME, {"stride 1": {"strides": 1}}, LAST[3]),
)  # fmt: skip
