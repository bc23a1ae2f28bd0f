"""Refusals that no file of the table of bad files meets: called where they stand, or over files that are put together
here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from tests.checkpoint.bad import refuse, refuse_bytes
from tests.checkpoint.forge import entry, safetensors
from wdport.checkpoint import sharded, symbols
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.reading import read_tensor
from wdport.checkpoint.source import Span
from wdport.checkpoint.tensor import StorageRef, tensor_ref
from wdport.checkpoint.zip_archive import Entry, _entry
from wdport.limits import MAX_RANK

STORAGE = StorageRef("0", "float32", 6)

CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: symbols._plain_tensor((STORAGE, 0, (6,))), "rebuilt from 3 arguments instead of 4"),
    (lambda: symbols._plain_tensor((STORAGE, 0.5, (6,), (1,))), "arguments of the wrong type"),
    (lambda: symbols._size(((2,), (3,))), "wrong number of arguments"),
    (lambda: tensor_ref(STORAGE, 0, (1,) * (MAX_RANK + 1), (1,) * (MAX_RANK + 1)), f"{MAX_RANK + 1} axes"),
]


@pytest.mark.parametrize(("call", "fragment"), CALLS)
def test_arguments(call: Callable[[], object], fragment: str) -> None:
    with pytest.raises(Fault, match=fragment):
        call()


def test_attributes_that_leave_a_tensor_as_it_is() -> None:
    notes = {"shard": 1}
    assert symbols._is_note(None)
    assert symbols._is_note((None, notes))
    assert not symbols._is_note((None, notes, notes))
    assert not symbols._is_note(["shard"])
    assert not symbols._is_note({"__class__": 1})


HEADERS = {
    "metadata twice": ('{"__metadata__":{},"a":%s,"__metadata__":{}}', "duplicate key '__metadata__'"),
    "a key of the metadata twice": ('{"__metadata__":{"x":"1","x":"2"},"a":%s}', "duplicate key 'x'"),
    "long metadata": ('{"__metadata__":{"x":"' + "y" * (33 << 20) + '"},"a":%s}', "bytes"),
    "no comma after an entry": ('{"\\u0061":%s;"b":1}', "not valid JSON"),
    "a name that is not UTF-8": ('{"\udcff":%s}', "not valid JSON"),
    "nothing after the comma": ('{"a":%s,]', "not valid JSON"),
    "something else at the end": ('{"a":%s]', "not valid JSON"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers(case: str, tmp_path: Path) -> None:
    text, fragment = HEADERS[case]
    whole = text % json.dumps(entry(), separators=(",", ":"))
    refuse_bytes(tmp_path, safetensors(whole.encode("utf-8", "surrogateescape")), fragment)


@pytest.mark.parametrize(
    ("limit", "value", "fragment"), [("MAX_SHARDS", 1, "names 2 shards"), ("MAX_INDEX_BYTES", 9, "an index of")]
)
def test_indexes(limit: str, value: int, fragment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, limit, value)
    names = {name: f"model-0000{i}-of-00002.safetensors" for i, name in enumerate("ab", 1)}
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    refuse(path, fragment)


FULL = 0xFFFFFFFF


def central(size: int, packed: int, header: int, extra: bytes) -> bytes:
    """One entry of a zip directory, for a member ``a``."""
    fields = (b"PK\1\2", 45, 45, 0, 0, 0, 0, 7, packed, size, 1, len(extra), 0, 0, 0, 0, header)
    return pack("<4s6H3L5H2L", *fields) + b"a" + extra


WIDE = pack("<2H3Q", 1, 24, 1 << 33, 1 << 34, 1 << 35)
OTHER = pack("<2H3s", 0x5455, 3, b"abc")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (central(FULL, FULL, FULL, WIDE), (1 << 34, 1 << 33, 1 << 35)),
        (central(FULL, FULL, FULL, OTHER + WIDE), (1 << 34, 1 << 33, 1 << 35)),
        (central(FULL, 5, FULL, pack("<2H2Q", 1, 16, 1 << 33, 1 << 35)), (5, 1 << 33, 1 << 35)),
        (central(FULL, 5, 6, OTHER), (5, FULL, 6)),
        (central(4, 5, 6, WIDE), (5, 4, 6)),
    ],
)
def test_sizes_of_64_bits(raw: bytes, expected: tuple[int, int, int]) -> None:
    """The uncompressed size comes first (APPNOTE.TXT, 4.5.3)."""
    packed, size, header = expected
    assert _entry(raw, 0) == (Entry("a", 0, 0, 7, packed, size, header), len(raw))


def test_an_unknown_dtype() -> None:
    ref = tensor_ref(StorageRef("0", "complex32", 0), 0, (0,), (1,))
    with pytest.raises(Fault, match="has dtype complex32, which is not read"):
        read_tensor(ref, Span.__new__(Span))
