"""Name patterns: whole names with plain decimal indices, read and written the same way."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdport.mapping.names import NamePattern, PatternError, parse_pattern

MATCHES: list[tuple[str, str, dict[str, int]]] = [
    ("emb", "emb", {}),
    ("a.<i>", "a.0", {"i": 0}),
    ("a.<i>.w", "a.12.w", {"i": 12}),
    ("<i>.<j>", "3.100", {"i": 3, "j": 100}),
    ("level_<level>/block_<block>", "level_1/block_20", {"level": 1, "block": 20}),
    ("a<i>", "a123456789", {"i": 123456789}),
    ("<in>.<if>", "1.2", {"in": 1, "if": 2}),
    ("a+(b)[c]{2}|^$\\d.<i>", "a+(b)[c]{2}|^$\\d.7", {"i": 7}),
    ("ä.<i>", "ä.1", {"i": 1}),
    ("a.<i+1>", "a.1", {"i": 0}),
    ("a.<i-1>.<j+10>", "a.0.12", {"i": 1, "j": 2}),
]

NO_MATCHES = {
    "emb": ["Emb", "emb.", "xemb", "emb\n", ""],
    "a.b": ["axb"],
    "a+": ["aa"],
    "(a|b)": ["a"],
    ".w": ["xw"],
    "a.<i>": ["a.", "a.01", "a.00", "a.-1", "a.+1", "a.1.0", "a.1 ", "a.1\n", "a.1_0", "a.0x1", "a.x", "a.\u0661",
              "a.\uff11", "a.\u00b2", f"a.{'9' * 5000}"],
    "a.<i+1>": ["a.0"],
    "a.<i+3>": ["a.2"],
    "a.<i>.w": ["b.a.1.w", "a.1.w.w"],
}  # fmt: skip

# Digits between two indices cannot be told from the indices: "a10101" would be (1, 101) and (101, 1).
BAD = {
    "empty": [""],
    "blanks": [" ", " a", "a\n"],
    "bracket": ["a.<>", "a.<I>", "a.<i1>", "a.<i", "a.i>", "a.<<i>>", "a.<i j>", "a.<i+>", "a.<i+j>", "a.<i*2>",
                "a.<i + 1>", "a.<+1>"],
    "wildcard": ["a.*.w", "a.?.w", "a.<i>.*"],
    "duplicate": ["a.<i>.<i>", "a.<i>.<i+1>"],
    "between": ["a<i+1>0<j>", "a.<i><j>", "a<i>0<j>", "<i>12<j>.w"],
}  # fmt: skip


@pytest.mark.parametrize(("pattern", "name", "indices"), MATCHES)
def test_a_whole_name_matches(pattern: str, name: str, indices: dict[str, int]) -> None:
    read = parse_pattern(pattern)
    assert read.match(name) == indices
    assert read.format(indices) == name
    assert read.indices == tuple(indices)


@pytest.mark.parametrize(("pattern", "name"), [(each, name) for each, names in NO_MATCHES.items() for name in names])
def test_anything_else_does_not(pattern: str, name: str) -> None:
    assert parse_pattern(pattern).match(name) is None


@pytest.mark.parametrize(("reason", "text"), [(reason, text) for reason, texts in BAD.items() for text in texts])
def test_a_bad_pattern_is_refused(reason: str, text: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern(text)
    assert reason in str(caught.value)


def test_an_index_must_be_given() -> None:
    with pytest.raises(KeyError):
        parse_pattern("a.<i>.<j>").format({"i": 1})


def test_an_offset_does_not_go_below_zero() -> None:
    pattern = parse_pattern("a.<i-1>")
    assert pattern.format({"i": 1}) == "a.0"
    with pytest.raises(PatternError, match="below 0"):
        pattern.format({"i": 0})


LITERAL = st.text("ab9.0_/+()[]{}|^$\\- é", min_size=1, max_size=6).filter(lambda text: re.search(r"[^0-9]", text))


@st.composite
def patterns(draw: st.DrawFn) -> tuple[NamePattern, dict[str, int]]:
    """A pattern of zero to three indices with literal text around them, and a value for each."""
    names = draw(st.lists(st.text("abc_", min_size=1, max_size=5), max_size=3, unique=True))
    pieces = [draw(LITERAL) for _ in range(len(names) + 1)]
    offsets = [draw(st.sampled_from(["", "+1", "+12"])) for _ in names]
    text = pieces[0] + "".join(f"<{n}{by}>{piece}" for n, by, piece in zip(names, offsets, pieces[1:], strict=True))
    index = st.one_of(st.integers(0, 20), st.integers(0, 10**9 - 13))
    return parse_pattern(f"x{text}x"), {name: draw(index) for name in names}


@given(patterns())
def test_what_a_pattern_writes_it_reads(drawn: tuple[NamePattern, dict[str, int]]) -> None:
    pattern, indices = drawn
    name = pattern.format(indices)
    assert pattern.match(name) == indices
    assert all(pattern.match(other) is None for other in (f"x{name}", f"{name}x", f"{name}\n", name[:-1], name[1:]))


@given(st.text("ab01.()+*?[]\\^$|x", min_size=1, max_size=8), st.text("ab01.x", max_size=8))
def test_a_pattern_without_indices_is_its_own_only_match(text: str, other: str) -> None:
    if "*" in text or "?" in text:
        with pytest.raises(PatternError, match="wildcard"):
            parse_pattern(text)
    else:
        pattern = parse_pattern(text)
        assert pattern.match(text) == {}
        assert (pattern.match(other) == {}) == (other == text)
