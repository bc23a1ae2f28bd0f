"""What two layers were told differently, where their windows lie and how flattened axes are ordered, of real layers."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import jax
import keras
import numpy as np
import pytest
import torch
from torch import nn

from wdport.compare.flatten_order import agreeing
from wdport.compare.layouts import Layout, axes
from wdport.compare.pairs import Pair
from wdport.compare.settings import compare_pair, differences, differing
from wdport.uses.masked_lm.port import TokenEmbedding

layers: Any = keras.layers
LAST = Layout((axes("b c h w -> b h w c"),))
SAME = Layout((axes("... -> ..."),))


class Strided(nn.Conv1d):
    """A user's class that computes what its base does."""


TRANSPOSED = nn.ConvTranspose1d(3, 4, 4, stride=2, padding=1)
IMAGE, FIRST, CUBE = (2, 5, 4, 3), (2, 3, 5, 4), (2, 3, 3, 3)
ALIKE: dict[str, Pair] = {
    "batch norm": Pair(
        "batch_norm", nn.BatchNorm2d(4, eps=0.0010000000474974513), layers.BatchNormalization(epsilon=1e-3)
    ),
    "same padding": Pair("conv2d", nn.Conv2d(3, 4, 3, padding=1), layers.Conv2D(4, 3, padding="same")),
    "dilated": Pair("conv1d", nn.Conv1d(3, 4, 3, dilation=2), layers.Conv1D(4, 3, dilation_rate=2)),
    "a window along one axis": Pair("conv2d", nn.Conv2d(3, 4, (5, 1)), layers.Conv1D(4, 5)),
    "a row that neither trains": Pair(
        "embedding", nn.Embedding(5, 4, padding_idx=1), TokenEmbedding(5, 4, padding_idx=1)
    ),
    "no bias": Pair("linear", nn.Linear(3, 4, bias=False), layers.Dense(4, use_bias=False)),
    "a padding apart": Pair(
        "conv2d", nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), layers.Conv2D(4, 3),
        input_shape=(1, 7, 7, 3), output_shape=(1, 5, 5, 4),
    ),
    "pooling": Pair("max_pool2d", nn.MaxPool2d(3, 2), layers.MaxPooling2D(3, 2)),
    "an output padding that Keras works out": Pair(
        "conv_transpose1d", nn.ConvTranspose1d(3, 4, 3, 2), layers.Conv1DTranspose(4, 3, 2)
    ),
    "no eps, so that of float32": Pair("rms_norm", nn.RMSNorm(4), layers.RMSNormalization(epsilon=2**-23)),
    "nonlinearity": Pair("rnn", nn.RNN(3, 4, nonlinearity="relu"), layers.SimpleRNN(4, activation="relu")),
    "slope": Pair("activation", nn.LeakyReLU(0.3), layers.LeakyReLU()),
    "dropout": Pair("dropout", nn.Dropout(0.1), layers.Dropout(0.5)),
    "a kind that nobody knows": Pair("", nn.Identity(), layers.Dense(5)),
    "same takes off what PyTorch's padding does": Pair(
        "conv_transpose1d", TRANSPOSED, layers.Conv1DTranspose(4, 4, 2, padding="same")
    ),
    "valid, of which a following layer can crop the rest": Pair(
        "conv_transpose1d", TRANSPOSED, layers.Conv1DTranspose(4, 4, 2), input_shape=(2, 9, 3), output_shape=(2, 18, 4)
    ),
    "zeros behind the windows, which a following layer can add": Pair(
        "conv_transpose1d", nn.ConvTranspose1d(3, 4, 2, stride=2, output_padding=1), layers.Conv1DTranspose(4, 2, 2),
        input_shape=(2, 9, 3), output_shape=(2, 19, 4),
    ),
    "a norm over the last axes": Pair(
        "layer_norm", nn.LayerNorm((4, 8)), layers.LayerNormalization(axis=(-2, -1), epsilon=1e-5), SAME, (2, 4, 8),
        (2, 4, 8),
    ),
    "a norm over channels that lie last in the port": Pair(
        "batch_norm", nn.BatchNorm2d(3, momentum=None), layers.BatchNormalization(epsilon=1e-5), LAST, FIRST, IMAGE
    ),
    "channels that stay first": Pair(
        "batch_norm", nn.BatchNorm2d(3), layers.BatchNormalization(axis=1, epsilon=1e-5, momentum=0.9), Layout(), FIRST,
        FIRST,
    ),
    "a slope for all": Pair("prelu", nn.PReLU(), layers.PReLU(shared_axes=[1, 2, 3]), LAST, FIRST, IMAGE),
    "a slope per channel": Pair("prelu", nn.PReLU(3), layers.PReLU(shared_axes=[1, 2]), LAST, FIRST, IMAGE),
    "a softmax over the channels": Pair("activation", nn.Softmax(1), layers.Softmax(), LAST, FIRST, IMAGE),
    "a function that nobody knows": Pair("activation", nn.ReLU(), layers.Activation(lambda x: x)),
    "gelu, as JAX approximates it": Pair("activation", nn.GELU("tanh"), layers.Activation(jax.nn.gelu)),
    "two names of one function": Pair("activation", nn.CELU(), layers.ELU()),
    "hardtanh as relu": Pair("", nn.Hardtanh(0, 6), layers.ReLU(max_value=6)),
    "what follows, fused": Pair("linear", nn.Linear(3, 4), layers.Dense(4, activation="gelu"), Layout(after="gelu")),
    "a function of the user's own, fused": Pair("linear", nn.Linear(3, 4), layers.Dense(4, activation=lambda x: x)),
    "both directions": Pair(
        "bidirectional_gru", nn.GRU(3, 4, bidirectional=True, batch_first=True),
        layers.Bidirectional(layers.GRU(4, return_sequences=True)),
    ),
    "steps first, exchanged": Pair("lstm", nn.LSTM(3, 4), layers.LSTM(4), SAME, (5, 2, 3), (2, 5, 3)),
    "instances": Pair("group_norm", nn.InstanceNorm1d(4, affine=True), layers.GroupNormalization(-1, epsilon=1e-5)),
    "a padding that counts, apart": Pair(
        "avg_pool2d", nn.AvgPool2d(3, 1, padding=1), layers.AveragePooling2D(3, 1), LAST, FIRST, (2, 7, 6, 3), IMAGE
    ),
    "upsampling": Pair("", nn.Upsample(scale_factor=2), layers.UpSampling2D(2), LAST, FIRST, IMAGE),
    "zeros around": Pair("", nn.ZeroPad2d((1, 2, 3, 0)), layers.ZeroPadding2D(((3, 0), (1, 2))), LAST, FIRST, IMAGE),
    "a norm of a class of one's own": Pair("rms_norm", nn.Identity(), layers.RMSNormalization(epsilon=1e-6)),
}  # fmt: skip

