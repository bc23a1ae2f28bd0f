"""Rules carried out: random ones against an element-by-element oracle, and back again bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdport.mapping.axes import AxisError, ExpressionSide, Rule, parse_rule
from wdport.mapping.rearrange import apply_rule
from wdport.models.interface import Array

DTYPES = ("float16", "float32", "float64", "uint16", "int64", "bool")
NAN_PAYLOADS = {"float16": 0x7D01, "float32": 0xFFA00123, "float64": 0x7FF0000000000007}


LABELS = ("i", "f", "g", "o")


@st.composite
def sides(draw: st.DrawFn, names: list[str], labelled: dict[str, int]) -> str:
    """One side of a rule over these axes: permuted, perhaps stacked, cut into groups, with axes of size one.

    ``labelled`` axes list their labels, in an order of their own.
    """
    texts = {n: f"{n}={','.join(draw(st.permutations(LABELS[:size])))}" for n, size in labelled.items()}
    order = draw(st.permutations(names))
    stacked = [f"[{texts.get(name, name)}]" for name in order[:1] if draw(st.booleans())]
    groups: list[list[str]] = []
    for name in order[len(stacked) :]:
        if groups and draw(st.booleans()):
            groups[-1].append(texts.get(name, name))
        else:
            groups.append([texts.get(name, name)])
    shown = [f"({' '.join(group)})" for group in groups]
    for _ in range(draw(st.integers(0, 2))):
        shown.insert(draw(st.integers(0, len(shown))), "1")
    return " ".join([*stacked, *shown])


@st.composite
def rules(draw: st.DrawFn, smallest: int = 1) -> tuple[Rule, dict[str, int]]:
    """A rule over one to six axes, and a size for each; a stacked axis is never empty."""
    names = draw(st.lists(st.text("abcxyz_", min_size=1, max_size=4), min_size=1, max_size=6, unique=True))
    labelled = {name: draw(st.integers(1, 4)) for name in names if draw(st.integers(0, 3)) == 0}
    rule = parse_rule("random", f"{draw(sides(names, labelled))} -> {draw(sides(names, labelled))}")
    stacked = (rule.source.stacked, rule.target.stacked)
    free = {name: draw(st.integers(1 if name in stacked else smallest, 4)) for name in names}
    return rule, free | labelled


def count(side: ExpressionSide, sizes: dict[str, int]) -> int:
    return sizes[side.stacked] if side.stacked else 1


def random_arrays(side: ExpressionSide, sizes: dict[str, int], dtype: str, seed: int) -> list[Array]:
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


def positions(rule: Rule, side: ExpressionSide, axes: dict[str, Any]) -> dict[str, Any]:
    """Where on this side's axes these indices are: a labelled axis is looked up by its label."""
    found = dict(axes)
    for name, labels in side.labels:
        canonical = dict(rule.source.labels)[name]
        found[name] = np.array([labels.index(label) for label in canonical])[axes[name]]
    return found


def gather(arrays: list[Array], side: ExpressionSide, axes: dict[str, Any], sizes: dict[str, int]) -> Array:
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
    wanted, got = (
        gather(arrays, side, positions(rule, side, axes), sizes)
        for arrays, side in ((sources, rule.source), (targets, rule.target))
    )
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
    known = {rule.source.stacked, rule.target.stacked, *(name for name, _ in rule.source.labels)}
    groups = [set(group) for side in (rule.source, rule.target) for group in side.groups]
    while lone := [group - known for group in groups if len(group - known) == 1]:
        known |= lone[0]
    return known >= set(rule.source.names)


@given(rules())
def test_sizes_are_found_wherever_the_shapes_determine_them(drawn: tuple[Rule, dict[str, int]]) -> None:
    rule, sizes = drawn
    shapes = [[side.shape(sizes)] * count(side, sizes) for side in (rule.source, rule.target)]
    assert rule.sizes(*shapes, sizes) == sizes
    if determined(rule):
        assert rule.sizes(*shapes) == sizes
    else:
        with pytest.raises(AxisError, match="do not determine"):
            rule.sizes(*shapes)


