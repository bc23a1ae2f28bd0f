"""Alignment: every tap row finds its layers on both sides, or the run is incomplete."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.make import SMALL, make_module
from wdport.compare.taps import Tap, align, left_out, unconverted, without_module
from wdport.errors import IncompleteError
from wdport.families.waveletdiff.family import FAMILY
from wdport.families.waveletdiff.port import WaveletDiff
from wdport.keras_runtime import layers_by_path
from wdport.mapping.table import parse_table
from wdport.recorder import module_names

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
    with pytest.raises(IncompleteError, match="named by two taps"):
        aligned(TEXT.replace("{torch: norm1, keras: norm1}", "{torch: norm1, keras: norm2}"))


def test_a_layer_missing_on_one_side_is_incomplete() -> None:
    with pytest.raises(IncompleteError):
        aligned(modules=[name for name in MODULES if not name.endswith(".dropout")])
    with pytest.raises(IncompleteError):
        aligned(layers=LAYERS - {"level_0/block_0/mlp"})


def test_no_taps_is_incomplete() -> None:
    head = "format: 1\nfamily: waveletdiff\nvariant: x\nsignature: a\nsections:\n"
    with pytest.raises(IncompleteError, match="no taps"):
        aligned(head + "  - tensors:\n      - {torch: a, keras: b, rule: identity}\n")


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
    with pytest.raises(IncompleteError, match="no tap is inside it"):
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