OTHER: list[tuple[str, Pair]] = [
    ("negative_slope 0.3 where the reference has 0.01", Pair("activation", nn.LeakyReLU(), layers.LeakyReLU())),
    ("alpha 1 where the reference has 0.5", Pair("activation", nn.ELU(0.5), layers.ELU())),
    ("activation (nonlinearity) tanh where the reference has relu",
     Pair("rnn", nn.RNN(3, 4, nonlinearity="relu"), layers.SimpleRNN(4))),
    ("epsilon (eps) 1e-06 where the reference has None",
     Pair("rms_norm", nn.RMSNorm(4), layers.RMSNormalization(epsilon=1e-6))),
    ("output_padding None where the reference has (1,)",
     Pair("conv_transpose1d", nn.ConvTranspose1d(3, 4, 3, 2, output_padding=1), layers.Conv1DTranspose(4, 3, 2))),
    ("epsilon (eps) 0.001 where the reference has 1e-05",
     Pair("batch_norm", nn.BatchNorm2d(4), layers.BatchNormalization())),
    ("strides (stride) (1, 1) where the reference has (2, 2)",
     Pair("conv2d", nn.Conv2d(3, 4, 3, stride=2), layers.Conv2D(4, 3))),
    ("padding same where the reference has (1, 1)",
     Pair("conv2d", nn.Conv2d(3, 4, 5, padding=1), layers.Conv2D(4, 5, padding="same"))),
    ("use_bias (bias) False where the reference has a bias",
     Pair("linear", nn.Linear(3, 4), layers.Dense(4, use_bias=False))),
    ("use_bias (bias) True where the reference has no bias",
     Pair("conv2d", nn.Conv2d(3, 4, 3, bias=False), layers.Conv2D(4, 3))),
    ("the reference has padding_mode reflect, which has no counterpart in the port's layer",
     Pair("conv2d", nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), layers.Conv2D(4, 3, padding="same"))),
    ("groups (num_groups) 4 where the reference has 2",
     Pair("group_norm", nn.GroupNorm(2, 4, eps=1e-3), layers.GroupNormalization(4))),
    ("padding (count_include_pad) same where the reference has True",
     Pair("avg_pool2d", nn.AvgPool2d(3, 2, padding=1), layers.AveragePooling2D(3, 2, padding="same"))),
    ("padding 'valid' cuts 0 and 0 off the ends; the reference (padding (1,), output_padding (0,)) cuts 1 and 1",
     Pair("conv_transpose1d", TRANSPOSED, layers.Conv1DTranspose(4, 4, 2))),
    ("padding 'same' cuts 1 and 1 off the ends; the reference (padding (0,), output_padding (0,)) cuts 0 and 0",
     Pair("conv_transpose1d", nn.ConvTranspose1d(3, 4, 3), layers.Conv1DTranspose(4, 3, padding="same"),
          input_shape=(2, 9, 3), output_shape=(2, 11, 4))),
    ("strides (stride) (1,) where the reference has (2, 1)",
     Pair("conv2d", nn.Conv2d(3, 4, (5, 1), stride=(2, 1)), layers.Conv1D(4, 5))),
    ("strides (stride) (2, 1) where the reference has 2",
     Pair("max_pool2d", nn.MaxPool2d(2, 2), layers.MaxPooling2D(2, (2, 1)))),
    ("axis (normalized_shape) 1 where the reference has [2]",
     Pair("layer_norm", nn.LayerNorm(8), layers.LayerNormalization(1, epsilon=1e-5), SAME, (2, 4, 8), (2, 4, 8))),
    ("axis 1 where the reference has 3",
     Pair("batch_norm", nn.BatchNorm2d(3), layers.BatchNormalization(1, epsilon=1e-5), LAST, CUBE, CUBE)),
    ("axis 1 where the reference has 3",
     Pair("batch_norm", nn.BatchNorm2d(3), layers.BatchNormalization(1, epsilon=1e-5), Layout(), (2, 3, 3, 3),
          (2, 3, 3, 3), last=True)),
    ("shared_axes (num_parameters) [2, 3] where the reference has [1, 2]",
     Pair("prelu", nn.PReLU(3), layers.PReLU(shared_axes=[2, 3]), LAST, (2, 3, 3, 3), (2, 3, 3, 3))),
    ("axis 1 where the reference has 3", Pair("activation", nn.Softmax(1), layers.Softmax(axis=1), LAST, FIRST, IMAGE)),
    ("activation: GELU where the reference has GELU by tanh",
     Pair("activation", nn.GELU("tanh"), layers.Activation("gelu"))),
    ("threshold none where the reference has 20", Pair("activation", nn.Softplus(), layers.Activation("softplus"))),
    ("epsilon (eps) 0.001 where the reference has 1e-05",
     Pair("", nn.LayerNorm(8, elementwise_affine=False), layers.LayerNormalization(scale=False, center=False), SAME)),
    ("reset_after False where the reference has True", Pair("", nn.GRU(3, 4), layers.GRU(4, reset_after=False))),
    ("merge_mode sum where the reference has concat",
     Pair("", nn.LSTM(3, 4, bidirectional=True), layers.Bidirectional(layers.LSTM(4), merge_mode="sum"))),
    ("activation (nonlinearity) tanh where the reference has relu",
     Pair("", nn.RNNCell(3, 4, nonlinearity="relu"), layers.SimpleRNNCell(4))),
    ("epsilon (eps) 0.001 where the reference has 1e-05",
     Pair("", nn.InstanceNorm1d(4), layers.GroupNormalization(-1, scale=False, center=False))),
    ("epsilon (eps) 0.001 where the reference has 1e-05",
     Pair("", nn.InstanceNorm1d(4, affine=True, track_running_stats=True), layers.BatchNormalization(momentum=0.9))),
    ("strides (stride) (1,) where the reference has (2,)", Pair("", Strided(3, 4, 3, stride=2), layers.Conv1D(4, 3))),
    ("data_format channels_first where the reference has channels_last",
     Pair("", nn.Flatten(), layers.Flatten(data_format="channels_first"), LAST, FIRST, IMAGE)),
    ("activation: GELU where the reference has SiLU", Pair("", nn.SiLU(), layers.Activation("gelu"))),
    ("has a relu that the reference's module does not have; if it follows the module, state `then: relu`",
     Pair("linear", nn.Linear(3, 4), layers.Dense(4, activation="relu"))),
    ("activation: ReLU where the table has tanh",
     Pair("linear", nn.Linear(3, 4), layers.Dense(4, activation="relu"), Layout(after="tanh"))),
    ("go_backwards True where the reference has False", Pair("lstm", nn.LSTM(3, 4), layers.LSTM(4, go_backwards=True))),
    ("recurrent_activation hard_sigmoid where the reference has sigmoid",
     Pair("gru_cell", nn.GRUCell(3, 4), layers.GRUCell(4, recurrent_activation="hard_sigmoid"))),
    ("reset_after False where the reference has True", Pair("gru", nn.GRU(3, 4), layers.GRU(4, reset_after=False))),
    ("merge_mode sum where the reference has concat",
     Pair("bidirectional_lstm", nn.LSTM(3, 4, bidirectional=True),
          layers.Bidirectional(layers.LSTM(4), merge_mode="sum"))),
    ("backward_layer.activation relu where the reference has tanh",
     Pair("bidirectional_lstm", nn.LSTM(3, 4, bidirectional=True),
          layers.Bidirectional(layers.LSTM(4), backward_layer=layers.LSTM(4, go_backwards=True, activation="relu")))),
    ("treats the time axis as the batch: the reference has batch_first False",
     Pair("lstm", nn.LSTM(3, 4), layers.LSTM(4), SAME, (5, 2, 3), (5, 2, 3))),
    ("num_heads 4 where the reference has 2",
     Pair("attention_packed", nn.MultiheadAttention(8, 2), layers.MultiHeadAttention(4, 4))),
    ("groups (num_features) 2 where the reference has 4",
     Pair("group_norm", nn.InstanceNorm1d(4, affine=True), layers.GroupNormalization(2, epsilon=1e-5))),
    ("mask_zero (padding_idx) True where the reference has False",
     Pair("embedding", nn.Embedding(5, 4, padding_idx=0), layers.Embedding(5, 4, mask_zero=True))),
    ("input_dim (num_embeddings) 200000 where the reference has 200001",
     Pair("embedding", nn.Embedding(200_001, 1), layers.Embedding(200_000, 1))),
    ("mask_zero (padding_idx) True where the reference has False",
     Pair("embedding", nn.Embedding(5, 4), layers.Embedding(5, 4, mask_zero=True))),
    ("padding (count_include_pad) valid where the reference has False",
     Pair("avg_pool2d", nn.AvgPool2d(3, 1, padding=1, count_include_pad=False), layers.AveragePooling2D(3, 1), LAST,
          FIRST, (2, 7, 6, 3), IMAGE)),
    ("strides (2,), unlike the reference", Pair("linear", nn.Linear(3, 4), layers.Conv1D(4, 1, strides=2))),
    ("the reference has track_running_stats False, which has no counterpart in the port's layer",
     Pair("batch_norm", nn.BatchNorm1d(3, track_running_stats=False), layers.BatchNormalization(epsilon=1e-5))),
    ("padding ((1, 2), (3, 0)) where the reference has ((3, 0), (1, 2))",
     Pair("", nn.ZeroPad2d((1, 2, 3, 0)), layers.ZeroPadding2D(((1, 2), (3, 0))), LAST, FIRST, IMAGE)),
    ("interpolation (mode) nearest where the reference has bilinear",
     Pair("", nn.Upsample(scale_factor=2, mode="bilinear"), layers.UpSampling2D(2), LAST, FIRST, IMAGE)),
    ("the reference has mode bicubic, which has no counterpart in the port's layer",
     Pair("", nn.Upsample(scale_factor=2, mode="bicubic"), layers.UpSampling2D(2, interpolation="bicubic"))),
    ("data_format channels_first where the reference has channels_last",
     Pair("", nn.Upsample(scale_factor=2), layers.UpSampling2D(2, data_format="channels_first"), LAST, FIRST, IMAGE)),
]  # fmt: skip

