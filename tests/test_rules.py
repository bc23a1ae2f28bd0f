"""Rules carried out: random ones against an element-by-element oracle, and back again bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdport.mapping.axes import AxisError, Rule, Side, parse_rule
from wdport.rules import Array, apply_rule

DTYPES = ("float16", "float32", "float64", "uint16", "int64", "bool")
NAN_PAYLOADS = {"float16": 0x7D01, "float32": 0xFFA00123, "float64": 0x7FF0000000000007}


@st.composite
def sides(draw: st.DrawFn, names: list[str]) -> str:
    """One side of a rule over these axes: permuted, perhaps stacked, cut into groups."""
    order = draw(st.permutations(names))
    stacked = f"[{order.pop(0)}]" if draw(st.booleans()) else ""
    groups: list[list[str]] = []
    for name in order:
        if groups and draw(st.booleans()):
            groups[-1].append(name)
        else:
            groups.append([name])
    return " ".join([stacked, *(f"({' '.join(group)})" for group in groups)])


@st.composite
def rules(draw: st.DrawFn, smallest: int = 1) -> tuple[Rule, dict[str, int]]:
    """A rule over one to six axes, and a size for each; a stacked axis is never empty."""
    names = draw(st.lists(st.text("abcxyz_", min_size=1, max_size=4), min_size=1, max_size=6, unique=True))
    rule = parse_rule("random", f"{draw(sides(names))} -> {draw(sides(names))}")
    stacked = (rule.source.stacked, rule.target.stacked)
    return rule, {name: draw(st.integers(1 if name in stacked else smallest, 4)) for name in names}


def count(side: Side, sizes: dict[str, int]) -> int:
    return sizes[side.stacked] if side.stacked else 1


def random_arrays(side: Side, sizes: dict[str, int], dtype: str, seed: int) -> list[Array]:
    """Any bits at all, NaNs with a payload among them; every second array is not contiguous."""
    rng = np.random.default_rng(seed)
    arrays = []
    for i in range(count(side, sizes)):
        shape = side.shape(sizes)
        bits = rng.integers(0, 2 if dtype == "bool" else 256, (*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
        array = np.frombuffer(bits.tobytes(), dtype).reshape(shape).copy()
        if dtype in NAN_PAYLOADS:
            words = array.reshape(-1).view(f"u{array.itemsize}")
            words[::3] = NAN_PAYLOADS[dtype]
        arrays.append(np.asfortranarray(array) if i % 2 and array.ndim else array)
    return arrays


def gather(arrays: list[Array], side: Side, axes: dict[str, Any], sizes: dict[str, int]) -> Array:
    """The elements of this side's tensors at these indices of the named axes."""
    which = axes[side.stacked] if side.stacked else 0
    index = []
    for group in side.groups:
        position = np.zeros((), dtype=int)
        for name in group:
            position = position * sizes[name] + axes[name]
        index.append(position)
    return np.stack(arrays)[(which, *index)]


def bits(arrays: list[Array]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


@given(rules(smallest=0), st.sampled_from(DTYPES), st.integers(0, 2**32))
def test_every_element_goes_where_its_axes_say(drawn: tuple[Rule, dict[str, int]], dtype: str, seed: int) -> None:
    rule, sizes = drawn
    sources = random_arrays(rule.source, sizes, dtype, seed)
    targets = apply_rule(rule, sources, sizes)
    assert [t.shape for t in targets] == [rule.target.shape(sizes)] * count(rule.target, sizes)
    assert all(t.dtype == dtype and t.flags.c_contiguous for t in targets)
    axes = dict(zip(sizes, np.indices(tuple(sizes.values())), strict=True))
    wanted, got = (gather(a, side, axes, sizes) for a, side in ((sources, rule.source), (targets, rule.target)))
    assert wanted.tobytes() == got.tobytes()


@given(rules(smallest=0), st.sampled_from(DTYPES), st.integers(0, 2**32))
def test_the_inverse_gives_every_bit_back(drawn: tuple[Rule, dict[str, int]], dtype: str, seed: int) -> None:
    rule, sizes = drawn
    sources = random_arrays(rule.source, sizes, dtype, seed)
    before = bits(sources)
    back = apply_rule(rule.inverse(), apply_rule(rule, sources, sizes), sizes)
    assert [(b.shape, b.dtype) for b in back] == [(s.shape, s.dtype) for s in sources]
    assert bits(back) == before
    assert bits(sources) == before


def determined(rule: Rule) -> bool:
    """Whether the sizes follow from the shapes: each from one group all of whose other axes are known."""
    known = {rule.source.stacked, rule.target.stacked}
    groups = [set(group) for side in (rule.source, rule.target) for group in side.groups]
    while lone := [group - known for group in groups if len(group - known) == 1]:
        known |= lone[0]
    return known >= set(rule.source.names)


@given(rules())
def test_sizes_are_found_wherever_the_shapes_determine_them(drawn: tuple[Rule, dict[str, int]]) -> None:
    rule, sizes = drawn
    shapes = [[side.shape(sizes)] * count(side, sizes) for side in (rule.source, rule.target)]
    if determined(rule):
        assert rule.sizes(*shapes) == sizes
    else:
        with pytest.raises(AxisError, match="cannot be told"):
            rule.sizes(*shapes)


@given(rules(), st.data())
def test_a_source_of_another_size_is_refused(drawn: tuple[Rule, dict[str, int]], data: st.DataObject) -> None:
    rule, sizes = drawn
    sources, targets = ([s.shape(sizes)] * count(s, sizes) for s in (rule.source, rule.target))
    size = data.draw(st.integers(0, len(sources[0])))
    grown = (*sources[0][:size], *(n + 1 for n in sources[0][size : size + 1]), *sources[0][size + 1 :])
    wrong = [grown] * len(sources) if grown != sources[0] else [(*sources[0], 1)] * len(sources)
    with pytest.raises(AxisError):
        rule.sizes(wrong, targets)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 1, 3)])
def test_any_axes_pass_unchanged(shape: tuple[int, ...]) -> None:
    array = np.array(np.random.default_rng(0).standard_normal(shape), order="F")
    (result,) = apply_rule(parse_rule("same", "... -> ..."), [array], {})
    assert result.shape == shape
    assert result.flags.c_contiguous
    assert result.tobytes() == array.tobytes()
