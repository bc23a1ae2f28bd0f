"""Pooling: stride, padding and whether it counts, rounding up, adaptive pools; padding, cropping and upsampling."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from keras import layers
from torch import nn

from .layers import Padded, Shuffle
from .pair import FIRST, IMAGE, LAST, SEQ, VOLUME, Pair

M1, M2, M3 = layers.MaxPooling1D, layers.MaxPooling2D, layers.MaxPooling3D
A1, A2, A3 = layers.AveragePooling1D, layers.AveragePooling2D, layers.AveragePooling3D
NO, ONE = (0, 0), (1, 1)
INNER = ("", "/inner")
ODD = ((2, 4, 7, 9),)

PAIRS = (
    Pair("max_pool1d", "max_pool1d", partial(nn.MaxPool1d, 3), partial(M1, 3), SEQ, {"stride 1": {"strides": 1}},
         LAST[1]),
    Pair("max_pool1d, channels first", "max_pool1d", partial(nn.MaxPool1d, 2), partial(M1, 2, **FIRST), SEQ,
         {"stride 1": {"strides": 1}, "padding same": {"padding": "same"}}, channels_first=True),
    Pair("max_pool2d, window 3, stride 2", "max_pool2d", partial(nn.MaxPool2d, 3, 2), partial(M2, 3, strides=2), IMAGE,
         {"stride equal to the window size": {"strides": None}, "padding same": {"padding": "same"}}, LAST[2]),
    Pair("max_pool2d, channels first", "max_pool2d", partial(nn.MaxPool2d, (2, 3), 1),
         partial(M2, (2, 3), strides=1, **FIRST), IMAGE, {"stride 2": {"strides": 2}}, channels_first=True),
    Pair("max_pool2d, padding 1", "max_pool2d", partial(nn.MaxPool2d, 3, 2, padding=1),
         partial(Padded, partial(M2, 3, strides=2), widths=(ONE, ONE, NO), value=-inf), IMAGE,
         {"filled with zeros": {"value": 0.0},
          "padding at the end, as with padding same": {"widths": (ONE, (0, 1), NO)}},
         LAST[2], at=INNER, code=("value", "widths")),
    Pair("max_pool2d, stride 1, padding 1", "max_pool2d", partial(nn.MaxPool2d, 3, 1, padding=1),
         partial(M2, 3, strides=1, padding="same"), IMAGE, {"padding valid": {"padding": "valid"}}, LAST[2]),
    Pair("max_pool2d, ceil_mode", "max_pool2d", partial(nn.MaxPool2d, 2, ceil_mode=True),
         partial(M2, 2, padding="same"), ODD, {"rounded down": {"padding": "valid"}}, LAST[2]),
    Pair("max_pool2d, ceil_mode, window 3, stride 2", "max_pool2d", partial(nn.MaxPool2d, 3, 2, ceil_mode=True),
         partial(Padded, partial(M2, 3, strides=2), widths=((0, 1), (0, 1), NO), value=-inf), ((8, 16, 8, 9),),
         {"filled with zeros": {"value": 0.0}, "padded in front": {"widths": ((1, 0), (0, 1), NO)},
          "rounded down": {"widths": (NO, NO, NO)}}, LAST[2], at=INNER, code=("value", "widths")),
    Pair("max_pool3d", "max_pool3d", partial(nn.MaxPool3d, 2, (1, 2, 2)), partial(M3, 2, strides=(1, 2, 2)), VOLUME,
         {"stride 2": {"strides": 2}}, LAST[3]),
    Pair("avg_pool1d", "avg_pool1d", partial(nn.AvgPool1d, 3, 2), partial(A1, 3, strides=2), SEQ,
         {"stride equal to the window size": {"strides": None}}, LAST[1]),
    Pair("avg_pool2d", "avg_pool2d", partial(nn.AvgPool2d, 2), partial(A2, 2), IMAGE, {"stride 1": {"strides": 1}},
         LAST[2]),
    Pair("avg_pool2d, padding 1 that counts", "avg_pool2d", partial(nn.AvgPool2d, 3, 1, padding=1),
         partial(Padded, partial(A2, 3, strides=1), widths=(ONE, ONE, NO)), IMAGE,
         {"padding that does not count": {"padding": "same", "widths": (NO, NO, NO)}},
         LAST[2], at=INNER, code=("widths",)),
    Pair("avg_pool2d, padding 1 that does not count", "avg_pool2d",
         partial(nn.AvgPool2d, 3, 1, padding=1, count_include_pad=False), partial(A2, 3, strides=1, padding="same"),
         IMAGE, {"padding valid": {"padding": "valid"}}, LAST[2]),
    Pair("avg_pool2d, channels first", "avg_pool2d", partial(nn.AvgPool2d, (3, 2), (2, 1)),
         partial(A2, (3, 2), strides=(2, 1), **FIRST), IMAGE, {"strides (1, 2)": {"strides": (1, 2)}},
         channels_first=True),
    Pair("avg_pool2d, ceil_mode", "avg_pool2d", partial(nn.AvgPool2d, 2, ceil_mode=True),
         partial(A2, 2, padding="same"), ODD, {"rounded down": {"padding": "valid"}}, LAST[2]),
    Pair("avg_pool3d", "avg_pool3d", partial(nn.AvgPool3d, 2, 1), partial(A3, 2, strides=1), VOLUME,
         {"stride equal to the window size": {"strides": None}}, LAST[3]),
    Pair("global mean", "", lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), layers.GlobalAveragePooling2D,
         IMAGE, {"channels first": {"data_format": "channels_first"}, "axes kept": {"keepdims": True}}, LAST[2], "...",
         unnamed={"channels first": "the module is two modules", "axes kept": "the module is two modules"},
         no_outline="its module is more layers than one"),
    Pair("global maximum", "", lambda: nn.Sequential(nn.AdaptiveMaxPool1d(1), nn.Flatten()), layers.GlobalMaxPooling1D,
         SEQ, {"channels first": {"data_format": "channels_first"}}, LAST[1], "...",
         unnamed={"channels first": "the module is two modules"}, no_outline="its module is more layers than one"),
    Pair("adaptive mean, sizes that do not divide evenly", "", partial(nn.AdaptiveAvgPool2d, (4, 3)),
         partial(layers.AdaptiveAveragePooling2D, output_size=(4, 3)), IMAGE, {"(3, 4)": {"output_size": (3, 4)}},
         LAST[2]),
    Pair("adaptive maximum, sizes that do not divide evenly", "", partial(nn.AdaptiveMaxPool2d, (4, 3)),
         partial(layers.AdaptiveMaxPooling2D, output_size=(4, 3)), IMAGE, {"(3, 4)": {"output_size": (3, 4)}}, LAST[2]),
)  # fmt: skip


UP2 = layers.UpSampling2D


def pads(name: str, torch: Any, mode: str, wrong: dict[str, Any], **given: Any) -> Pair:
    widths = ((1, 3), (2, 0), NO)  # PyTorch lists the last axis first: left, right, top, bottom
    return Pair(name, "", torch, partial(Padded, layers.Identity, widths=widths, mode=mode, **given), ((2, 3, 5, 6),),
                {"axes in PyTorch's order": {"widths": ((2, 0), (1, 3), NO)}} | wrong, LAST[2],
                code=("widths", "value" if given else "mode"))  # fmt: skip


CONSTANT = {"filled with zeros": {"mode": "constant"}}

RESIZING = (
    Pair("zero padding (1, 2, 3, 0)", "", partial(nn.ZeroPad2d, (1, 2, 3, 0)),
         partial(layers.ZeroPadding2D, padding=((3, 0), (1, 2))), IMAGE,
         {"axes in PyTorch's order": {"padding": ((1, 2), (3, 0))}, "sides exchanged": {"padding": ((0, 3), (2, 1))}},
         LAST[2]),
    Pair("zero padding of sequences", "", partial(nn.ZeroPad1d, (2, 1)), partial(layers.ZeroPadding1D, padding=(2, 1)),
         SEQ, {"sides exchanged": {"padding": (1, 2)}}, LAST[1]),
    Pair("zero padding of volumes, channels first", "", partial(nn.ZeroPad3d, (0, 1, 2, 0, 1, 1)),
         partial(layers.ZeroPadding3D, padding=((1, 1), (2, 0), (0, 1)), **FIRST), VOLUME,
         {"axes in PyTorch's order": {"padding": ((0, 1), (2, 0), (1, 1))}}, channels_first=True),
    Pair("cropping: negative padding", "", partial(nn.ZeroPad2d, (-1, -2, 0, -3)),
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
    Pair("upsampling of sequences, nearest", "", partial(nn.Upsample, scale_factor=3),
         partial(layers.UpSampling1D, size=3), SEQ, {"twice": {"size": 2}}, LAST[1]),
    Pair("upsampling, nearest", "", partial(nn.Upsample, scale_factor=(2, 3)), partial(UP2, size=(2, 3)), IMAGE,
         {"bilinear": {"interpolation": "bilinear"}, "(3, 2)": {"size": (3, 2)}}, LAST[2]),
    Pair("upsampling, nearest, channels first", "", partial(nn.Upsample, scale_factor=2), partial(UP2, size=2, **FIRST),
         IMAGE, {"channels last": {"data_format": "channels_last"}}, channels_first=True),
    Pair("upsampling, bilinear", "", partial(nn.Upsample, scale_factor=2, mode="bilinear"),
         partial(UP2, size=2, interpolation="bilinear"), IMAGE,
         {"nearest": {"interpolation": "nearest"}, "bicubic": {"interpolation": "bicubic"}}, LAST[2]),
    Pair("upsampling of volumes, nearest", "", partial(nn.Upsample, scale_factor=2),
         partial(layers.UpSampling3D, size=2), VOLUME, {"not in depth": {"size": (1, 2, 2)}}, LAST[3]),
    Pair("pixel shuffle", "", partial(nn.PixelShuffle, 2), partial(Shuffle, 2), ((2, 12, 3, 4),),
         {"TensorFlow's order of channels": {"channels_slowest": False}}, LAST[2],
         code=("channels_slowest",), in_words="a rearrangement of axes, which the outline writes as a rule"),
)  # fmt: skip