TRAINING: list[tuple[str, Pair]] = [
    ("momentum 0.99 where the reference has 0.1, which is 0.9 in Keras",
     Pair("batch_norm", nn.BatchNorm1d(3), layers.BatchNormalization(epsilon=1e-5))),
    ("rate (p) 0.5 where the reference has 0.1", Pair("dropout", nn.Dropout(0.1), layers.Dropout(0.5))),
    ("dropout 0 where the reference has 0.1",
     Pair("attention_packed", nn.MultiheadAttention(8, 2, 0.1), layers.MultiHeadAttention(2, 4))),
    ("recurrent_dropout 0.2 where the reference has 0",
     Pair("lstm", nn.LSTM(3, 4), layers.LSTM(4, recurrent_dropout=0.2))),
    ("the reference has padding_idx 1, which has no counterpart in the port's layer",
     Pair("embedding", nn.Embedding(5, 4, padding_idx=1), layers.Embedding(5, 4))),
    ("trainable False where the reference's parameters are trained",
     Pair("linear", nn.Linear(3, 4), layers.Dense(4, trainable=False))),
]  # fmt: skip


def texts(pair: Pair) -> list[str]:
    """What differs, said alike by both functions if a pair has only what both take."""
    found = [each.text for each in compare_pair(pair)[1] if each.level == "differs"]
    if pair == replace(pair, layout=Layout(), fed=(), last=None):
        assert differences(pair.kind, pair.module, pair.layer, pair.input_shape, pair.output_shape) == found
    return found


