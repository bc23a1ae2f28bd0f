"""Refusals that no file of the table of bad files meets: called where they stand, or over files that are put together
here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from struct import pack
from unittest.mock import Mock

import pytest

import wdport
from tests.checkpoint.bad import refuse, refuse_bytes
from tests.checkpoint.forge import entry, in_tar, safetensors, tarred
from wdport.base.errors import InputError, MachineError
from wdport.base.limits import MAX_RANK
from wdport.checkpoint import experiment, open_checkpoint, regular_file, sharded, symbols, zip_archive
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import read_option
from wdport.checkpoint.source import Span, read_tensor
from wdport.checkpoint.tensor import StorageRef, tensor_ref
from wdport.checkpoint.zip_archive import Entry, _entry
from wdport.files.locked_folder import read_private

END = pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 9, 0)
"""The end of a zip archive whose directory, which is empty, lies behind it."""

STORAGE = StorageRef("0", "float32", 6)

CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: symbols._plain_tensor((STORAGE, 0, (6,))), "rebuilt from 3 arguments instead of 4"),
    (lambda: symbols._plain_tensor((STORAGE, 0.5, (6,), (1,))), "arguments of the wrong type"),
    (lambda: symbols._size(((2,), (3,))), "wrong number of arguments"),
    # Before its elements are looked at, of which there may be millions.
    (lambda: symbols._lengths(("x",) * (MAX_RANK + 1)), f"{MAX_RANK + 1} axes"),
    (lambda: zip_archive._data_start(Mock(), Entry("a", 0, 0, 7, 4, 4, 0), 30), "zip member overlaps the next one"),
    (lambda: zip_archive._end_records(lambda at, count: END[at:][:count], len(END)), "not where the end record points"),
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
    "a second header": ('{"a":%s}{}', "not valid JSON"),
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


@pytest.mark.parametrize(
    ("limit", "most", "fragment"),
    [("MAX_ARCHIVE_MEMBERS", 1, "has more than 1 members"), ("MAX_ARCHIVE_BYTES", 999, "has more than 0 GiB")],
)
def test_large_archives(limit: str, most: int, fragment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, limit, most)
    refuse_bytes(tmp_path, tarred(in_tar("a", b"1"), in_tar("b", b"2")), f"{fragment}; give the checkpoint itself")


def test_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text("0123456789")
    with pytest.raises(InputError, match=r"a\.json: has more than 9 bytes; shorten it"):
        read_private(path, 9, "shorten it")
    monkeypatch.setattr(regular_file, "state_of", lambda _: Mock(size=0))  # as a file in /proc has
    with pytest.raises(InputError, match=r"a\.json: has more than 9 bytes; shorten it"):
        read_option(path, 9, "shorten it")
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(MachineError, match=r"a\.json: permission denied; give this user read permission"):
        read_option(path, 9, "shorten it")
    monkeypatch.setattr(regular_file, "unsupported", lambda: "Windows")
    with pytest.raises(MachineError, match=r"Windows: wdport needs file locks and .*; use Linux or macOS, or WSL 2 on"):
        wdport.convert(path)


@pytest.mark.parametrize(("tag", "advice"), [("F8_E4M3", "scales"), ("U32", "float32"), ("F7", "does not write this")])
def test_dtypes_that_safetensors_writes(tag: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(safetensors({"w": entry(tag)}))
    with pytest.raises(InputError, match=f"w: has dtype {tag}, which is not read; .*{advice}"):
        open_checkpoint(tmp_path / "a.safetensors")


def test_an_unknown_dtype() -> None:
    ref = tensor_ref(StorageRef("0", "complex32", 0), 0, (0,), (1,))
    with pytest.raises(Fault, match="has dtype complex32, which is not read"):
        read_tensor(ref, Span.__new__(Span))
