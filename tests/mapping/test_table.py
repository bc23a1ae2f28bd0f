"""Mapping tables: what they say is read, and the rows that say nothing sound, which `tests/bad` runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from wdport.base.errors import InputError
from wdport.mapping.axes import RULES, find_rule, parse_rule
from wdport.mapping.table import Table, load_table, parse_table

HEAD = "format: 1\nfamily: f\nvariant: v\nsignature: a.<i>\n"
SECTION = "sections:\n  - tensors:\n      - {torch: ok, keras: ok, rule: identity}\n"

BAD_ROWS = {
    "{torch: a, keras: a, rule: transpose}": "unknown rule 'transpose'",
    "{torch: a, keras: a, rule: Identity}": "unknown rule 'Identity'",
    "{torch: a, keras: a, rule: no}": "rule is not text",
    "{torch: a, keras: a, rule: identity, note: x}": "unknown field 'note'",
    "{torch: a, drop: x, when: y}": "unknown field 'when'",
    "{keras: a, rule: identity}": "torch is missing",
    "{torch: a}": "must do exactly one thing",
    "{torch: a, keras: a}": "keras and rule go together",
    "{torch: a, rule: identity}": "keras and rule go together",
    "{torch: a, rule: identity, drop: x}": "keras and rule go together",
    "{torch: a, keras: a, rule: identity, digest: x}": "digest goes with drop",
    "{torch: a, check: a, drop: x}": "must do exactly one thing",
    "{torch: a, keras: a, rule: identity, drop: x}": "must do exactly one thing",
    "{torch: a, keras: a, rule: identity, drop: x, check: a}": "must do exactly one thing",
    "{torch: a, drop: ''}": "drop is not text",
    "{torch: a, drop: true}": "drop is not text",
    "{torch: a, drop: x, optional: 1}": "optional is not true or false",
    "{torch: a, drop: x, optional: 'true'}": "optional is not true or false",
    "{torch: no, drop: x}": "torch is not text",
    "{torch: 1:30, drop: x}": "torch is not text",
    "{torch: [a], drop: x}": "torch is not text",
    "{torch: 1, keras: a, rule: identity}": "torch is not text",
    "{torch: a, keras: 1, rule: identity}": "keras is not text",
    "{torch: a, keras: [q, 1, v], rule: attention_packed_bias}": "not text",
    "{torch: a, keras: [q, [k], v], rule: attention_packed_bias}": "not text",
    "{torch: a, keras: q, rule: attention_packed_weight}": "does not make 1 tensors",
    "{torch: a, keras: [q], rule: attention_packed_weight}": "does not make 1 tensors",
    "{torch: a, keras: [q, k], rule: linear}": "does not make 2 tensors",
    "{torch: a, keras: [q, k, v], rule: identity}": "does not make 3 tensors",
    "{torch: a, keras: [], rule: identity}": "keras and rule go together",
    "{torch: a.<i>, keras: a, rule: identity}": "different indices",
    "{torch: a, keras: a.<i>, rule: identity}": "different indices",
    "{torch: a.<i>, keras: a.<j>, rule: identity}": "different indices",
    "{torch: a.<i>, keras: [q.<i>, k, v.<i>], rule: attention_packed_bias}": "different indices",
    "{torch: a.<i>, check: a}": "different indices",
    "{torch: a, check: a.<i>}": "different indices",
    "{torch: a.*, drop: x}": "wildcard",
    "{torch: a, keras: 'a*', rule: identity}": "wildcard",
    "{torch: a.<1>, drop: x}": "bracket",
    "{torch: a.<i>.<i>, drop: x}": "has a duplicate index",
    "{torch: ' a', drop: x}": "blanks",
    "{torch: a, torch: b, drop: x}": "duplicate key",
    "just text": "not a list of `field: value` pairs",
    "[torch, a]": "not a list of `field: value` pairs",
    "~": "not a list of `field: value` pairs",
}

BAD_TAPS = {
    "{torch: a}": "keras is missing",
    "{keras: a}": "torch is missing",
    "{torch: a, keras: a, rule: linear}": "unknown field 'rule'",
    "{torch: a, keras: [a]}": "keras is not text",
    "{torch: a.<i>, keras: a}": "different indices",
    "{torch: a, keras: a.<i>}": "different indices",
    "{torch: '*', keras: a}": "wildcard",
    "{torch: a, keras: a, up_to: scale}": "up_to is 'scale'; write `up_to: shift`",
}

BAD_WHOLES: dict[str, tuple[str, int, str]] = {
    "a list": ("- 1\n- 2\n", 1, "not a list of `field: value` pairs"),
    "text": ("table\n", 1, "not a list of `field: value` pairs"),
    "no format": ("family: f\nvariant: v\nsignature: a\n" + SECTION, 1, "not a mapping table"),
    "a misspelt format": ("family: f\nformt: 1\n" + SECTION, 2, "unknown field 'formt'; did you mean format?"),
    "sampling of another kind": ("format: 2\nsampling: [a]\n", 2, "sampling is not a list of `field: value` pairs"),
    "another format": ("family: f\nvariant: v\nformat: 3\nsignature: a\n" + SECTION, 3, "format is not 1 or 2"),
    "true for a format": (HEAD.replace("1", "true") + SECTION, 1, "format is not 1 or 2"),
    "format 1 with the rows of format 2": ("format: 1\nlayers: [{torch: a, keras: a}]\n", 1, "; write `format: 2`"),
    "no family": ("format: 1\nvariant: v\nsignature: a\n" + SECTION, 1, "family is missing"),
    "no variant": ("format: 1\nfamily: f\nsignature: a\n" + SECTION, 1, "variant is missing"),
    "no signature": ("format: 1\nfamily: f\nvariant: v\n" + SECTION, 1, "signature is missing"),
    "family of another kind": (HEAD.replace("f\n", "[f]\n") + SECTION, 2, "family is not text"),
    "variant no": (HEAD.replace(": v", ": no") + SECTION, 3, "variant is not text"),
    "bad signature": (HEAD.replace("a.<i>", "'a.*'") + SECTION, 1, "wildcard"),
    "unknown field": (HEAD + "author: me\n" + SECTION, 5, "unknown field 'author'"),
    "no sections": (HEAD, 1, "sections is not a list"),
    "no section": (HEAD + "sections: []\n", 5, "sections is not a list"),
    "sections of another kind": (HEAD + "sections: {a: b}\n", 5, "sections is not a list"),
    "section of another kind": (HEAD + "sections:\n  - tensors\n", 6, "not a list of `field: value` pairs"),
    "section with no rows": (HEAD + SECTION + "  - tensors: []\n", 8, "tensors is not a list"),
    "section with no taps": (HEAD + SECTION + "  - taps: []\n", 8, "taps is not a list"),
    "section with nothing": (HEAD + SECTION + "  - {torch: a, keras: a}\n", 8, ""),
    "section with rows left blank": (HEAD + SECTION + "  - tensors:\n", 8, ""),
    "taps alone": (HEAD + "sections:\n  - taps:\n      - {torch: a, keras: a}\n", 1, "no tensors in any section"),
    "unknown field of a section": (HEAD + SECTION + "    rows: []\n", 8, "unknown field 'rows'"),
    "when of another kind": (HEAD + SECTION + "    when: [x]\n", 8, "when is not text"),
}


def parsed(section: str) -> Table:
    return parse_table(f"{HEAD}sections:\n{section}".encode(), "t.yaml")


def test_a_section_stands_before_every_name_in_it() -> None:
    table = parsed(
        "  - torch: blocks.<b>\n    keras: block_<b>\n    when: deep\n    tensors:\n"
        "      - {torch: w, keras: [q, k], rule: attention_packed_bias, check: c.<b>}\n"
        "      - {torch: scale, check: s.<b>, optional: true}\n      - {torch: ., drop: of no use}\n"
        "    taps:\n      - {torch: ., keras: .}\n      - {torch: m.0, keras: m/a}\n"
    )
    used, checked, dropped = table.rows
    assert (used.torch[0].text, [k.text for k in used.keras]) == ("blocks.<b>.w", ["block_<b>/q", "block_<b>/k"])
    assert (used.rules, used.check and used.check.text) == ((RULES["attention_packed_bias"],), "c.<b>")
    assert (checked.torch[0].text, checked.check and checked.check.text) == ("blocks.<b>.scale", "s.<b>")
    assert (dropped.torch[0].text, dropped.drop, dropped.keras) == ("blocks.<b>", "of no use", ())
    assert [row.optional for row in table.rows] == [False, True, False]
    assert {row.when for row in (*table.rows, *table.taps)} == {"deep"}
    assert [row.line for row in (*table.rows, *table.taps)] == [10, 11, 12, 14, 15]
    shown = [(tap.torch.text, tap.keras.text) for tap in table.taps]
    assert shown == [("blocks.<b>", "block_<b>"), ("blocks.<b>.m.0", "block_<b>/m/a")]


def test_a_table_knows_where_it_is_from(tmp_path: Path) -> None:
    data = (HEAD + SECTION).encode()
    path = tmp_path / "my.yaml"
    path.write_bytes(data)
    table = load_table(path)
    assert (table.path, table.sha256) == (str(path), hashlib.sha256(data).hexdigest())
    assert (table.family, table.variant, table.signature and table.signature.text) == ("f", "v", "a.<i>")
    for wrong in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(InputError, match=r"no such file|is a directory"):
            load_table(wrong)


def test_the_rules_are_these_and_no_others() -> None:
    assert set(RULES) == {
        "identity", "linear", "conv1d", "conv2d", "conv3d", "depthwise_conv1d", "depthwise_conv2d",
        "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "attention_packed_weight", "attention_packed_bias",
        "attention_weight", "attention_bias", "attention_output",
    }  # fmt: skip
    assert all(find_rule(name) is rule and rule.name == name for name, rule in RULES.items())
    assert find_rule("transpose") is None
    assert find_rule(" a b -> b a") == parse_rule("a b -> b a", "a b -> b a")
    with pytest.raises(TypeError):
        RULES["other"] = RULES["linear"]  # type: ignore[index]


def test_tables_know_every_rule() -> None:
    """A rule with a stacked target takes a list, every other one a single name."""
    for name, rule in RULES.items():
        keras = "[q, k, v]" if rule.target.stacked else "a"
        assert parsed(f"  - tensors: [{{torch: a, keras: {keras}, rule: {name}}}]\n").rows[0].rules == (rule,)