@pytest.mark.parametrize("case", ALIKE)
def test_no_false_alarm(case: str) -> None:
    assert texts(ALIKE[case]) == []
    assert compare_pair(ALIKE[case])[0] or "nobody knows" in case or "own" in case


@pytest.mark.parametrize(("words", "pair"), OTHER)
def test_what_computes_differently(words: str, pair: Pair) -> None:
    assert texts(pair) == [words]
    found = [each for each in compare_pair(pair)[1] if each.level == "differs"]
    json.dumps([each.torch for each in found] + [each.keras for each in found], allow_nan=False)


@pytest.mark.parametrize(("words", "pair"), TRAINING)
def test_what_training_alone_reads(words: str, pair: Pair) -> None:
    assert [(each.level, each.text) for each in compare_pair(pair)[1]] == [("training", words)]
    assert texts(pair) == []


def equal(module: Any, layer: Any, size: int) -> bool:
    """Whether both pool a rising line alike: a window's largest number is its last place."""
    for line in (np.arange(1.0, size + 1), np.arange(size, 0.0, -1)):
        theirs = module(torch.tensor(line[None, None]).float()).numpy()[0, 0]
        ours = np.asarray(layer(line[None, :, None]))[0, :, 0]
        if theirs.shape != ours.shape or not np.array_equal(theirs, ours):
            return False
    return True


