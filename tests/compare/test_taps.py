"""Alignment: every tap row finds its layers on both sides; their axes, and the settings of whole models."""

from __future__ import annotations

import gc
from pathlib import Path
from threading import Thread
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch
from keras.src.backend.common import tensor_attributes
from keras.src.backend.common.masking import set_keras_mask
from torch import nn

from tests.families.test_custom import HEAD, TABLES
from tests.make import SMALL, make_module
from wdport.base.errors import IncompleteError, MisfitError, UsageError
from wdport.compare.alignment import compare_settings
from wdport.compare.calls import Call, ExpectedCall
from wdport.compare.layouts import AFTER, Layout, axes, fed_in_port, in_port, laid_out, leaf_names
from wdport.compare.setting_values import SettingsReport
from wdport.compare.taps import Tap, align, left_out, stated_by, unconverted, without_module
from wdport.conversion.check import settings_report
from wdport.conversion.prepare import Settings
from wdport.mapping.kinds.activations import ROW_NAMES
from wdport.mapping.kinds.windows import PADDING_MODES
from wdport.mapping.table import parse_table
from wdport.models.keras_runtime import layers_by_path
from wdport.recording.runs import module_names
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.port import WaveletDiff

TEXT = Path("tests/mapping/format1/waveletdiff.yaml").read_text()
MODULES = module_names(make_module(SMALL))
LAYERS = set(layers_by_path(WaveletDiff(SMALL)))
FEATURES = FAMILY.features(SMALL)


def aligned(text: str = TEXT, modules: list[str] = MODULES, layers: set[str] = LAYERS) -> list:  # type: ignore[type-arg]
    return align(parse_table(text.encode(), "test"), modules, layers, FEATURES, part="level")


def test_all_rows_are_used_once() -> None:
    taps = aligned()
    assert len(taps) > 100
    assert len({tap.reference for tap in taps}) == len({tap.candidate for tap in taps}) == len(taps)
    assert {tap.part for tap in taps} == {None, 0, 1, 2, 3}


def test_every_module_that_computes_is_tapped() -> None:
    """Containers and the insides of packed attention have no output of their own."""
    silent = {name for name in MODULES if name.endswith((".blocks", ".out_proj"))}
    silent |= {name for name in MODULES if name.startswith("cross_level_attention.") and name.count(".") == 1}
    silent |= {"level_transformers"}
    assert set(MODULES) - silent - {tap.reference for tap in aligned()} == set()


def test_a_renamed_tap_is_incomplete() -> None:
    with pytest.raises(IncompleteError, match="the reference has no layer"):
        aligned(TEXT.replace("{torch: norm1, keras: norm1}", "{torch: norm9, keras: norm1}"))
    with pytest.raises(IncompleteError, match="has no such layer"):
        aligned(TEXT.replace("{torch: norm1, keras: norm1}", "{torch: norm1, keras: norm9}"))


def test_two_taps_of_one_layer_are_refused() -> None:
    with pytest.raises(IncompleteError, match="named by two rows"):
        aligned(TEXT.replace("{torch: norm1, keras: norm1}", "{torch: norm1, keras: norm2}"))


def test_a_layer_missing_on_one_side_is_incomplete() -> None:
    with pytest.raises(IncompleteError):
        aligned(modules=[name for name in MODULES if not name.endswith(".dropout")])
    with pytest.raises(IncompleteError):
        aligned(layers=LAYERS - {"level_0/block_0/mlp"})


OPTIONAL = [Tap("a", "A", None, optional=True), Tap("a.b", "A/b", None), Tap("a.c", "A/c", None), Tap("d", "d", None)]
OURS = {"A": "", "A/b": "A", "A/c": "", "d": ""}
"""The port calls A, b inside it, and c beside it."""


def test_an_optional_tap_is_kept_where_both_sides_run_the_same_layers_inside_it() -> None:
    assert left_out(OPTIONAL, {"a": "", "x": "a", "a.b": "x", "a.c": "", "d": ""}, OURS) == {}


def test_an_optional_tap_is_left_out_with_the_reason() -> None:
    uncalled = left_out(OPTIONAL, {"a.b": "", "a.c": "", "d": ""}, OURS)
    assert uncalled == {OPTIONAL[0]: "the reference does not call it"}
    longer = left_out(OPTIONAL, {"a": "", "a.b": "a", "a.c": "a", "d": ""}, OURS)
    assert longer == {OPTIONAL[0]: "the reference runs c inside it"}
    shorter = left_out(OPTIONAL, {"a": "", "a.b": "", "a.c": "", "d": ""}, OURS)
    assert shorter == {OPTIONAL[0]: "the port runs b inside it"}


