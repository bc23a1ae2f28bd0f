"""Where windows lie and how flattened axes are ordered, held against PyTorch's and Keras's own layers."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import keras
import numpy as np
import pytest
import torch
from torch import nn

from wdport.compare.orders import agreeing
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