@pytest.mark.parametrize("size", range(7, 13))  # every remainder by every stride
def test_it_says_what_the_layers_do(size: int) -> None:
    seen = set()
    for window, stride, ceil, ours in product((2, 3, 4), (1, 2, 3), (False, True), ("same", "valid")):
        for padding in range(window // 2 + 1):
            module = nn.MaxPool1d(window, stride, padding, ceil_mode=ceil)
            layer = layers.MaxPooling1D(window, stride, padding=ours)
            told = differing(module, layer, (1, size, 1))
            assert told is not None
            assert (told == "") == equal(module, layer, size), (window, stride, padding, ceil, ours)
            seen.add(bool(told))
    assert seen == {False, True}


def test_strided_convolutions() -> None:
    """Keras's same pads behind where PyTorch's padding of one pads in front."""
    module, layer = nn.Conv2d(3, 4, 3, stride=2, padding=1), layers.Conv2D(4, 3, strides=2, padding="same")
    told = (
        "padding 'same' gives 6 windows over 12 positions, starting at 0; the reference (padding (1, 1)) gives 6, "
        "starting at -1"
    )
    assert differing(module, layer, (1, 12, 12, 3)) == told
    assert differing(module, layer, (1, 13, 13, 3)) == ""
    assert differing(nn.Conv1d(3, 4, 3), layers.Conv1D(4, 3, padding="causal"), (1, 9, 3)) != ""
    assert differing(nn.Conv2d(3, 4, (3, 1)), layers.Conv1D(4, 3), (1, 9, 3)) is None
    assert differing(nn.Linear(3, 4), layers.Dense(4), (1, 9, 3)) is None


def test_nothing_is_said_of_an_input_that_the_port_pads_itself() -> None:
    """PyTorch's layer makes 6 of 12; of the 14 that the port's is given, it would make 7."""
    module, layer = nn.Conv2d(3, 4, 3, stride=2, padding=1), layers.Conv2D(4, 3, strides=2)
    assert differing(module, layer, (1, 14, 14, 3), (1, 6, 6, 4)) == ""
    assert differing(module, layer, (1, 12, 12, 3), (1, 6, 6, 4)) != ""


ORDERS = list(permutations("chw"))


@pytest.mark.parametrize("sizes", [{"c": 5, "h": 2, "w": 3}, {"c": 4, "h": 3, "w": 3}])
def test_every_pair_of_orders_is_found(sizes: dict[str, int]) -> None:
    image = np.random.default_rng(0).standard_normal((2, *sizes.values()))  # b c h w
    for theirs in ORDERS:
        given = torch.tensor(image).permute(0, *(1 + "chw".index(name) for name in theirs)).flatten(1).numpy()
        for ours in ORDERS:
            own = np.einsum(f"bchw->b{''.join(ours)}", image).reshape(2, -1)
            told = agreeing(given, own, sizes, (tuple("chw"), ours))
            assert told == f"{' '.join(theirs)} -> {' '.join(ours)}"


def test_the_ports_order_need_not_be_known() -> None:
    """Told that Keras flattens h w c where it does c w h, another pair may do the same, and is as good."""
    sizes, image = {"c": 5, "h": 2, "w": 3}, np.random.default_rng(0).standard_normal((2, 5, 2, 3))
    told = agreeing(
        image.reshape(2, -1), np.einsum("bchw->bcwh", image).reshape(2, -1), sizes, (tuple("chw"), tuple("hwc"))
    )
    source, target = (side.split() for side in told.split(" -> "))
    split = image.reshape(2, *(sizes[name] for name in source))
    moved = np.einsum(f"b{''.join(source)}->b{''.join(target)}", split)
    np.testing.assert_array_equal(moved.reshape(2, -1), np.einsum("bchw->bcwh", image).reshape(2, -1))


def test_nothing_is_said_of_other_values() -> None:
    sizes, image = {"c": 5, "h": 2, "w": 3}, np.random.default_rng(0).standard_normal((2, 5, 2, 3))
    given, own = image.reshape(2, -1), np.einsum("bchw->bhwc", image).reshape(2, -1).copy()
    first = (tuple("chw"), tuple("hwc"))
    assert agreeing(given, own, sizes, first) == "c h w -> h w c"
    own[0, [0, 1]] = own[0, [1, 0]]
    assert agreeing(given, own, sizes, first) == ""
    assert agreeing(given, own, {"c": 5, "h": 2, "w": 2}, first) == "", "the sizes do not make up the axis"
