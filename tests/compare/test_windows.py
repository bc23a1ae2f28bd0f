"""Where windows lie, held against what PyTorch's and Keras's own layers make of numbered inputs."""

from __future__ import annotations

from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import torch
from torch import nn

from wdport.compare.settings import differing

layers: Any = keras.layers


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
