"""Pairs of layers whose tensors, paths or layouts differ: of the conformance suite, and more that only tables need."""

from __future__ import annotations

from functools import partial
from typing import Any

from keras import layers
from torch import nn

from parity_tests.conformance import suite
from parity_tests.conformance.attention import GRU, LSTM, torch_rnn
from parity_tests.conformance.pair import IMAGE, LAST, SEQ, VOLUME, Pair, Shape

from .kind_layers import Projections, Separate, new_norm, old_norm

SUITE = (
    "linear", "linear, no bias, on sequences", "linear as a 1 x 1 convolution",
    "linear after a permuted flatten, (w h c)", "linear under weight_norm, old keys",
    "linear under weight_norm, new keys", "conv1d under weight_norm over the inputs", "conv1d",
    "conv1d, channels first", "conv2d, no bias", "conv2d, strides (2, 1)", "conv2d, groups 2", "conv2d, channels first",
    "conv2d with kernel (k, 1) as conv1d", "1 x 1 conv2d as dense", "conv3d",
    "depthwise_conv1d, two outputs per channel", "depthwise_conv2d, dilation 2, padding 2", "conv_transpose1d",
    "conv_transpose1d, stride 2",
    "conv_transpose2d, kernel size (3, 4), stride 2", "conv_transpose2d, no bias, channels first",
    "conv_transpose3d, stride 2", "layer_norm", "layer_norm over two axes", "group_norm of sequences, channels first",
    "batch_norm of vectors", "batch_norm of images, channels first", "batch_norm of images, all axes of the same size",
    "batch_norm of volumes, no weights", "rms_norm", "rms_norm of images with a weight (c, 1, 1)",
    "prelu with one number", "prelu of images", "prelu of sequences, channels first", "packed", "packed, no bias",
    "packed, to dense projections", "packed, kdim and vdim", "packed under other names", "separate projections",
    "separate projections under other names", "cross-attention", "lstm", "lstm, no bias", "lstm, two layers",
    "gru, two layers", "rnn, tanh", "bidirectional_lstm", "bidirectional_gru, time first", "bidirectional_rnn",
    "bidirectional_lstm, two layers", "lstm_cell", "gru_cell", "rnn_cell, relu",
)  # fmt: skip
"""The suite runs all of its pairs, with their mutants, in ``make parity``, and other ones of these kinds in
``make test``."""


def pair(name: str, kind: str, torch: Any, keras: Any, shape: Shape, axes: str = "") -> Pair:
    """A layout that the kind does not have is stated in the row."""
    stated = "" if axes in ("", *LAST.values()) else f'axes: "{axes}"'
    return Pair(name, kind, torch, keras, (shape,), {}, axes, row=stated)


def prelu(name: str, shared: list[int] | None, shape: Shape, axes: str = "") -> Pair:
    return pair(
        f"prelu of {name}", "prelu", partial(nn.PReLU, 4), partial(layers.PReLU, shared_axes=shared), shape, axes
    )


def normed(name: str, kind: str, norm: Any, torch: Any, keras: Any, shape: Shape, **how: Any) -> Pair:
    axes = "" if len(shape) == 2 else LAST[len(shape) - 2]
    return pair(f"{name} under weight_norm", kind, lambda: norm(torch(), **how), keras, shape, axes)


DENSE, C1, C2 = layers.Dense, partial(layers.Conv1D, 5), partial(layers.Conv2D, 5)
D1, D2 = (partial(each, depth_multiplier=2) for each in (layers.DepthwiseConv1D, layers.DepthwiseConv2D))
LINEAR = partial(nn.Linear, 3, 5)