def test_a_layer_that_one_side_does_not_run_at_all_hides_nothing() -> None:
    """It is missing, which is told elsewhere; the layer around it computes something else."""
    theirs = {"a": "", "a.b": "a", "a.c": "a", "d": ""}
    assert left_out(OPTIONAL, theirs, {"A": "", "A/b": "A", "d": ""}) == {}


def test_a_tap_that_must_be_compared_is_never_left_out() -> None:
    required = [Tap("a", "A", None), *OPTIONAL[1:]]
    assert left_out(required, {"a.b": "", "a.c": "", "d": ""}, OURS) == {}


def test_a_layer_left_out_with_nothing_inside_it_is_incomplete() -> None:
    with pytest.raises(IncompleteError, match="no row names a layer in it"):
        left_out([OPTIONAL[0], OPTIONAL[3]], {"d": ""}, OURS)


SKIPS = """format: 2
layers:
  - {torch: block.<n>.skip, keras: block/<n>/skip, kind: KIND}
  - {torch: head, keras: head, kind: linear}
"""
BLOCKS = ["block.0.skip", "block.1.skip", "head"]


def test_a_match_without_tensors_may_lack_its_layer() -> None:
    table = parse_table(SKIPS.replace("KIND", "conv2d").encode(), "test")
    layers = {"block/1/skip", "head"}
    assert [tap.reference for tap in align(table, BLOCKS, layers, ())] == BLOCKS[1:]
    assert unconverted(table, BLOCKS, layers, ()) == {"block.0.skip": "block/0/skip"}
    with pytest.raises(IncompleteError, match="has no such layer"):  # all of them
        align(table, BLOCKS, {"head"}, ())


@pytest.mark.parametrize("kind", ["layer_norm", "dropout", "max_pool2d"])
def test_a_layer_that_never_needs_tensors_must_be_there(kind: str) -> None:
    table = parse_table(SKIPS.replace("KIND", kind).encode(), "test")
    with pytest.raises(IncompleteError, match="has no such layer"):
        align(table, BLOCKS, {"block/1/skip", "head"}, ())


WITHOUT = """format: 2
layers:
  - {torch: head, keras: head, kind: linear}
  - {torch: pool, keras: pool, optional: true}
"""


def test_an_optional_row_without_a_module_compares_nothing_and_is_named() -> None:
    table = parse_table(WITHOUT.encode(), "test")
    taps = align(table, ["head"], {"head", "pool"}, ())
    assert [tap.reference for tap in taps] == ["head"]
    assert without_module(table, ["head"], ()) == ["pool"]
    assert without_module(table, ["head", "pool"], ()) == []
    needed = parse_table(WITHOUT.replace(", optional: true", "").encode(), "test")
    with pytest.raises(IncompleteError, match="the reference has no layer pool"):
        align(needed, ["head"], {"head", "pool"}, ())


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
    more = fed_in_port(Call((x,), (x,), names=("hidden_states",)), Layout(), [x.shape] * 2, ("query", "value"))
    assert [at for at, array in more.items() if array is x] == [0, 1]
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
        (tap,) = stated_by(align(table, ["conv"], ["conv"], ()), modules)
        call = Call((given.numpy(),), (np.zeros((1, 3, 6, 5)),))
        inputs = in_port(call, tap.layout, ([(1, 10, 9, 2)], [(1, 6, 5, 3)])).inputs
        assert len(inputs) == count
        assert all(np.array_equal(each, right.numpy()) for each in inputs.values())


def test_angles_of_positions_and_masks_of_other_sizes_are_left_out() -> None:
    """``attention(hidden, (cos, sin), mask)`` as ``attention(x, mask)``, which computes the angles itself."""
    x, cos, sin = np.ones((2, 3, 4)), np.zeros((2, 3, 2)), np.ones((2, 3, 2))
    names = ("hidden_states", "position_embeddings", "attention_mask", "position_ids")
    theirs = Call((x, [cos, sin], np.ones((2, 1, 3, 3), bool), np.arange(3)), (x,), names=names)
    for ours in ("x", "hidden_states"):
        found = fed_in_port(theirs, Layout(), [x.shape, (2, 3, 3)], (ours, "attention_mask"), masks=[1])
        assert list(found) == [0]
        assert found[0] is x


