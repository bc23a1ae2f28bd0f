"""The axes of activations, and what a table may say to come after a module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wdport.compare.calls import Call, ExpectedCall
from wdport.compare.layouts import AFTER, Layout, axes, fed_in_port, in_port, laid_out, leaf_names
from wdport.compare.taps import align, padded_by
from wdport.errors import MisfitError
from wdport.mapping.kinds.activations import ROW_NAMES
from wdport.mapping.kinds.windows import PADDING_MODES
from wdport.mapping.table import parse_table

TABLE = """format: 2
layers:
  - {torch: conv, keras: conv, kind: conv2d, then: THEN}
"""


THEIRS = {"hard_sigmoid": "hardsigmoid", "hard_silu": "hardswish", "hard_tanh": "hardtanh"}
SPECIAL = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


def test_every_word_is_a_function() -> None:
    assert set(ROW_NAMES) == set(AFTER)


@pytest.mark.parametrize("name", ROW_NAMES)
def test_they_are_torchs(name: str) -> None:
    """In float64, and float32 stays float32."""
    values = np.random.default_rng(0).standard_normal((3, 5)) * 4
    given = torch.from_numpy(values)
    right = getattr(torch.nn.functional, THEIRS.get(name, name), None)
    right = SPECIAL[name](given) if name in SPECIAL else right(given)
    assert np.allclose(AFTER[name](values), right.numpy(), rtol=1e-14, atol=1e-15)
    assert AFTER[name](values.astype(np.float32)).dtype == np.float32


def test_another_word_is_refused() -> None:
    parse_table(TABLE.replace("THEN", "relu").encode(), "t")
    with pytest.raises(MisfitError, match="then is 'swish'"):
        parse_table(TABLE.replace("THEN", "swish").encode(), "t")


def test_axes_are_moved_by_name_where_sizes_coincide() -> None:
    cube = np.arange(2 * 4 * 4 * 4.0).reshape(2, 4, 4, 4)
    moved = laid_out(cube, (2, 4, 4, 4), [axes("b c h w -> b h w c")])
    assert np.array_equal(moved, cube.transpose(0, 2, 3, 1))
    with pytest.raises(ValueError, match="where the port has"):
        laid_out(cube[:, :3], (2, 4, 4, 2), [axes("b c h w -> b h w c")])


def attended(*given: np.ndarray, port: int) -> ExpectedCall:
    """A call of attention with these inputs, in a port that takes as many as ``port``."""
    call = Call(given, (given[0],))
    shapes = [given[0].shape]
    return in_port(call, Layout(), (shapes * port, shapes))


def test_an_array_given_several_times_may_be_taken_once() -> None:
    """``attention(x, x, x)`` as ``attention(x)``, ``attention(q, k, k)`` as ``attention(q, k)``."""
    x, y = np.random.default_rng(0).standard_normal((2, 2, 3, 4))
    assert np.array_equal(attended(x, x.copy(), x, port=1).inputs[0], x)
    both = attended(x, y, y.copy(), port=2)
    assert both.count == 2
    assert [np.array_equal(ours, theirs) for ours, theirs in zip(both.given, (x, y), strict=True)] == [True, True]
    with pytest.raises(ValueError, match="3 inputs where the port has 1"):
        attended(x, x, np.nextafter(x, 9), port=1)
    with pytest.raises(ValueError, match="3 inputs where the port has 1"):
        attended(x, y, y, port=1)


def test_arguments_that_hold_several_arrays_are_matched_by_name() -> None:
    """``block(x, mask, positions, (cos, sin))`` as ``block(x, (cos, sin), visible)``: the masks are left out."""
    x, cos, sin, mask, at = np.random.default_rng(0).standard_normal((5, 2, 3, 4))
    theirs = Call((x, mask, at, [cos, sin]), (x,), names=("x", "attention_mask", "position_ids", "positions"))
    ours = Call((x, [cos, sin], mask), (x,), names=("x", "positions", "visible"))
    assert leaf_names(ours) == ("x", "positions[0]", "positions[1]", "visible")
    found = fed_in_port(theirs, Layout(), [x.shape] * 4, leaf_names(ours))
    assert list(found) == [0, 1, 2]
    assert all(np.array_equal(found[at], right) for at, right in enumerate((x, cos, sin)))
    with pytest.raises(ValueError, match="5 inputs where the port has 4"):
        fed_in_port(Call(theirs.inputs, (x,)), Layout(), [x.shape] * 4, leaf_names(ours))


@pytest.mark.parametrize("mode", PADDING_MODES)
def test_a_padding_apart_is_the_references(mode: str) -> None:
    """PyTorch's own padding is what a port that pads before its convolution is fed."""
    conv = torch.nn.Conv2d(2, 3, 5, padding=(2, 1), padding_mode=mode)
    given = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 2, 6, 7)))
    widths = [1, 1, 2, 2]
    right = torch.nn.functional.pad(given, widths, "constant" if mode == "zeros" else mode).permute(0, 2, 3, 1)
    table = parse_table(TABLE.replace(", then: THEN", "").encode(), "t")
    for modules, count in (({"conv": conv}, 1), ({}, 0)):
        (tap,) = padded_by(align(table, ["conv"], ["conv"], ()), modules)
        call = Call((given.numpy(),), (np.zeros((1, 3, 6, 5)),))
        inputs = in_port(call, tap.layout, ([(1, 10, 9, 2)], [(1, 6, 5, 3)])).inputs
        assert len(inputs) == count
        assert all(np.array_equal(each, right.numpy()) for each in inputs.values())


def test_an_input_that_the_port_lacks_is_left_out_where_names_tell() -> None:
    x, time = np.ones((2, 3)), np.zeros((2, 4))
    call = Call((x, time), (x,), names=("hidden_states", "temb"))
    found = fed_in_port(call, Layout(), [(2, 4)], ("temb",))
    assert list(found) == [0]
    assert found[0] is time
    with pytest.raises(ValueError, match="2 inputs where the port has 1"):
        fed_in_port(call, Layout(), [(2, 4)], ("x",))
