"""Strict YAML: every surprise refused with its line, everything plain read as PyYAML's safe_load reads it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from wdport.base.errors import InputError
from wdport.base.limits import MAX_MESSAGE_CHARS, MAX_TABLE_BYTES, MAX_TABLE_DEPTH
from wdport.mapping.strict_yaml import load_yaml, read_yaml

BAD: dict[str, tuple[bytes, str, str]] = {
    "latin-1": (b"a: b\nc: caf\xe9\n", "line 2", "not UTF-8"),
    "utf-16": ("a: b".encode("utf-16"), "line 1", "not UTF-8"),
    "control character": (b"a: b\nc: \x07\n", "line 2", "not valid YAML"),
    "NUL": (b"a: b\n\n\x00", "line 3", "not valid YAML"),
    "tab as indentation": (b"a:\n\t- b\n", "line 2", "not valid YAML"),
    "tab in a block": (b"a:\n  - b\n  -\tc: d\n", "line 3", "not valid YAML"),
    "open bracket": (b"a: 1\nb: [1, 2\n", "line 3", "not valid YAML"),
    "open quote": (b"a: 1\nb: 'c\n", "line 3", "not valid YAML"),
    "two colons": (b"a: 1\nb: c: d\n", "line 2", "not valid YAML"),
    "bad escape": (b'a: "\\q"\n', "line 1", "not valid YAML"),
    "two documents": (b"a: 1\n---\nb: 2\n", "line 2", "not valid YAML"),
    "duplicate key": (b"a: 1\nb: 2\na: 3\n", "line 3", "duplicate key 'a'"),
    "duplicate key in another form": (b"a: 1\nb: 2\n'a': 3\n", "line 3", "duplicate key 'a'"),
    "duplicate key deep inside": (b"a:\n  - b: {c: 1,\n      c: 2}\n", "line 3", "duplicate key 'c'"),
    "anchor": (b"a: 1\nb: &x 2\n", "line 2", "anchor"),
    "anchor on a list": (b"a: &x [1]\n", "line 1", "anchor"),
    "alias": (b"a: &x 1\nb: *x\n", "line 1", "anchor"),
    "alias of nothing": (b"a: 1\nb: *x\n", "line 2", "alias"),
    "merge key": (b"a: 1\n<<: {b: 2}\n", "line 2", "<<"),
    "merge of an alias": (b"a: 1\nb:\n  <<: *x\n", "line 3", "alias"),
    "tag": (b"a: 1\nb: !!str 2\n", "line 2", "tag"),
    "python tag": (b"a: !!python/object/apply:os.system [id]\n", "line 1", "tag"),
    "own tag": (b"a: !x {}\n", "line 1", "tag"),
    "bare tag": (b"a: ! b\n", "line 1", "tag"),
    "key no": (b"a: 1\nno: 2\n", "line 2", "'no'|the key no"),
    "key on": (b"a: 1\non: 2\n", "line 2", "the key on"),
    "key 1:30": (b"a: 1\n1:30: 2\n", "line 2", "the key 1:30"),
    "key 1": (b"1: 2\n", "line 1", "the key 1 "),
    "key 1.5": (b"1.5: 2\n", "line 1", "the key 1.5"),
    "key ~": (b"~: 2\n", "line 1", "the key ~"),
    "no key": (b"? \n: 2\n", "line 1", "the key"),
    "date as key": (b"2020-01-01: 2\n", "line 1", "the key 2020-01-01"),
    "list as key": (b"a: 1\n? [b]\n: c\n", "line 2", "is not text"),
    "date": (b"a: 1\nb: 2020-01-01\n", "line 2", "timestamp"),
    "merge as value": (b"a: <<\n", "line 1", "merge"),
    "equals sign": (b"a: =\n", "line 1", "'='"),
    "no number": (b"a: 1\nb: 0b_\n", "line 2", "put it in quotes"),
    "number of 5,000 digits": (b"a: 1\nb: " + b"9" * 5000, "line 2", "a number of 5000 characters"),
    "base 60": (b"a: 1" + b":59" * 100_000, "line 1", "a number of 300001 characters"),
    "hexadecimal": (b"a: 0x" + b"f" * 100_000, "line 1", "a number of 100002 characters"),
    "a fraction": (b"a: " + b"1" * 100_000 + b".5", "line 1", "a number of 100002 characters"),
    "many values": (b"[" + b"1," * 100_000 + b"1]", "line 1", "more than 50000 values"),
    "many empty lists": (b"[" + b"[]," * 100_000 + b"[]]", "line 1", "more than 50000 values"),
    "20,000 lists": (b"a: 1\nb: " + b"[" * 20_000, "line 2", "nested deeper"),
    "20,000 lists in lists": (b"- " * 20_000, "line 1", "nested deeper"),
    "20,000 pairs": (b"{a: " * 20_000, "line 1", "nested deeper"),
    "deep block": (b"".join(b" " * i + b"a:\n" for i in range(200)), "line 21", "nested deeper"),
}


def refused(data: bytes) -> str:
    """The one line of the refusal."""
    with pytest.raises(InputError) as caught:
        load_yaml(data, "table.yaml")
    line = str(caught.value)
    assert line.startswith("table.yaml: ")
    assert line.isprintable()
    assert "Node(" not in line
    assert len(f"error: {line}") <= MAX_MESSAGE_CHARS
    return line


@pytest.mark.parametrize("data", [b"", b"\n\n", b"# nothing but this\n", b"  \n# \n"])
def test_an_empty_file_is_refused(data: bytes) -> None:
    assert "empty" in refused(data)


def test_a_file_may_be_as_large_as_the_limit_and_no_larger() -> None:
    data = b"a: " + b"x" * (MAX_TABLE_BYTES - 3)
    assert load_yaml(data, "table.yaml").plain() == {"a": "x" * (MAX_TABLE_BYTES - 3)}
    assert f"{MAX_TABLE_BYTES + 1} bytes" in refused(data + b"x")
    assert "10000000 bytes" in refused(b"- a\n" * 2_500_000)


def test_nesting_may_be_as_deep_as_the_limit_and_no_deeper() -> None:
    load_yaml(b"[" * MAX_TABLE_DEPTH + b"]" * MAX_TABLE_DEPTH, "table.yaml")
    assert "nested deeper" in refused(b"[" * (MAX_TABLE_DEPTH + 1) + b"]" * (MAX_TABLE_DEPTH + 1))
    flat = b"[" + b"[]," * 100 + b"]"
    assert load_yaml(flat, "table.yaml").plain() == [[]] * 100


def test_a_json_file_is_read_as_json(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"norm_eps": 1e-05, "on": [true, null, "1e5"]}')
    assert read_yaml(file, "").plain() == {"norm_eps": 1e-05, "on": [True, None, "1e5"]}
    file.write_text('{"a": 1, "a": 2}')
    with pytest.raises(InputError, match=r"config\.json: duplicate key 'a' in its JSON"):
        read_yaml(file, "")


def test_every_value_has_its_line() -> None:
    root = load_yaml(b"# head\na: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n", "table.yaml")
    assert root.line == 2
    assert root.value["a"].line == 2
    assert [item.line for item in root.value["b"].value] == [4, 5]
    assert root.value["b"].value[1].value["d"].line == 6


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=12)
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=12,
)


def same(ours: Any, theirs: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and repr(ours) == repr(theirs)


@given(DOCUMENTS, st.sampled_from([None, True, False]), st.booleans())
def test_plain_documents_are_read_as_safe_load_reads_them(document: Any, flow: bool | None, unicode: bool) -> None:
    text = yaml.dump(document, Dumper=_NoAliases, default_flow_style=flow, allow_unicode=unicode)
    assert same(load_yaml(text.encode(), "x.yaml").plain(), yaml.safe_load(text))


def surprising(value: Any) -> bool:
    """Whether safe_load reads something that a table must not hold: a date, or a key that is no text."""
    if isinstance(value, dict):
        return any(not isinstance(key, str) or surprising(item) for key, item in value.items())
    if isinstance(value, list):
        return any(map(surprising, value))
    return isinstance(value, datetime.date)


@given(st.text("0123456789abefnostyxNOE.:_+-~", max_size=8))
def test_plain_scalars_are_read_as_safe_load_reads_them(token: str) -> None:
    text = f"key: [{token} ]"
    try:
        theirs = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        refused(text.replace("key", "table.yaml").encode())
        return
    try:
        ours = load_yaml(text.encode(), "x.yaml").plain()
    except InputError:
        ours = None
    assert same(ours, None if surprising(theirs) else theirs)
