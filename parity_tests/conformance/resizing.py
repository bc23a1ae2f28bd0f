"""Padding, cropping and upsampling: the order of axes and sides, what is filled in, how values are interpolated.

The project has no kind for these layers: they have no weights, and a table's row without a kind compares their outputs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from keras import layers
from torch import nn

from .layers import Padded, Shuffle
from .pair import FIRST, IMAGE, LAST, SEQ, VOLUME, Pair

UP2 = layers.UpSampling2D
NO = (0, 0)


def pads(name: str, torch: Any, mode: str, wrong: dict[str, Any], **given: Any) -> Pair:
    widths = ((1, 3), (2, 0), NO)  # PyTorch lists the last axis first: left, right, top, bottom
    return Pair(name, "", torch, partial(Padded, layers.Identity, widths=widths, mode=mode, **given), ((2, 3, 5, 6),),
                {"axes in PyTorch's order": {"widths": ((2, 0), (1, 3), NO)}} | wrong, LAST[2],
                code=("widths", "value" if given else "mode"))  # fmt: skip


CONSTANT = {"filled with zeros": {"mode": "constant"}}

PAIRS = (
    Pair("zero padding (1, 2, 3, 0)", "", partial(nn.ZeroPad2d, (1, 2, 3, 0)),
         partial(layers.ZeroPadding2D, padding=((3, 0), (1, 2))), IMAGE,
         {"axes in PyTorch's order": {"padding": ((1, 2), (3, 0))}, "sides exchanged": {"padding": ((0, 3), (2, 1))}},
         LAST[2]),
    Pair("zero padding of sequences", "", partial(nn.ZeroPad1d, (2, 1)), partial(layers.ZeroPadding1D, padding=(2,
         1)), SEQ,
         {"sides exchanged": {"padding": (1, 2)}}, LAST[1]),
    Pair("zero padding of volumes, channels first", "", partial(nn.ZeroPad3d, (0, 1, 2, 0, 1, 1)),
         partial(layers.ZeroPadding3D, padding=((1, 1), (2, 0), (0, 1)), **FIRST), VOLUME,
         {"axes in PyTorch's order": {"padding": ((0, 1), (2, 0), (1, 1))}}, channels_first=True),
    Pair("cropping: a negative padding", "", partial(nn.ZeroPad2d, (-1, -2, 0, -3)),
         partial(layers.Cropping2D, cropping=((0, 3), (1, 2))), IMAGE,
         {"axes in PyTorch's order": {"cropping": ((1, 2), (0, 3))}, "sides exchanged": {"cropping": ((3, 0), (2,
         1))}}, LAST[2]),
    pads("constant padding of 1.5", partial(nn.ConstantPad2d, (2, 0, 1, 3), 1.5), "constant",
         {"zeros": {"value": 0.0}}, value=1.5),
    pads("reflection padding", partial(nn.ReflectionPad2d, (2, 0, 1, 3)), "reflect",
         CONSTANT | {"the edge twice": {"mode": "symmetric"}}),
    pads("replication padding", partial(nn.ReplicationPad2d, (2, 0, 1, 3)), "edge",
         CONSTANT | {"symmetric": {"mode": "symmetric"}}),
    pads("circular padding", partial(nn.CircularPad2d, (2, 0, 1, 3)), "wrap",
         CONSTANT | {"reflect": {"mode": "reflect"}}),
    Pair("upsampling of sequences, nearest", "", partial(nn.Upsample, scale_factor=3), partial(layers.UpSampling1D,
         size=3),
         SEQ, {"twice": {"size": 2}}, LAST[1]),
    Pair("upsampling, nearest", "", partial(nn.Upsample, scale_factor=(2, 3)), partial(UP2, size=(2, 3)), IMAGE,
         {"bilinear": {"interpolation": "bilinear"}, "(3, 2)": {"size": (3, 2)}}, LAST[2]),
    Pair("upsampling, nearest, channels first", "", partial(nn.Upsample, scale_factor=2), partial(UP2, size=2, **FIRST),
         IMAGE, {"channels last": {"data_format": "channels_last"}}, channels_first=True),
    Pair("upsampling, bilinear", "", partial(nn.Upsample, scale_factor=2, mode="bilinear"),
         partial(UP2, size=2, interpolation="bilinear"), IMAGE,
         {"nearest": {"interpolation": "nearest"}, "bicubic": {"interpolation": "bicubic"}}, LAST[2]),
    Pair("upsampling of volumes, nearest", "", partial(nn.Upsample, scale_factor=2), partial(layers.UpSampling3D,
         size=2),
         VOLUME, {"not in depth": {"size": (1, 2, 2)}}, LAST[3]),
    Pair("pixel shuffle", "", partial(nn.PixelShuffle, 2), partial(Shuffle, 2), ((2, 12, 3, 4),),
         {"TensorFlow's order of channels": {"channels_slowest": False}}, LAST[2],
         code=("channels_slowest",), in_words="a rearrangement of axes, which the outline writes as a rule"),
)  # fmt: skip
