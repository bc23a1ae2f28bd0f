"""What two layers were told differently, said of real layers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jax
import keras
import pytest
from torch import nn

from wdport.compare.layouts import Layout, axes
from wdport.compare.pairs import Pair
from wdport.compare.settings import compare_pair, differences
from wdport.families.masked_lm.port import TokenEmbedding

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
    "no eps, so that of float64": Pair("rms_norm", nn.RMSNorm(4), layers.RMSNormalization(epsilon=2**-52)),
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

OTHER: dict[str, tuple[Pair, str]] = {
    "slope": (
        Pair("activation", nn.LeakyReLU(), layers.LeakyReLU()), "negative_slope 0.3 where the reference has 0.01",
    ),
    "alpha": (Pair("activation", nn.ELU(0.5), layers.ELU()), "alpha 1 where the reference has 0.5"),
    "nonlinearity": (
        Pair("rnn", nn.RNN(3, 4, nonlinearity="relu"), layers.SimpleRNN(4)),
        "activation (nonlinearity) tanh where the reference has relu",
    ),
    "no eps": (
        Pair("rms_norm", nn.RMSNorm(4), layers.RMSNormalization(epsilon=1e-6)),
        "epsilon (eps) 1e-06 where the reference has None",
    ),
    "output padding": (
        Pair("conv_transpose1d", nn.ConvTranspose1d(3, 4, 3, 2, output_padding=1), layers.Conv1DTranspose(4, 3, 2)),
        "output_padding None where the reference has (1,)",
    ),
    "epsilon": (
        Pair("batch_norm", nn.BatchNorm2d(4), layers.BatchNormalization()),
        "epsilon (eps) 0.001 where the reference has 1e-05",
    ),
    "stride": (
        Pair("conv2d", nn.Conv2d(3, 4, 3, stride=2), layers.Conv2D(4, 3)),
        "strides (stride) (1, 1) where the reference has (2, 2)",
    ),
    "padding": (
        Pair("conv2d", nn.Conv2d(3, 4, 5, padding=1), layers.Conv2D(4, 5, padding="same")),
        "padding same where the reference has (1, 1)",
    ),
    "a bias": (
        Pair("linear", nn.Linear(3, 4), layers.Dense(4, use_bias=False)),
        "use_bias (bias) False where the reference has a bias",
    ),
    "no bias": (
        Pair("conv2d", nn.Conv2d(3, 4, 3, bias=False), layers.Conv2D(4, 3)),
        "use_bias (bias) True where the reference has no bias",
    ),
    "padding mode": (
        Pair("conv2d", nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), layers.Conv2D(4, 3, padding="same")),
        "the reference has padding_mode reflect, which has no counterpart in the port's layer",
    ),
    "groups": (
        Pair("group_norm", nn.GroupNorm(2, 4, eps=1e-3), layers.GroupNormalization(4)),
        "groups (num_groups) 4 where the reference has 2",
    ),
    "a mean with its padding": (
        Pair("avg_pool2d", nn.AvgPool2d(3, 2, padding=1), layers.AveragePooling2D(3, 2, padding="same")),
        "padding (count_include_pad) same where the reference has True",
    ),
    "valid cuts nothing": (
        Pair("conv_transpose1d", TRANSPOSED, layers.Conv1DTranspose(4, 4, 2)),
        "padding 'valid' cuts 0 and 0 off the ends; the reference (padding (1,), output_padding (0,)) cuts 1 and 1",
    ),
    "same cuts what no following layer brings back": (
        Pair("conv_transpose1d", nn.ConvTranspose1d(3, 4, 3), layers.Conv1DTranspose(4, 3, padding="same"),
             input_shape=(2, 9, 3), output_shape=(2, 11, 4)),
        "padding 'same' cuts 1 and 1 off the ends; the reference (padding (0,), output_padding (0,)) cuts 0 and 0",
    ),
    "strides of a window along one axis": (
        Pair("conv2d", nn.Conv2d(3, 4, (5, 1), stride=(2, 1)), layers.Conv1D(4, 5)),
        "strides (stride) (1,) where the reference has (2, 1)",
    ),
    "strides along both axes": (
        Pair("max_pool2d", nn.MaxPool2d(2, 2), layers.MaxPooling2D(2, (2, 1))),
        "strides (stride) (2, 1) where the reference has 2",
    ),
    "a norm over another axis": (
        Pair("layer_norm", nn.LayerNorm(8), layers.LayerNormalization(1, epsilon=1e-5), SAME, (2, 4, 8), (2, 4, 8)),
        "axis (normalized_shape) 1 where the reference has [2]",
    ),
    "a norm over rows": (
        Pair("batch_norm", nn.BatchNorm2d(3), layers.BatchNormalization(1, epsilon=1e-5), LAST, CUBE, CUBE),
        "axis 1 where the reference has 3",
    ),
    "channels first in a port that has them last": (
        Pair("batch_norm", nn.BatchNorm2d(3), layers.BatchNormalization(1, epsilon=1e-5), Layout(), (2, 3, 3, 3),
             (2, 3, 3, 3), last=True),
        "axis 1 where the reference has 3",
    ),
    "a slope per row": (
        Pair("prelu", nn.PReLU(3), layers.PReLU(shared_axes=[2, 3]), LAST, (2, 3, 3, 3), (2, 3, 3, 3)),
        "shared_axes (num_parameters) [2, 3] where the reference has [1, 2]",
    ),
    "a softmax over rows": (
        Pair("activation", nn.Softmax(1), layers.Softmax(axis=1), LAST, FIRST, IMAGE),
        "axis 1 where the reference has 3",
    ),
    "gelu, exact": (
        Pair("activation", nn.GELU("tanh"), layers.Activation("gelu")),
        "activation: GELU where the reference has GELU by tanh",
    ),
    "softplus is linear above 20": (
        Pair("activation", nn.Softplus(), layers.Activation("softplus")),
        "threshold none where the reference has 20",
    ),
    "the epsilon of a row without a kind": (
        Pair("", nn.LayerNorm(8, elementwise_affine=False), layers.LayerNormalization(scale=False, center=False), SAME),
        "epsilon (eps) 0.001 where the reference has 1e-05",
    ),
    "the states of a recurrent row without a kind": (
        Pair("", nn.GRU(3, 4), layers.GRU(4, reset_after=False)), "reset_after False where the reference has True",
    ),
    "the directions of a recurrent row without a kind": (
        Pair("", nn.LSTM(3, 4, bidirectional=True), layers.Bidirectional(layers.LSTM(4), merge_mode="sum")),
        "merge_mode sum where the reference has concat",
    ),
    "the gates of a cell without a kind": (
        Pair("", nn.RNNCell(3, 4, nonlinearity="relu"), layers.SimpleRNNCell(4)),
        "activation (nonlinearity) tanh where the reference has relu",
    ),
    "the epsilon of an instance norm without a kind": (
        Pair("", nn.InstanceNorm1d(4), layers.GroupNormalization(-1, scale=False, center=False)),
        "epsilon (eps) 0.001 where the reference has 1e-05",
    ),
    "the epsilon of an instance norm's running statistics": (
        Pair("", nn.InstanceNorm1d(4, affine=True, track_running_stats=True), layers.BatchNormalization(momentum=0.9)),
        "epsilon (eps) 0.001 where the reference has 1e-05",
    ),
    "a window of a class derived from PyTorch's": (
        Pair("", Strided(3, 4, 3, stride=2), layers.Conv1D(4, 3)),
        "strides (stride) (1,) where the reference has (2,)",
    ),
    "the axes of a flattening without a kind": (
        Pair("", nn.Flatten(), layers.Flatten(data_format="channels_first"), LAST, FIRST, IMAGE),
        "data_format channels_first where the reference has channels_last",
    ),
    "another function": (
        Pair("", nn.SiLU(), layers.Activation("gelu")), "activation: GELU where the reference has SiLU",
    ),
    "what nobody says, fused": (
        Pair("linear", nn.Linear(3, 4), layers.Dense(4, activation="relu")),
        "has a relu that the reference's module does not have; if it follows the module, state `then: relu`",
    ),
    "something else, fused": (
        Pair("linear", nn.Linear(3, 4), layers.Dense(4, activation="relu"), Layout(after="tanh")),
        "activation: ReLU where the table has tanh",
    ),
    "backwards": (
        Pair("lstm", nn.LSTM(3, 4), layers.LSTM(4, go_backwards=True)),
        "go_backwards True where the reference has False",
    ),
    "a gate's function": (
        Pair("gru_cell", nn.GRUCell(3, 4), layers.GRUCell(4, recurrent_activation="hard_sigmoid")),
        "recurrent_activation hard_sigmoid where the reference has sigmoid",
    ),
    "the reset before the product": (
        Pair("gru", nn.GRU(3, 4), layers.GRU(4, reset_after=False)), "reset_after False where the reference has True",
    ),
    "the sum of both directions": (
        Pair("bidirectional_lstm", nn.LSTM(3, 4, bidirectional=True), layers.Bidirectional(layers.LSTM(4),
             merge_mode="sum")),
        "merge_mode sum where the reference has concat",
    ),
    "one direction's function": (
        Pair("bidirectional_lstm", nn.LSTM(3, 4, bidirectional=True), layers.Bidirectional(layers.LSTM(4),
             backward_layer=layers.LSTM(4, go_backwards=True, activation="relu"))),
        "backward_layer.activation relu where the reference has tanh",
    ),
    "steps taken for the batch": (
        Pair("lstm", nn.LSTM(3, 4), layers.LSTM(4), SAME, (5, 2, 3), (5, 2, 3)),
        "treats the time axis as the batch: the reference has batch_first False",
    ),
    "heads": (
        Pair("attention_packed", nn.MultiheadAttention(8, 2), layers.MultiHeadAttention(4, 4)),
        "num_heads 4 where the reference has 2",
    ),
    "groups of instances": (
        Pair("group_norm", nn.InstanceNorm1d(4, affine=True), layers.GroupNormalization(2, epsilon=1e-5)),
        "groups (num_features) 2 where the reference has 4",
    ),
    "a mask where the reference pads": (
        Pair("embedding", nn.Embedding(5, 4, padding_idx=0), layers.Embedding(5, 4, mask_zero=True)),
        "mask_zero (padding_idx) True where the reference has False",
    ),
    "an embedding without the last id": (
        Pair("embedding", nn.Embedding(200_001, 1), layers.Embedding(200_000, 1)),
        "input_dim (num_embeddings) 200000 where the reference has 200001",
    ),
    "a mask that nothing asks for": (
        Pair("embedding", nn.Embedding(5, 4), layers.Embedding(5, 4, mask_zero=True)),
        "mask_zero (padding_idx) True where the reference has False",
    ),
    "a mean that leaves out what is padded apart": (
        Pair("avg_pool2d", nn.AvgPool2d(3, 1, padding=1, count_include_pad=False), layers.AveragePooling2D(3, 1), LAST,
             FIRST, (2, 7, 6, 3), IMAGE),
        "padding (count_include_pad) valid where the reference has False",
    ),
    "a dense layer that strides": (
        Pair("linear", nn.Linear(3, 4), layers.Conv1D(4, 1, strides=2)),
        "strides (2,), unlike the reference",
    ),
    "running statistics that nobody keeps": (
        Pair("batch_norm", nn.BatchNorm1d(3, track_running_stats=False), layers.BatchNormalization(epsilon=1e-5)),
        "the reference has track_running_stats False, which has no counterpart in the port's layer",
    ),
    "zeros on the other sides": (
        Pair("", nn.ZeroPad2d((1, 2, 3, 0)), layers.ZeroPadding2D(((1, 2), (3, 0))), LAST, FIRST, IMAGE),
        "padding ((1, 2), (3, 0)) where the reference has ((3, 0), (1, 2))",
    ),
    "another interpolation": (
        Pair("", nn.Upsample(scale_factor=2, mode="bilinear"), layers.UpSampling2D(2), LAST, FIRST, IMAGE),
        "interpolation (mode) nearest where the reference has bilinear",
    ),
    "a cubic kernel of Keras's own": (
        Pair("", nn.Upsample(scale_factor=2, mode="bicubic"), layers.UpSampling2D(2, interpolation="bicubic")),
        "the reference has mode bicubic, which has no counterpart in the port's layer",
    ),
    "windows of channels": (
        Pair("", nn.Upsample(scale_factor=2), layers.UpSampling2D(2, data_format="channels_first"), LAST, FIRST, IMAGE),
        "data_format channels_first where the reference has channels_last",
    ),
}  # fmt: skip

TRAINING: dict[str, tuple[Pair, str]] = {
    "momentum": (
        Pair("batch_norm", nn.BatchNorm1d(3), layers.BatchNormalization(epsilon=1e-5)),
        "momentum 0.99 where the reference has 0.1, which is 0.9 in Keras",
    ),
    "dropout": (Pair("dropout", nn.Dropout(0.1), layers.Dropout(0.5)), "rate (p) 0.5 where the reference has 0.1"),
    "dropout of attention": (
        Pair("attention_packed", nn.MultiheadAttention(8, 2, 0.1), layers.MultiHeadAttention(2, 4)),
        "dropout 0 where the reference has 0.1",
    ),
    "dropout of states": (
        Pair("lstm", nn.LSTM(3, 4), layers.LSTM(4, recurrent_dropout=0.2)),
        "recurrent_dropout 0.2 where the reference has 0",
    ),
    "a row that is not trained": (
        Pair("embedding", nn.Embedding(5, 4, padding_idx=1), layers.Embedding(5, 4)),
        "the reference has padding_idx 1, which has no counterpart in the port's layer",
    ),
    "frozen": (
        Pair("linear", nn.Linear(3, 4), layers.Dense(4, trainable=False)),
        "trainable False where the reference's parameters are trained",
    ),
}


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


@pytest.mark.parametrize("case", OTHER)
def test_what_computes_differently(case: str) -> None:
    pair, words = OTHER[case]
    assert texts(pair) == [words]
    found = [each for each in compare_pair(pair)[1] if each.level == "differs"]
    json.dumps([each.torch for each in found] + [each.keras for each in found], allow_nan=False)


@pytest.mark.parametrize("case", TRAINING)
def test_what_training_alone_reads(case: str) -> None:
    pair, words = TRAINING[case]
    assert [(each.level, each.text) for each in compare_pair(pair)[1]] == [("training", words)]
    assert texts(pair) == []
