"""Orders of flattened axes, found from what PyTorch and NumPy make of one image."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from wdport.compare.orders import agreeing

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
