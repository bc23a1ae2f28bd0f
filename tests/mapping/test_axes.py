"""Axis expressions against tables: texts that are read, texts that are not, and shapes that fit or do not."""

from __future__ import annotations

import pytest

from wdport.mapping.axes import AxisError, ExpressionSide, Shape, parse_rule

GOOD: dict[str, tuple[ExpressionSide, ExpressionSide]] = {
    "... -> ...": (ExpressionSide((), any_axes=True), ExpressionSide((), any_axes=True)),
    "a -> a": (ExpressionSide((("a",),)), ExpressionSide((("a",),))),
    "out in -> in out": (ExpressionSide((("out",), ("in",))), ExpressionSide((("in",), ("out",)))),
    "(a b) c->[a] c b": (ExpressionSide((("a", "b"), ("c",))), ExpressionSide((("c",), ("b",)), "a")),
    "  (  a b )c  ->  c(a  b)  ": (ExpressionSide((("a", "b"), ("c",))), ExpressionSide((("c",), ("a", "b")))),
    "(a) b -> b a": (ExpressionSide((("a",), ("b",))), ExpressionSide((("b",), ("a",)))),
    "[a] b -> [b] a": (ExpressionSide((("b",),), "a"), ExpressionSide((("a",),), "b")),
    "[ part ] -> part": (ExpressionSide((), "part"), ExpressionSide((("part",),))),
    "c -> 1 1 c": (ExpressionSide((("c",),)), ExpressionSide(((), (), ("c",)))),
    "1->1": (ExpressionSide(((),)), ExpressionSide(((),))),
    "(gate=r,z h) in -> in (gate=z,r h)": (ExpressionSide((("gate", "h"), ("in",)), labels=(("gate", ("r", "z")),)),
                                           ExpressionSide((("in",), ("gate", "h")), labels=(("gate", ("z", "r")),))),
    "[b=x,y] a=p a_b=q -> a_b=q (b=y,x a=p)": (
        ExpressionSide((("a",), ("a_b",)), "b", labels=(("a", ("p",)), ("a_b", ("q",)), ("b", ("x", "y")))),
        ExpressionSide((("a_b",), ("b", "a")), labels=(("a", ("p",)), ("a_b", ("q",)), ("b", ("y", "x")))),
    ),
    "to_a _b -> _b to_a": (ExpressionSide((("to_a",), ("_b",))), ExpressionSide((("_b",), ("to_a",)))),
}  # fmt: skip

BAD = {
    "SIDE -> SIDE": ["", "a b", "a -> a -> a", "a = a"],
    "every axis once": ["a -> b", "a b -> a", "a -> a b", "a a -> a", "a a -> a a", "(a a) -> a a", "[a] a -> a a"],
    "both sides": ["... -> a", "a -> ..."],
    "unexpected '": ["a ... -> ... a", "[a] ... -> a ...", "a b) -> a b", "() -> ()", "a () -> a", "((a b)) -> a b",
                     "([a] b) -> a b", "b [a] -> a b", "[a] [b] -> a b", "(1 a) -> a", "(1) -> a"],
    "not closed": ["(a b -> a b"],
    "one axis name": ["[] a -> a", "[a b] -> a b", "[a -> a", "[(a)] -> a", "[...] -> ...", "[1] a -> a"],
    "not an axis": ["A -> A", "a1 -> a1", "a, b -> b, a", "é -> é", "a .. -> a ..", "* -> *", "2 a -> a", "11 a -> a",
                    "a 1a -> a", "a=p, q -> a=q,p", "a= -> a", "a=1 -> a=1", "1=p -> 1=p"],
    "same labels": ["a=p -> a", "a -> a=p", "a=p,q -> a=p,r"],
    "a duplicate label": ["a=p,p -> a=p,p"],
}  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_a_good_text_is_read(text: str) -> None:
    rule = parse_rule("name", text)
    assert rule.name == "name"
    assert (rule.source, rule.target) == GOOD[text]


@pytest.mark.parametrize(("reason", "text"), [(reason, text) for reason, texts in BAD.items() for text in texts])
def test_a_bad_text_is_refused_with_the_reason(reason: str, text: str) -> None:
    with pytest.raises(AxisError) as caught:
        parse_rule("name", text)
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", GOOD)
def test_the_inverse_is_the_text_turned_around(text: str) -> None:
    rule = parse_rule("name", text)
    left, right = str(rule).split(" -> ")
    assert parse_rule("name^-1", f"{right} -> {left}") == rule.inverse()
    assert (rule.inverse().inverse().source, rule.inverse().inverse().target) == (rule.source, rule.target)


PACKED = "(part heads head) in -> [part] in heads head"

