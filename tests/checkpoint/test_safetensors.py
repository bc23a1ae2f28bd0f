"""safetensors files and sharded ones: equal to the library's reader, and strict where it is not."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from wdport.base.errors import InputError
from wdport.checkpoint import open_checkpoint

from .bad import refuse_bytes
from .forge import entry, safetensors
from .test_torch_equal import DTYPES, same

GOOD = safetensors({"w": entry()})


def test_equal_to_the_library(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    values = torch.arange(6.0).reshape(2, 3)
    state = {f"x.{index}": values.to(dtype) for index, dtype in enumerate(DTYPES)}
    state |= {"scalar": torch.tensor(3), "empty": torch.zeros(0, 4)}
    save_file(state, path, metadata={"format": "pt"})
    expected = load_file(path)
    with open_checkpoint(path) as checkpoint:
        assert (checkpoint.format, checkpoint.layout, checkpoint.key) == ("safetensors", "bare", None)
        assert checkpoint.metadata == {"format": "pt"}
        assert checkpoint.tree is None
        assert set(checkpoint.tensors) == set(expected)
        for name, tensor in expected.items():
            same(checkpoint.read(name), tensor)
            assert f"torch.{checkpoint.tensors[name].dtype}" == str(tensor.dtype)


def test_prefixes_are_stripped(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"_orig_mod.w": torch.ones(2)}, path)
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == ["w"]
        assert checkpoint.prefixes == ("_orig_mod.",)
        assert checkpoint.read("w").tolist() == [1.0, 1.0]


def pair(first: tuple[int, int], second: tuple[int, int]) -> bytes:
    sizes = [(end - begin) // 4 for begin, end in (first, second)]
    entries = zip("ab", sizes, (first, second), strict=True)
    return safetensors({name: entry("F32", [size], list(offsets)) for name, size, offsets in entries})


HEADERS = {
    "length beyond the file": (safetensors({"w": entry()}, length=10**6), "more than the file can hold"),
    "length of 2**64-1": (safetensors({"w": entry()}, length=2**64 - 1), "more than the file can hold"),
    "too short": (b"\x02\x00\x00", "too short"),
    "cut": (GOOD[:-1], "holds 23 bytes of data"),
    "appended": (GOOD + b"x", "holds 25 bytes of data"),
    "not JSON": (safetensors(b"{oops}"), "not valid JSON"),
    "JSON cut": (safetensors(b'{"w": '), "not valid JSON"),
    "not UTF-8": (safetensors(b'{"\xff": 1}'), "not valid JSON"),
    "an array": (safetensors([1]), "not a JSON object"),
    "NaN": (safetensors(b'{"w": NaN}'), "not valid JSON"),
    "nested": (safetensors(b'{"a":' * 100_000), "not valid JSON"),
    "a number of 10,000 digits": (safetensors(b'{"w": ' + b"1" * 10_000 + b"}"), "w: its header entry is not"),
    "a name twice": (safetensors(b'{"w":' + json.dumps(entry()).encode() + b',"w":' + json.dumps(entry()).encode()
                                 + b"}"), "duplicate key 'w'"),
    "a number that begins with 0": (safetensors(b'{"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}'),
                                    "not valid JSON"),
    "a field twice": (safetensors(b'{"w":{"dtype":"F32","dtype":"I32"}}'), "duplicate key 'dtype'"),
    "a hole": (pair((0, 8), (12, 24)), "b: follows a hole"),
    "a hole at the start": (pair((4, 8), (8, 24)), "a: follows a hole"),
    "a hole at the end": (pair((0, 8), (8, 20)), "holds 24 bytes of data where its header describes 20"),
    "overlap": (pair((0, 16), (12, 24)), "b: overlaps"),
    "the same bytes": (pair((0, 24), (0, 24)), "b: overlaps"),
    "wrong size": (safetensors({"w": entry(shape=[2, 4])}), "w: has 24 bytes where its shape needs 32"),
    "backward": (safetensors({"w": entry(offsets=[24, 0])}), "w: has -24 bytes"),
    "unknown dtype": (safetensors({"w": entry("F8_E4M3")}), "w: has dtype F8_E4M3, which is not read"),
    "dtype that is a list": (safetensors({"w": entry([])}), "w: its dtype is not text"),
    "dtype nested deep": (safetensors(b'{"w":{"shape":[],"data_offsets":[0,4],"dtype":' + b"[" * 900 + b"]" * 900
                                      + b"}}"), ""),
    "a field missing": (safetensors({"w": {"dtype": "F32", "shape": [2]}}), "w: its header entry"),
    "a field more": (safetensors({"w": entry() | {"x": 1}}), "w: its header entry"),
    "an entry that is text": (safetensors({"w": "x"}), "w: its header entry"),
    "negative shape": (safetensors({"w": entry(shape=[-2, -3])}), "w: its shape or data_offsets"),
    "a shape of floats": (safetensors({"w": entry(shape=[2.0, 3])}), "w: its shape or data_offsets"),
    "a shape of bools": (safetensors({"w": entry(shape=[True, 6])}), "w: its shape or data_offsets"),
    "three offsets": (safetensors({"w": entry(offsets=[0, 24, 24])}), "w: its shape or data_offsets"),
    "a huge shape": (safetensors({"w": entry(shape=[2**62, 2**62])}), "w: tensor with an impossible shape"),
    "a huge empty shape": (safetensors({"w": entry(shape=[0, 2**62, 2**62], offsets=[0, 0])}, b""),
                           "w: tensor with an impossible shape"),
    "33 axes": (safetensors({"w": entry(shape=[1] * 33)}), "w: has 33 axes"),
    "metadata of numbers": (safetensors({"__metadata__": {"a": 1}, "w": entry()}), "__metadata__"),
    "metadata as a list": (safetensors({"__metadata__": [], "w": entry()}), "__metadata__"),
    "no tensors": (safetensors({}, b""), "has no state_dict"),
    "bool that is 2": (safetensors({"w": entry("BOOL", [24])}), "bytes other than 0 and 1"),
}  # fmt: skip


def test_the_name_of_the_file_is_not_needed(tmp_path: Path) -> None:
    refuse_bytes(tmp_path, safetensors(b"{oops}"), "not valid JSON")
    (tmp_path / "model.bin").write_bytes(GOOD)
    with open_checkpoint(tmp_path / "model.bin") as checkpoint:
        assert checkpoint.read("w")[1, 2] == 5.0


def sharded(folder: Path, weight_map: object, **shards: bytes) -> Path:
    for name, content in shards.items():
        (folder / f"{name}.safetensors").write_bytes(content)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": weight_map}))
    return index


A, B = safetensors({"a": entry()}), safetensors({"b": entry()}, struct.pack("<6f", *range(6, 12)))


def test_sharded(tmp_path: Path) -> None:
    index = sharded(tmp_path, {"b": "y.safetensors", "a": "x.safetensors"}, x=A, y=B)
    with open_checkpoint(index) as checkpoint:
        assert checkpoint.format == "safetensors-sharded"
        assert list(checkpoint.tensors) == ["b", "a"]
        assert np.concatenate([checkpoint.read("a"), checkpoint.read("b")]).ravel().tolist() == list(range(12))


AB = {"a": "x.safetensors", "b": "y.safetensors"}
INDEXES = {
    "upwards": ({"a": "../x.safetensors"}, "outside the folder"),
    "absolute": ({"a": "/etc/passwd"}, "outside the folder"),
    "backslash": ({"a": "..\\x"}, "outside the folder"),
    "two dots": ({"a": ".."}, "outside the folder"),
    "empty name": ({"a": ""}, "outside the folder"),
    "zero byte": ({"a": "x\0"}, "outside the folder"),
    "link out": ({"a": "link.safetensors"}, "outside the folder"),
    "shard that is a number": ({"a": 3}, "a: its shard in the index is not a file name"),
    "a tensor more in a shard": ({"b": "y.safetensors", "c": "x.safetensors"}, "a: is in this shard but not in"),
    "a tensor in two shards": ({"a": "y.safetensors", "b": "y2.safetensors"}, "b: is in this shard and in y2"),
    "a tensor less": ({"a": "x.safetensors", "c": "x.safetensors"}, "c: is missing from the shard"),
    "no map": ({}, "no weight_map"),
    "a map that is a list": ([], "no weight_map"),
    "the index as its own shard": ({"a": "model.safetensors.index.json"}, "is a text file"),
    "a shard that is damaged": ({"a": "bad.safetensors"}, "holds 23 bytes of data"),
    "a shard that is missing": ({"a": "none.safetensors"}, "no such file"),
}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"weight_map":{},"weight_map":{}}', b"\xff"])
def test_index_that_is_not_json(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(content)
    with pytest.raises(InputError):
        open_checkpoint(path)


@pytest.mark.parametrize("first", [A[:-1], safetensors({"module.a": entry()})], ids=["damaged", "mixed prefixes"])
def test_shards_are_closed_after_a_refusal(first: bytes, tmp_path: Path) -> None:
    name = "module.a" if b"module" in first else "a"
    index = sharded(tmp_path, {"b": "y.safetensors", name: "x.safetensors"}, x=first, y=B)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(InputError):
            open_checkpoint(index)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_shard_that_is_a_torch_file_is_named(tmp_path: Path) -> None:
    index = sharded(tmp_path, AB, x=b"PK\3\4" + bytes(100), y=B)
    with pytest.raises(InputError, match=r"x\.safetensors"):
        open_checkpoint(index)
