"""What two layers were told differently, said of real layers."""

from __future__ import annotations

from typing import Any

import keras
import pytest
from torch import nn

from wdport.compare.settings import differences

layers: Any = keras.layers

ALIKE: dict[str, tuple[Any, ...]] = {
    "batch norm": ("batch_norm", nn.BatchNorm2d(4, eps=0.0010000000474974513), layers.BatchNormalization(epsilon=1e-3)),
    "same padding": ("conv2d", nn.Conv2d(3, 4, 3, padding=1), layers.Conv2D(4, 3, padding="same")),
    "dilated": ("conv1d", nn.Conv1d(3, 4, 3, dilation=2), layers.Conv1D(4, 3, dilation_rate=2)),
    "a window along one axis": ("conv2d", nn.Conv2d(3, 4, (5, 1)), layers.Conv1D(4, 5)),
    "no bias": ("linear", nn.Linear(3, 4, bias=False), layers.Dense(4, use_bias=False)),
    "a padding apart": (
        "conv2d",
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        layers.Conv2D(4, 3),
        (1, 7, 7, 3),
        (1, 5, 5, 4),
    ),
    "pooling": ("max_pool2d", nn.MaxPool2d(3, 2), layers.MaxPooling2D(3, 2)),
    "an output padding that Keras works out": (
        "conv_transpose1d",
        nn.ConvTranspose1d(3, 4, 3, 2),
        layers.Conv1DTranspose(4, 3, 2),
    ),
    "no eps, so that of float32": ("rms_norm", nn.RMSNorm(4), layers.RMSNormalization(epsilon=2**-23)),
    "no eps, so that of float64": ("rms_norm", nn.RMSNorm(4), layers.RMSNormalization(epsilon=2**-52)),
    "nonlinearity": ("rnn", nn.RNN(3, 4, nonlinearity="relu"), layers.SimpleRNN(4, activation="relu")),
    "slope": ("activation", nn.LeakyReLU(0.3), layers.LeakyReLU()),
    "dropout": ("dropout", nn.Dropout(0.1), layers.Dropout(0.5)),
    "a kind that nobody knows": ("", nn.Linear(3, 4), layers.Dense(5)),
}

OTHER: dict[str, tuple[str, Any, Any, str]] = {
    "slope": (
        "activation",
        nn.LeakyReLU(),
        layers.LeakyReLU(),
        "negative_slope 0.3 where the reference has 0.01",
    ),
    "alpha": ("activation", nn.ELU(0.5), layers.ELU(), "alpha 1 where the reference has 0.5"),
    "nonlinearity": (
        "rnn",
        nn.RNN(3, 4, nonlinearity="relu"),
        layers.SimpleRNN(4),
        "activation (nonlinearity) tanh where the reference has relu",
    ),
    "no eps": (
        "rms_norm",
        nn.RMSNorm(4),
        layers.RMSNormalization(epsilon=1e-6),
        "epsilon (eps) 1e-06 where the reference has None",
    ),
    "output padding": (
        "conv_transpose1d",
        nn.ConvTranspose1d(3, 4, 3, 2, output_padding=1),
        layers.Conv1DTranspose(4, 3, 2),
        "output_padding None where the reference has (1,)",
    ),
    "epsilon": (
        "batch_norm",
        nn.BatchNorm2d(4),
        layers.BatchNormalization(),
        "epsilon (eps) 0.001 where the reference has 1e-05",
    ),
    "stride": (
        "conv2d",
        nn.Conv2d(3, 4, 3, stride=2),
        layers.Conv2D(4, 3),
        "strides (stride) (1, 1) where the reference has (2, 2)",
    ),
    "padding": (
        "conv2d",
        nn.Conv2d(3, 4, 5, padding=1),
        layers.Conv2D(4, 5, padding="same"),
        "padding same where the reference has (1, 1)",
    ),
    "a bias": (
        "linear",
        nn.Linear(3, 4),
        layers.Dense(4, use_bias=False),
        "use_bias (bias) False where the reference has a bias",
    ),
    "no bias": (
        "conv2d",
        nn.Conv2d(3, 4, 3, bias=False),
        layers.Conv2D(4, 3),
        "use_bias (bias) True where the reference has no bias",
    ),
    "padding mode": (
        "conv2d",
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        layers.Conv2D(4, 3, padding="same"),
        "the reference has padding_mode reflect, which the port's layer has no counterpart of",
    ),
    "groups": (
        "group_norm",
        nn.GroupNorm(2, 4, eps=1e-3),
        layers.GroupNormalization(4),
        "groups (num_groups) 4 where the reference has 2",
    ),
    "a mean with its padding": (
        "avg_pool2d",
        nn.AvgPool2d(3, 2, padding=1),
        layers.AveragePooling2D(3, 2, padding="same"),
        "count_include_pad",
    ),
}


@pytest.mark.parametrize("case", ALIKE)
def test_alike(case: str) -> None:
    assert differences(*ALIKE[case]) == []


@pytest.mark.parametrize("case", OTHER)
def test_told_differently(case: str) -> None:
    kind, module, layer, words = OTHER[case]
    (found,) = differences(kind, module, layer)
    assert words in found
