"""Files as torch wrote them before 1.6: equal to torch bit by bit, or refused in one line."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wdport.base.errors import WdportError
from wdport.checkpoint import open_checkpoint

from .bad import read_all, refuse_bytes
from .forge import DICT, LIST, SIX_FLOATS, name, number, pickled, table, tensor, text, tuple_of
from .legacy import GOOD_PICKLE, MAGIC, PROTOCOL, keys_of, legacy, saved, stored, system
from .test_torch_equal import same_tree

GOOD = legacy()


def equal_to_torch(folder: Path, content: bytes) -> int:
    """Compare every leaf; the number of them."""
    path = folder / "model.pth"
    path.write_bytes(content)
    expected = torch.load(path, map_location="cpu", weights_only=False)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "torch-legacy"
        return same_tree(checkpoint, checkpoint.tree, expected)


def test_storage_views(tmp_path: Path) -> None:
    """The sixth element of a persistent id, as torch before 0.4 wrote it for a part of another storage."""
    view = tuple_of(text("77"), number(2), number(3))
    pickle = pickled(
        table({"part": tensor((3,), (1,), source=stored(view=view)), "w": tensor((2, 3), (3, 1), source=stored())})
    )
    assert equal_to_torch(tmp_path, legacy(pickle)) == 2
    with open_checkpoint(tmp_path / "model.pth") as checkpoint:
        assert checkpoint.read("part").tolist() == [2.0, 3.0, 4.0]
        assert checkpoint.shared == (("part", "w"),)


def test_cuda_storages(tmp_path: Path) -> None:
    """Where a storage was is only a tag."""
    content = saved({"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)})
    tagged = content.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0")
    assert tagged.count(b"cuda:0") == 1, "the text is written once and then recalled"
    assert equal_to_torch(tmp_path, tagged) == 2


def test_a_file_of_python_2(tmp_path: Path) -> None:
    """Its text is written as bytes, its OrderedDict as a list of pairs, its long integers as decimals."""
    pair = LIST + b"(U\x01w" + tensor(source=stored()) + b"e"
    pairs = name("collections", "OrderedDict") + LIST + b"(" + pair + b"e\x85R"
    pickle = pickled(DICT + b"(U\x05model" + pairs + b"U\x04stepI12345678901\nu")
    assert equal_to_torch(tmp_path, legacy(pickle)) == 2
    with open_checkpoint(tmp_path / "model.pth") as checkpoint:
        assert (checkpoint.key, checkpoint.metadata) == ("model", {"step": 12345678901})


def test_tensors_of_the_first_kind(tmp_path: Path) -> None:
    rebuild = name("torch._utils", "_rebuild_tensor")
    sizes, steps = tuple_of(number(3), number(2)), tuple_of(number(1), number(3))
    pickle = pickled(table({"w": rebuild + tuple_of(stored(), number(0), sizes, steps) + b"R"}))
    assert equal_to_torch(tmp_path, legacy(pickle)) == 1


def test_a_pickle_longer_than_the_first_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.torch_file._WINDOWS", (20, 50, 100))
    state = OrderedDict((f"layers.{index}.weight", torch.full((2,), float(index))) for index in range(100))
    assert equal_to_torch(tmp_path, saved(state)) == 100


def plain(value: bytes) -> bytes:
    return legacy(pickled(table({"w": value})))


HEAD = MAGIC + PROTOCOL
VIEWED = stored(view=tuple_of(text("7"), number(4), number(3)))
LEGACY = {
    "another protocol": (legacy(head=MAGIC + b"\x80\x02M\xea\x03." + system()), "legacy protocol"),
    "big-endian": (legacy(head=HEAD + system(little=False)), "not little-endian"),
    "no system": (legacy(head=HEAD + pickled(b"N")), "not little-endian"),
    "a long head": (legacy(head=HEAD + pickled(DICT + b"0}" * 2000)), "more than 1000 opcodes"),
    "an attack in the head": (legacy(head=HEAD + pickled(name("os", "system"))), "os.system"),
    "an attack in the keys": (legacy(keys=pickled(name("os", "system"))), "os.system"),
    "keys that are no list": (legacy(keys=pickled(DICT)), "not a list"),
    "a key that is a number": (legacy(keys=pickled(LIST + number(0) + b"a")), "does not match"),
    "a key too many": (legacy(keys=keys_of(["0", "1"])), "does not match"),
    "a key twice": (legacy(keys=keys_of(["0", "0"])), "does not match"),
    "a key missing": (legacy(storages={}), "storage 0 is missing"),
    "another count": (legacy(storages={"0": (5, SIX_FLOATS)}), "has 5 elements, not 6"),
    "a negative count": (legacy(storages={"0": (-1, SIX_FLOATS)}), "has -1 elements, not 6"),
    "4 TB": (legacy(pickled(table({"w": tensor((10**12,), (1,), source=stored(count=10**12))})), {"0": (10**12, b"x")}),
             "cut short"),
    "bytes after": (GOOD + b"x", "1 bytes follow the last storage"),
    "minus the last byte": (GOOD[:-1], "cut short"),
    "no storages": (GOOD[: -len(SIX_FLOATS) - 8], "outside the file"),
    "five elements": (plain(tensor(source=stored().replace(b"Nt", b"t"))), "persistent id"),
    "a view past the end": (plain(tensor((3,), (1,), source=VIEWED)), "elements 4 to 7 of a storage that has 6"),
    "a tensor past its view": (plain(tensor((3,), (1,), source=stored(view=tuple_of(text("7"), number(1), number(2))))),
                               "reaches element 3 of a storage that has 2"),
    "a view of negative length": (plain(tensor((0,), (1,),
                                               source=stored(view=tuple_of(text("7"), number(1), number(-1))))),
                                  "a view of elements"),
    "a view that is a list": (plain(tensor(source=stored(view=LIST))), "storage view is not"),
    "a view with a path": (plain(tensor((1,), (1,), source=stored(view=tuple_of(text("../x"), number(0), number(1))))),
                           "'../x' is not a number"),
    "a view under the key of its storage": (
        plain(tensor((1,), (1,), source=stored(view=tuple_of(text("0"), number(0), number(1))))),
        "declared in two ways",
    ),
    "a storage of two lengths": (legacy(pickled(table({"a": tensor((1,), (1,), source=stored()),
                                                       "b": tensor(source=stored(count=7))}))),
                                 "declared as 7 float32 and as 6 float32"),
    "a storage of two types": (legacy(pickled(table({"a": tensor(source=stored()),
                                                     "b": tensor(source=stored(cls="IntStorage"))}))),
                               "declared as 6 int32 and as 6 float32"),
    "a module of text": (plain(tuple_of(text("module"), text("x"), b"N", b"N") + b"Q"), "persistent id"),
    "protocol 3": (legacy(b"\x80\x03" + GOOD_PICKLE[2:]), "protocol 2"),
}  # fmt: skip


def test_a_pickle_over_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.torch_file.MAX_PICKLE_BYTES", 150)
    refuse_bytes(tmp_path, GOOD, "a pickle of more than 150 bytes")


def test_nothing_but_the_pickles_is_read_at_first(tmp_path: Path, reads: list[tuple[int, int]]) -> None:
    path = tmp_path / "model.pth"
    path.write_bytes(saved({"w": torch.zeros(1_000_000)}))
    with open_checkpoint(path) as checkpoint:
        assert sum(length for _, length in reads) < 400_000
        reads.clear()
        checkpoint.read("w")
        assert [length for _, length in reads] == [4_000_000]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bits_are_refused_or_as_torch_reads_them(tmp_path: Path, data: st.DataObject) -> None:
    """The format has no checksums; what passes is what torch reads from the same bytes."""
    content = bytearray(REAL)
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "x.pth"
    path.write_bytes(content)
    try:
        found = read_all(path)
    except WdportError:
        return
    expected = torch.load(io.BytesIO(bytes(content)), map_location="cpu", weights_only=True)
    assert found == {key: value.detach().numpy().tobytes() for key, value in expected.items()}


@pytest.mark.parametrize("container", [b"}", b"]"])
def test_a_key_that_no_dict_can_hold_is_refused(tmp_path: Path, container: bytes) -> None:
    """As ``pickle`` does: such a file cannot have been written."""
    pickles = [pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    body = b"\x80\x02}" + container + b"K\x01s."  # a dict, its key, its value
    path = tmp_path / "x.pth"
    path.write_bytes(b"".join(pickles) + body + pickle.dumps([], 2))
    with pytest.raises(WdportError, match="a key that no dict can hold"):
        read_all(path)


REAL = saved(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3)).state_dict())