def test_an_input_that_the_port_lacks_is_left_out_where_names_tell() -> None:
    x, time = np.ones((2, 3)), np.zeros((2, 4))
    call = Call((x, time), (x,), names=("hidden_states", "temb"))
    found = fed_in_port(call, Layout(), [(2, 4)], ("temb",))
    assert list(found) == [0]
    assert found[0] is time
    with pytest.raises(ValueError, match="2 inputs where the port has 1"):
        fed_in_port(call, Layout(), [(2, 4)], ("x",))


layers: Any = keras.layers


def told(folder: Path, name: str, twin: str = "") -> SettingsReport:
    (folder / "t.yaml").write_text(HEAD.format(torch=name, keras=twin or name) + TABLES[name])
    return settings_report(folder / "t.yaml", Settings())


def test_what_differs_is_told_at_its_layer(tmp_path: Path) -> None:
    (found,) = told(tmp_path, "image", "image_epsilon").of("differs")
    assert (found.reference, found.candidate, found.name) == ("bn", "bn", "epsilon")
    assert (found.torch, found.keras) == (1e-5, 1e-3)


def test_findings_are_in_the_order_of_the_taps_and_once_for_each_layer() -> None:
    modules = {"a": nn.Linear(3, 4), "b": nn.GRU(3, 4, 2)}
    port = {
        "a": layers.Dense(4, activation="relu"),
        "b_0": layers.GRU(4),
        "b_1": layers.GRU(4, recurrent_activation="relu"),
    }
    taps = [
        Tap("b", "b_1", None, layout=Layout(outputs_only=True), kind="gru", stack=("b_0", "b_1")),
        Tap("a", "a", None, kind="linear"),
        Tap("a#2", "a#2", None, kind="linear"),
    ]
    report = compare_settings(taps, modules, port)
    assert [(each.reference, each.candidate, each.name) for each in report.found] == [
        ("b", "b_1", "recurrent_activation"),
        ("a", "a", "activation"),
    ]
    assert [each.text for each in report.at("b")] == ["recurrent_activation relu where the reference has sigmoid"]
    assert not compare_settings(taps, {}, port).told


class Odd(nn.Module):
    """Has a convolution's settings, and values of its own."""

    kernel_size, stride, dilation, padding = (3, 3), (1, 1), (1, 1), ((1, 1), (0, 2))

    @property
    def groups(self) -> int:
        raise RuntimeError("not yet")


def test_values_that_nobody_expects_are_not_compared() -> None:
    taps = [Tap("a", "a", None, kind="conv2d"), Tap("b", "b", None, kind="linear")]
    port = {"a": layers.Conv2D(4, 3, padding="same"), "b": layers.Dense(4)}
    modules = {"a": Odd(), "b": nn.Linear(3, 4)}
    report = compare_settings(taps, modules, port)
    assert (report.layers, report.unread, report.found) == (2, (), ())
    given = {"a": Call((np.zeros((2, 5, 5, 3)),), ())}
    report = compare_settings(taps, modules, port, None, given)
    assert (report.layers, report.unread, report.found) == (1, ("a",), ())


def test_a_table_that_names_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("format: 2\nlayers: [{torch: a, keras: a, kind: linear}]\n")
    for settings in (Settings(), Settings(model="tests.families.toys.twins:lstm")):
        with pytest.raises(UsageError, match="no model is named"):
            settings_report(tmp_path / "t.yaml", settings)
    with pytest.raises(UsageError, match="comes with"):
        settings_report("mappings/waveletdiff.yaml", Settings())


def test_a_mask_goes_with_its_array_whatever_thread_frees_it() -> None:
    """Keras keeps masks of traced arrays by id: the next array at the same address had one that another thread left."""

    places: list[int] = []

    def attach(x: jax.Array) -> jax.Array:
        total = x + 1
        cycle: list[object] = [total]
        cycle.append(cycle)  # only the garbage collector frees it
        set_keras_mask(total, x[0] > 0)
        places.append(id(total))
        return x * 2

    def masks() -> set[int]:
        return set(tensor_attributes.global_state.get_global_attribute("_keras_mask_dict"))

    gc.disable()
    try:
        jax.eval_shape(attach, jnp.ones(3))
        assert set(places) <= masks()
        collector = Thread(target=gc.collect)
        collector.start()
        collector.join()
    finally:
        gc.enable()
    assert not set(places) & masks()