@given(rules(), st.data())
def test_a_source_of_another_size_is_refused(drawn: tuple[Rule, dict[str, int]], data: st.DataObject) -> None:
    rule, sizes = drawn
    sources, targets = ([s.shape(sizes)] * count(s, sizes) for s in (rule.source, rule.target))
    size = data.draw(st.integers(0, len(sources[0])))
    grown = (*sources[0][:size], *(n + 1 for n in sources[0][size : size + 1]), *sources[0][size + 1 :])
    wrong = [grown] * len(sources) if grown != sources[0] else [(*sources[0], 1)] * len(sources)
    assert rule.source_shape(targets, sizes) == sources[0]
    with pytest.raises(AxisError):
        rule.sizes(wrong, targets)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 1, 3)])
def test_any_axes_pass_unchanged(shape: tuple[int, ...]) -> None:
    array = np.array(np.random.default_rng(0).standard_normal(shape), order="F")
    (result,) = apply_rule(parse_rule("same", "... -> ..."), [array], {})
    assert result.shape == shape
    assert result.flags.c_contiguous
    assert result.tobytes() == array.tobytes()


def test_gates_in_another_order_by_hand() -> None:
    """(r, z, n) to (z, r, n), two biases stacked: against slices written out."""
    rule = parse_rule("gru", "[bias] (gate=r,z,n h) -> bias (gate=z,r,n h)")
    ih, hh = np.arange(6.0), np.arange(6.0) + 10
    assert rule.orders == {"gate": (1, 0, 2)}
    (made,) = apply_rule(rule, [ih, hh], rule.sizes([(6,), (6,)], [(2, 6)]))
    assert made.tolist() == [[2, 3, 0, 1, 4, 5], [12, 13, 10, 11, 14, 15]]
    back = apply_rule(rule.inverse(), [made], {"bias": 2, "gate": 3, "h": 2})
    assert [array.tolist() for array in back] == [ih.tolist(), hh.tolist()]


@pytest.mark.parametrize(
    ("text", "source", "sizes", "wanted"),
    [
        ("c -> 1 1 c", (3,), {}, lambda a: a[None, None, :]),
        ("c -> c 1 1", (3,), {}, lambda a: a[:, None, None]),
        ("out in k 1 -> k in out", (5, 3, 4, 1), {}, lambda a: a[..., 0].transpose(2, 1, 0)),
        ("(in mult) 1 h w -> h w in mult", (6, 1, 4, 5), {"mult": 2},
         lambda a: a.reshape(3, 2, 4, 5).transpose(2, 3, 0, 1)),
        ("out (w h c) -> (h w c) out", (2, 24), {"w": 2, "h": 3},
         lambda a: np.einsum("owhc->hwco", a.reshape(2, 2, 3, 4)).reshape(24, 2)),
        ("in (gate=z,r,n h) -> (gate=r,z,n h) in", (2, 6), {},
         lambda a: np.concatenate([a[:, 2:4], a[:, :2], a[:, 4:]], axis=1).T),
    ],
)  # fmt: skip
def test_texts_by_hand(text: str, source: tuple[int, ...], sizes: dict[str, int], wanted: Any) -> None:
    rule = parse_rule("text", text)
    array = np.random.default_rng(0).standard_normal(source)
    expected = wanted(array)
    (made,) = apply_rule(rule, [array], rule.sizes([source], [expected.shape], sizes))
    np.testing.assert_array_equal(made, expected)


def test_sizes_that_are_given_must_agree_with_labels_and_shapes() -> None:
    rule = parse_rule("text", "(gate=r,z h) -> (gate=z,r h)")
    assert rule.sizes([(6,)], [(6,)], {"other": 9}) == {"gate": 2, "h": 3}
    with pytest.raises(AxisError, match="2 labels, not 3"):
        rule.sizes([(6,)], [(6,)], {"gate": 3})
    with pytest.raises(AxisError, match="does not become"):
        rule.sizes([(6,)], [(6,)], {"h": 4})
    with pytest.raises(AxisError, match="is 2 tensors, not 3"):
        parse_rule("text", "[gate=r,z] h -> (gate=z,r h)").sizes([(3,)] * 3, [(9,)])
