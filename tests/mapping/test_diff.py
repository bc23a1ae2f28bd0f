"""Two listings and two tables compared."""

from __future__ import annotations

import random

import pytest

from wdport.mapping.diff import RenamedFacts, difference, prefix_change, table_facts, table_listing
from wdport.mapping.table import parse_table, shipped_tables


def tensors(**shapes: tuple[int, ...]) -> dict[str, dict[str, str]]:
    return {name.replace("__", "."): {"shape": str(shape), "dtype": "float32"} for name, shape in shapes.items()}


A = tensors(a__w=(2, 3), a__b=(2,), b__w=(4, 2), b__b=(4,), c__w=(9, 9))


def test_each_kind_of_difference() -> None:
    b = {**A, **tensors(b__w=(4, 5), d=(1,))}
    b["a.b"] = {"shape": "(2,)", "dtype": "float16"}
    b["c.kernel"] = b.pop("c.w")
    found = difference(A, b)
    assert found.changed == {"b.w": {"shape": ("(4, 2)", "(4, 5)")}, "a.b": {"dtype": ("float32", "float16")}}
    assert found.renamed == (RenamedFacts("c.w", "c.kernel", (1, 1)),)
    assert (list(found.only_a), list(found.only_b), found.alike, found.prefix) == ([], ["d"], 2, None)
    back = difference(b, A)
    assert (list(back.only_a), back.renamed) == (["d"], (RenamedFacts("c.kernel", "c.w", (1, 1)),))


PREFIXES = {
    "added": (["a.w", "b.w"], ["model.a.w", "model.b.w"], ("", "model.")),
    "taken": (["m.n.a.w", "m.n.b.w"], ["a.w", "b.w"], ("m.n.", "")),
    "exchanged": (["net.a.w", "net.b.w"], ["layers.a.w", "layers.b.w", "layers.c.w"], ("net.", "layers.")),
    "one of two": (["m.net.a", "m.net.b"], ["net.a", "net.b"], ("m.", "")),
    "none": (["a.w", "b.w"], ["a.w", "c.w"], None),
    "of some names only": (["a.w", "b.w"], ["a.w", "m.b.w"], None),
    "nothing alike": (["a.w"], ["m.z"], None),
    "empty": ([], ["m.z"], None),
}


@pytest.mark.parametrize("name", PREFIXES)
def test_a_prefix_of_all_names(name: str) -> None:
    a, b, wanted = PREFIXES[name]
    assert prefix_change(a, b) == wanted


def test_a_prefix_is_told_once_and_names_of_a_keep_theirs() -> None:
    a = {f"model.{name}": each for name, each in {**A, **tensors(x=(7,))}.items()}
    found = difference(a, A)
    assert (found.prefix, list(found.only_a), list(found.only_b), found.alike) == (("model.", ""), ["model.x"], [], 5)


def test_several_of_one_shape_are_told_by_their_names() -> None:
    a = tensors(blocks__0__attn__q_proj=(4, 4), blocks__0__attn__k_proj=(4, 4), blocks__1__attn__q_proj=(4, 4))
    b = tensors(blocks__0__attn__q=(4, 4), blocks__0__attn__k=(4, 4), blocks__1__attn__query_proj=(4, 4))
    found = difference(a, b)
    assert RenamedFacts("blocks.1.attn.q_proj", "blocks.1.attn.query_proj", (3, 3)) in found.renamed
    assert all(each.of == (3, 3) for each in found.renamed)
    assert all(each.a.split(".")[1] == each.b.split(".")[1] for each in found.renamed)


def test_several_components_may_be_renamed_at_once() -> None:
    pairs = {"q_proj": "q", "k_proj": "k", "gate": "gate_proj", "norm1": "normal1"}
    sides = [
        {f"{before}.{n}.{part}.w": {"shape": "(4, 4)", "dtype": "float32"} for n in range(3) for part in parts}
        for before, parts in (("m.layers", pairs), ("net.blocks", pairs.values()))
    ]
    found = {(each.a, each.b) for each in difference(*sides).renamed}
    assert found == {(f"m.layers.{n}.{a}.w", f"net.blocks.{n}.{b}.w") for n in range(3) for a, b in pairs.items()}


def test_one_of_several_is_told_by_what_differs() -> None:
    a = tensors(layers__1__attn__gate=(4, 4))
    assert difference(a, tensors(layers__1__attn__zeta=(4, 4), layers__1__attn__up=(4, 4))).renamed == ()
    found = difference(a, tensors(layers__1__attn__gate_proj=(4, 4), layers__1__attn__up=(4, 4)))
    assert found.renamed == (RenamedFacts("layers.1.attn.gate", "layers.1.attn.gate_proj", (1, 2)),)


def test_names_with_nothing_in_common_are_no_renaming_where_others_are_alike() -> None:
    found = difference(tensors(to_q=(4, 4), to_k=(4, 4)), tensors(alpha=(4, 4), omega=(4, 4)))
    assert found.renamed == ()
    assert (len(found.only_a), len(found.only_b)) == (2, 2)


def test_every_name_is_told_once() -> None:
    draw = random.Random(0)
    for _ in range(100):
        sides = [
            tensors(**{f"n{draw.randint(0, 5)}__{draw.choice('abc')}w": (draw.randint(1, 3),) for _ in range(6)})
            for _ in range(2)
        ]
        found = difference(*sides)
        old, new = [each.a for each in found.renamed], [each.b for each in found.renamed]
        there, here = found.prefix or ("", "")
        kept = [there + name.removeprefix(here) for name in found.changed]
        assert len(found.only_a) + len(old) + len(kept) + found.alike == len(sides[0])
        assert len(found.only_b) + len(new) + len(kept) + found.alike == len(sides[1])
        assert {*found.only_a, *kept} <= {*sides[0]}
        assert {*found.only_b, *new, *found.changed} <= {*sides[1]}


def table(text: str) -> dict[str, dict[str, str]]:
    return table_listing(parse_table(f"format: 2\nlayers:\n{text}".encode(), "t.yaml"))


def test_names_of_indices_and_order_of_rows_do_not_matter() -> None:
    a = table("  - {torch: a.<n>, keras: x_<n+1>, kind: linear}\n  - {torch: b, keras: b, kind: conv1d}\n")
    b = table("  - {torch: b, keras: b, kind: conv1d}\n  - {torch: a.<i>, keras: x_<i+1>, kind: linear}\n")
    assert difference(a, b).same


def test_what_a_row_says_is_compared() -> None:
    a = table("  - {torch: a, keras: x, kind: linear}\n")
    b = table("  - {torch: a, keras: x, kind: conv1d, names: {weight: w}}\n")
    found = difference(a, b)
    assert found.changed["a"]["kind"] == ("linear", "conv1d")
    assert found.changed["a"]["tensors"] == ("weight, bias", "w, bias")


def test_shipped_tables_differ_from_each_other_alone() -> None:
    for one in shipped_tables():
        for other in shipped_tables():
            found = difference(table_listing(one), table_listing(other), ".", (table_facts(one), table_facts(other)))
            assert found.same == (one is other)