MORE = (
    pair("linear as a convolution of 1", "linear", partial(nn.Linear, 4, 5), partial(C1, 1), (2, 9, 4)),
    pair("linear as a 1 x 1 x 1 convolution", "linear", partial(nn.Linear, 4, 5), partial(layers.Conv3D, 5, 1),
         (2, 3, 9, 8, 4)),
    pair("conv1d of 1 as dense", "conv1d", partial(nn.Conv1d, 4, 5, 1), partial(DENSE, 5), SEQ[0], LAST[1]),
    pair("1 x 1 x 1 conv3d as dense", "conv3d", partial(nn.Conv3d, 4, 5, 1), partial(DENSE, 5), VOLUME[0], LAST[3]),
    pair("conv2d of (1, k) as conv1d", "conv2d", partial(nn.Conv2d, 4, 5, (1, 3)), partial(C1, 3), (2, 4, 1, 9),
         "b c 1 l -> b l c"),
    pair("conv1d as conv2d with kernel (k, 1)", "conv1d", partial(nn.Conv1d, 4, 5, 3), partial(C2, (3, 1)), SEQ[0],
         "b c l -> b l 1 c"),
    pair("conv1d as conv2d of (1, k)", "conv1d", partial(nn.Conv1d, 4, 5, 3), partial(C2, (1, 3)), SEQ[0],
         "b c l -> b 1 l c"),
    pair("conv3d of (1, h, w) as conv2d", "conv3d", partial(nn.Conv3d, 4, 5, (1, 3, 2)), partial(C2, (3, 2)),
         (2, 4, 1, 6, 7), "b c 1 h w -> b h w c"),
    pair("conv3d of (k, 1, 1) as conv1d", "conv3d", partial(nn.Conv3d, 4, 5, (3, 1, 1)), partial(C1, 3),
         (2, 4, 6, 1, 1), "b c l 1 1 -> b l c"),
    pair("depthwise_conv1d as depthwise_conv2d", "depthwise_conv1d", partial(nn.Conv1d, 4, 8, 3, groups=4),
         partial(D2, (3, 1)), SEQ[0], "b c l -> b l 1 c"),
    pair("depthwise_conv2d with kernel (k, 1) as depthwise_conv1d", "depthwise_conv2d",
         partial(nn.Conv2d, 4, 8, (3, 1), groups=4), partial(D1, 3), (2, 4, 9, 1), "b c l 1 -> b l c"),
    pair("depthwise_conv2d of (1, k) as depthwise_conv1d", "depthwise_conv2d",
         partial(nn.Conv2d, 4, 8, (1, 3), groups=4), partial(D1, 3), (2, 4, 1, 9), "b c 1 l -> b l c"),
    prelu("vectors", None, (6, 4)),
    prelu("sequences", [1], SEQ[0], LAST[1]),
    prelu("volumes", [1, 2, 3], VOLUME[0], LAST[3]),
    prelu("images, channels first", [2, 3], IMAGE[0]),
    prelu("volumes, channels first", [2, 3, 4], VOLUME[0]),
    Pair("separate projections to query, key, value and out", "attention",
         partial(Separate, 8, 2, ("q_proj", "k_proj", "v_proj", "out_proj")), partial(Projections, 8, heads=2),
         ((2, 5, 8),) * 3, {}, one_array=True),
    normed("linear, old keys, over the inputs", "linear", old_norm, LINEAR, partial(DENSE, 5), (2, 3), dim=1),
    normed("linear, old keys, as a whole", "linear", old_norm, LINEAR, partial(DENSE, 5), (2, 3), dim=None),
    normed("linear, new keys, as a whole", "linear", new_norm, LINEAR, partial(DENSE, 5), (2, 3), dim=None),
    normed("linear of one output, new keys", "linear", new_norm, partial(nn.Linear, 3, 1), partial(DENSE, 1), (2, 3)),
    normed("conv1d, old keys", "conv1d", old_norm, partial(nn.Conv1d, 4, 5, 3), partial(C1, 3), SEQ[0]),
    normed("conv2d, new keys", "conv2d", new_norm, partial(nn.Conv2d, 4, 5, 3), partial(C2, 3), IMAGE[0]),
    normed("depthwise_conv1d, old keys", "depthwise_conv1d", old_norm, partial(nn.Conv1d, 4, 8, 3, groups=4),
           partial(D1, 3), SEQ[0]),
    normed("conv_transpose1d, new keys", "conv_transpose1d", new_norm, partial(nn.ConvTranspose1d, 4, 5, 3, stride=2),
           partial(layers.Conv1DTranspose, 5, 3, strides=2), SEQ[0], dim=1),
    Pair("lstm under weight_norm, old keys", "lstm", lambda: old_norm(torch_rnn("LSTM")(), "weight_hh_l0"), LSTM,
         ((2, 5, 3),), {}),
    Pair("gru under weight_norm, new keys", "gru", lambda: new_norm(torch_rnn("GRU")(), "weight_ih_l0"), GRU,
         ((2, 5, 3),), {}),
)  # fmt: skip

PAIRS = {name: suite.PAIRS[name] for name in SUITE} | {each.name: each for each in MORE}
