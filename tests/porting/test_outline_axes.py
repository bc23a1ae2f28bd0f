"""Reshapes and transposes as rules with named axes: each rule, run by the table's own engine, gives torch's values."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from wdport.mapping.axes import parse_rule
from wdport.mapping.kinds.kind import keras_axis, keras_group, keras_order
from wdport.mapping.rearrange import apply_rule
from wdport.porting.outline.axes import Axes, AxisMove, chained, image, named, permute, regroup, text

SHAPES = [(2, 3, 4), (2, 12, 5), (3, 4, 6, 1), (2, 1, 8, 6), (6, 4), (2, 3, 2, 2, 5)]


def run(move: AxisMove, array: np.ndarray) -> np.ndarray:
    rule = parse_rule("move", str(move))
    sizes = {atom.name: int(atom.size) for side in (move.before, move.after) for group in side for atom in group}
    return apply_rule(rule, [array], sizes)[0]


def shapes_of(count: int, random: Random) -> tuple[int, ...]:
    """A shape with as many values."""
    made: list[int] = []
    while count > 1 and len(made) < 4:
        factors = [f for f in range(1, count + 1) if count % f == 0]
        made.append(random.choice(factors))
        count //= made[-1]
    return (*made, count)


@pytest.mark.parametrize("seed", range(120))
def test_a_chain_of_moves_is_one_rule(seed: int) -> None:
    random = Random(seed)
    shape = random.choice(SHAPES)
    x = torch.arange(int(np.prod(shape)), dtype=torch.float64).reshape(shape)
    axes, whole, made = named(shape), None, x
    for _ in range(random.randint(1, 4)):
        if random.random() < 0.5:
            order = random.sample(range(made.ndim), made.ndim)
            made, move = made.permute(order), permute(axes, order)
        else:
            target = shapes_of(made.numel(), random)
            found = regroup(axes, target)
            if found is None:  # an axis of a part of one and of another: no rule says that
                break
            made, move = made.reshape(target), found
        axes = move.after
        whole = move if whole is None else chained(whole, move)
    if whole is not None:
        assert np.array_equal(run(whole, x.numpy()), made.numpy()), str(whole)


@pytest.mark.parametrize(("shape", "target"), [((2, 3), (3, 2)), ((4, 6), (3, 8)), ((2, 0), (0,))])
def test_what_no_rule_says(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    assert regroup(named(shape), target) is None


def told(axes: Axes) -> str:
    return text(keras_order(axes))


def test_images_have_their_channels_last() -> None:
    axes = image((2, 3, 8, 6))
    assert (text(axes), told(axes)) == ("b c h w", "b h w c")
    assert told(permute(axes, (0, 3, 2, 1)).after) == "b h w c"  # w h c: rows come first again
    assert told(permute(axes, (0, 2, 3, 1)).after) == "b h w c"
    assert [keras_axis(axes, at) for at in range(4)] == [0, -1, 1, 2]
    assert keras_axis(named((2, 3, 8)), 1) is None
    flat = regroup(axes, (2, 144))
    assert flat is not None
    assert [atom.name for atom in keras_group(flat.after[1])] == ["h", "w", "c"]
    heads = regroup(permute(axes, (0, 2, 3, 1)).after, (2, 48, 3))
    assert heads is not None
    assert told(heads.after) == "b (h w) c"


def test_a_single_channel_and_a_single_row() -> None:
    assert told(image((2, 1, 8, 6))) == "b h w c"
    assert told(image((2, 3, 8, 1))) == "b h w c"