FITS: list[tuple[str, list[Shape], list[Shape], dict[str, int]]] = [
    ("... -> ...", [(2, 3)], [(2, 3)], {}),
    ("... -> ...", [()], [()], {}),
    ("out in -> in out", [(2, 3)], [(3, 2)], {"out": 2, "in": 3}),
    ("out in -> in out", [(0, 3)], [(3, 0)], {"out": 0, "in": 3}),
    (PACKED, [(12, 5)], [(5, 2, 2)] * 3, {"part": 3, "heads": 2, "head": 2, "in": 5}),
    ("out (heads head) -> heads head out", [(5, 6)], [(3, 2, 5)], {"out": 5, "heads": 3, "head": 2}),
    ("[a] b -> (a b)", [(4,)] * 3, [(12,)], {"a": 3, "b": 4}),
    ("c -> 1 1 c", [(4,)], [(1, 1, 4)], {"c": 4}),
    ("(g=r,z h) in -> in (g=z,r h)", [(6, 5)], [(5, 6)], {"g": 2, "h": 3, "in": 5}),
    ("(a b) (c d) -> a (b c) d", [(6, 20)], [(2, 12, 5)], {"a": 2, "b": 3, "c": 4, "d": 5}),
    # Each size is told by the one found before it, from both ends inwards.
    ("(a b) (c d) (e f) (g h) -> a (b c) (d e) (f g) h", [(6, 20, 42, 72)], [(2, 12, 30, 56, 9)],
     {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 7, "g": 8, "h": 9}),
]  # fmt: skip

UNFIT: list[tuple[str, list[Shape], list[Shape], str]] = [
    ("... -> ...", [(2, 3)], [(3, 2)], "(2, 3) is not (3, 2)"),
    ("... -> ...", [(2,)], [(2,), (2,)], "(2,) is not 2 x (2,)"),
    ("out in -> in out", [(2, 3)], [(2, 3)], "(2, 3) does not become (2, 3)"),
    ("out in -> in out", [(2, 3)], [(6,)], "1 axes"),
    ("out in -> in out", [(2, 3, 1)], [(3, 2)], "3 axes"),
    ("out in -> in out", [()], [(3, 2)], "0 axes"),
    ("out in -> in out", [(2, 3), (2, 3)], [(3, 2)], "one tensor, not 2"),
    ("out in -> in out", [], [(3, 2)], "nothing"),
    (PACKED, [(12, 5)], [(5, 2, 2), (5, 2, 2), (5, 4, 1)], "expected equal shapes"),
    (PACKED, [(12, 5)], [(5, 2, 2)] * 2, "does not become"),
    (PACKED, [(13, 5)], [(5, 2, 2)] * 3, "does not become"),
    (PACKED, [(5, 12)], [(5, 2, 2)] * 3, "does not become"),
    (PACKED, [(12, 5)], [], "nothing"),
    ("(a b) -> a b", [(7,)], [(2, 3)], "does not become"),
    ("(a b) c -> (a c) b", [(6, 4)], [(6, 2)], "not a multiple"),
    ("(a b) -> (b a)", [(6,)], [(6,)], "do not determine"),
    ("c -> 1 1 c", [(4,)], [(1, 2, 4)], "does not become"),
    ("c -> 1 1 c", [(4,)], [(1, 4)], "2 axes"),
    ("(g=r,z h) -> (g=z,r h)", [(7,)], [(7,)], "not a multiple of 2"),
]


@pytest.mark.parametrize(("text", "sources", "targets", "sizes"), FITS)
def test_sizes_are_read_off_the_shapes(
    text: str, sources: list[Shape], targets: list[Shape], sizes: dict[str, int]
) -> None:
    rule = parse_rule("name", text)
    assert rule.sizes(sources, targets) == sizes
    assert rule.inverse().sizes(targets, sources) == sizes


@pytest.mark.parametrize(("text", "sources", "targets", "reason"), UNFIT)
def test_shapes_that_do_not_fit_are_refused(text: str, sources: list[Shape], targets: list[Shape], reason: str) -> None:
    rule = parse_rule("name", text)
    with pytest.raises(AxisError) as caught:
        rule.sizes(sources, targets)
    assert reason in str(caught.value)
    with pytest.raises(AxisError):
        rule.inverse().sizes(targets, sources)


@pytest.mark.parametrize(
    ("text", "targets", "wanted"),
    [
        ("... -> ...", [(2, 3)], (2, 3)),
        ("out in -> in out", [(3, 2)], (2, 3)),
        (PACKED, [(5, 2, 2)] * 3, (12, 5)),
        ("out (heads head) -> heads head out", [(3, 2, 5)], (5, 6)),
        ("out in -> in out", [(3, 2, 1)], None),
        (PACKED, [(5, 2, 2), (5, 2, 1)], None),
        ("a b -> (a b)", [(6,)], None),
        ("c -> 1 1 c", [(1, 1, 4)], (4,)),
        ("c -> 1 1 c", [(1, 2, 4)], None),
        ("[bias] (g=r,z h) -> bias (g=z,r h)", [(2, 6)], (6,)),
    ],
)
def test_the_wanted_source_shape_follows_from_the_targets(
    text: str, targets: list[Shape], wanted: Shape | None
) -> None:
    assert parse_rule("name", text).source_shape(targets) == wanted
