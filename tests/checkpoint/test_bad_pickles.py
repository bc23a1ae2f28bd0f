"""Pickles that are damaged, hostile, or hold something else than weights."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from wdport.base.limits import MAX_DEPTH, MAX_OPCODES

from . import forge
from .bad import refuse_bytes
from .forge import (
    APPEND,
    BUILD,
    DICT,
    EMPTY,
    LIST,
    MARK,
    NONE,
    ORDERED,
    PERSID,
    REDUCE,
    SETITEM,
    SETITEMS,
    STOP,
    TUPLE,
    archive,
    name,
    number,
    pickled,
    storage,
    table,
    tensor,
    text,
    tuple_of,
)

W = text("w")


def doubling(levels: int) -> bytes:
    """A list of two references to a list of two references ...: 2**levels leaves."""
    parts = [LIST + b"q\x00"]
    for level in range(levels):
        here, below = bytes([level + 1]), bytes([level])
        parts.append(LIST + b"q" + here + MARK + b"h" + below + b"h" + below + b"e")
    return tuple_of(*parts)


def deep_twice(half: int) -> bytes:
    """A chain of tuples that stands once at the top and once below another chain of the same length."""
    return tuple_of(NONE + b"\x85" * half + b"q\x01", b"h\x01" + b"\x85" * half)


PICKLES = {
    # callables and everything that reaches for one
    "os.system": (name("os", "system") + tuple_of(text("true")) + REDUCE,
                  "asks for os.system, which only an attack needs; do not load it"),
    "eval": (name("builtins", "eval") + tuple_of(text("1")) + REDUCE, "builtins.eval"),
    "py2 builtins": (name("__builtin__", "getattr") + tuple_of(W, W) + REDUCE, "__builtin__.getattr"),
    "dotted": (table({"w": name("collections", "OrderedDict.fromkeys")}), "OrderedDict.fromkeys"),
    "attribute of allowed": (table({"w": name("torch", "FloatStorage.__init__")}), "FloatStorage.__init__"),
    "torch.load": (table({"w": name("torch", "load") + tuple_of(text("x")) + REDUCE}), "torch.load"),
    "reduce of text": (W + EMPTY + REDUCE, "cannot be called"),
    "reduce of a storage class": (name("torch", "FloatStorage") + EMPTY + REDUCE, "cannot be called"),
    "reduce of a constant": (name("torch", "float32") + EMPTY + REDUCE, "cannot be called"),
    "reduce without a tuple": (name("collections", "OrderedDict") + LIST + REDUCE, "cannot be called"),
    "OrderedDict of a dict": (name("collections", "OrderedDict") + DICT + b"\x85" + REDUCE, "arguments"),
    "OrderedDict of two": (name("collections", "OrderedDict") + LIST + LIST + b"\x86" + REDUCE, "arguments"),
    "OrderedDict of no pairs": (name("collections", "OrderedDict") + LIST + NONE + APPEND + b"\x85" + REDUCE,
                                "list of pairs"),
    "a class as value": (table({"w": name("collections", "OrderedDict")}), "its keys are w"),
    "a storage class as value": (table({"w": name("torch", "FloatStorage")}), "its keys are w"),
    "a whole module": (name("torch.nn.modules.linear", "Linear") + EMPTY + b"\x81" + DICT + BUILD,
                       "object of class torch.nn.modules.linear.Linear"),
    "a module of one's own": (name("my.net", "Net") + EMPTY + b"\x81" + DICT + BUILD, "class my.net.Net"),
    "a module inside": (table({"model": name("torch.nn.modules.linear", "Linear")}),
                        "model (name torch.nn.modules.linear.Linear)"),
    "namespace": (table({"args": name("argparse", "Namespace") + EMPTY + b"\x81"}), "args (class argparse.Namespace)"),
    "a name with escapes": (table({"w": name("\x1b[31mred", "x")}), "\\x1b[31mred.x"),
    "a class among tensors": (table({"w": tensor(), "x": name("my", "Net") + EMPTY + b"\x81"}),
                              "x: its state_dict entry is an object (class my.Net), not a tensor"),
    # opcodes
    "STACK_GLOBAL": (text("os") + text("system") + b"\x93", "STACK_GLOBAL"),
    "INST": (MARK + b"ios\nsystem\n", "os.system"),
    "INST without MARK": (b"imy\nNet\n", "no MARK"),
    "OBJ": (MARK + name("collections", "OrderedDict") + b"o", "class collections.OrderedDict"),
    "OBJ of nothing": (MARK + b"o", "cannot be called"),
    "OBJ of text": (MARK + W + b"o", "cannot be called"),
    "NEWOBJ": (name("collections", "OrderedDict") + EMPTY + b"\x81", "class collections.OrderedDict"),
    "NEWOBJ of text": (W + EMPTY + b"\x81", "cannot be called"),
    "NEWOBJ without a tuple": (name("my", "Net") + LIST + b"\x81", "cannot be called"),
    "NEWOBJ_EX": (name("my", "Net") + EMPTY + DICT + b"\x92", "NEWOBJ_EX"),
    "POP of nothing": (b"0", "empty stack"),
    "POP_MARK of nothing": (b"1", "no MARK"),
    "a number that is no number": (b"I1_0\n", "not decimal"),
    "a number of 30 digits": (b"I" + b"1" * 30 + b"\n", "no end"),
    "EXT1": (b"\x82\x01", "EXT1"),
    "EXT2": (b"\x83\x01\x00", "EXT2"),
    "EXT4": (b"\x84\x01\x00\x00\x00", "EXT4"),
    "textual persistent id": (b"P0\n", "0x50"),
    "an undefined opcode": (b"\xff", "0xff"),
    "a second PROTO": (b"\x80\x02" + DICT, "0x80"),
    # BUILD and SETITEM
    "BUILD on OrderedDict": (ORDERED + table({"__class__": NONE}) + BUILD, "sets attributes"),
    "BUILD on OrderedDict by slots": (ORDERED + NONE + table({"x": NONE}) + b"\x86" + BUILD, "sets attributes"),
    "BUILD on a class": (name("my", "Net") + DICT + BUILD, "sets attributes"),
    "SETITEM on a class": (name("my", "Net") + W + W + SETITEM, "not a dict"),
    "BUILD on a dict": (DICT + table({"_metadata": NONE}) + BUILD, "sets attributes"),
    "BUILD on a tensor": (tensor() + table({"_metadata": NONE}) + BUILD, "sets attributes"),
    "SETITEM on a list": (LIST + W + W + SETITEM, "not a dict"),
    "SETITEM on a tensor": (tensor() + W + W + SETITEM, "not a dict"),
    "SETITEM on a callable": (name("collections", "OrderedDict") + W + W + SETITEM, "not a dict"),
    "SETITEMS odd": (DICT + MARK + W + SETITEMS, "not a dict"),
    "APPEND to a dict": (DICT + W + APPEND, "not a list"),
    "a key twice": (DICT + MARK + W + NONE + W + NONE + SETITEMS, "duplicate key"),
    "a key that is a tuple": (DICT + EMPTY + tensor() + SETITEM, "name is of type tuple, not text"),
    "a key that is a tensor": (DICT + tensor() + tensor() + SETITEM, "name is of type TensorRef, not text"),
    "keys that collide": (DICT + number((1 << 61) - 1) + tensor() + SETITEM, "name is of type int, not text"),
    "a key that is an object": (table({"model": table({"w": tensor()})}) + name("my", "Text") + EMPTY + b"\x81" + NONE
                                + SETITEM, "has a key that is class my.Text"),
    # stack, memo, ends
    "underflow": (b"s", "empty stack"),
    "underflow below a mark": (DICT + MARK + W + b"\x86" + TUPLE, "empty stack"),
    "no MARK": (DICT + W + W + SETITEMS, "no MARK"),
    "open MARK at the end": (MARK + DICT, "other than one object"),
    "two objects": (DICT + DICT, "other than one object"),
    "no objects": (b"", "other than one object"),
    "recall of nothing": (b"h\x07", "never stored"),
    "long recall of nothing": (b"j\xff\xff\xff\xff", "never stored"),
    "a list inside itself": (LIST + b"q\x00h\x00a", "contains itself"),
    "a dict inside itself": (DICT + b"q\x00" + W + MARK + b"h\x00" + TUPLE + SETITEM, "contains itself"),
    "memo bomb": (doubling(60), "unfolds to more"),
    "deep by sharing": (deep_twice(MAX_DEPTH * 2 // 3), "deep"),
    "deep by marks": (MARK * (MAX_DEPTH + 1), "deep"),
    "deep by tuples": (NONE + b"\x85" * 100_000, "deep"),
    "deep by appending": (LIST * 100_000 + APPEND * 99_999, "deep"),
    # lengths and text
    "text longer than the file": (b"X" + struct.pack("<I", 2**32 - 1) + b"abc", "are left"),
    "integer longer than the file": (b"\x8a\xff\x01", "are left"),
    "float cut short": (b"G\x00", "are left"),
    "memo index cut short": (DICT + b"r\x00", "are left"),
    "text that is not UTF-8": (b"X\x02\x00\x00\x00\xc3\x28", "not UTF-8"),
    "half a surrogate": (b"X\x03\x00\x00\x00\xed\xa0\x80", "not UTF-8"),
    "a global without end": (b"cos", "no end"),
    "a global that is not UTF-8": (b"c\xff\xfe\nx\n", "not UTF-8"),
    "a global of 1 MB": (b"c" + b"a" * 1_000_000 + b"\nx\n", "no end"),
    # persistent ids
    "a persistent id with a path": (table({"w": tensor(source=storage("../../etc/passwd"))}), "not a number"),
    "a persistent id with digits of another script": (table({"w": tensor(source=storage("\u0663"))}), "not a n"),
    "an empty key": (table({"w": tensor(source=storage(""))}), "not a number"),
    "another tag": (table({"w": tensor(source=storage(tag="module"))}), "persistent id"),
    "a pid that is text": (text("0") + PERSID, "persistent id"),
    "a pid of four": (tuple_of(text("storage"), text("0"), text("cpu"), number(1)) + PERSID, "persistent id"),
    "a pid whose class is text": (tuple_of(text("storage"), text("FloatStorage"), text("0"), text("cpu"), number(6))
                                  + PERSID, "persistent id"),
    "a pid as a list": (LIST + storage()[:-2] + b"e" + PERSID, "persistent id"),
    "a pid with a bool": (tuple_of(text("storage"), name("torch", "FloatStorage"), text("0"), text("cpu"), b"\x88")
                          + PERSID, "persistent id"),
    "a storage class that is not torch's": (tuple_of(text("storage"), name("os", "FloatStorage"), text("0"),
                                                     text("cpu"), number(6)) + PERSID, "os.FloatStorage"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "fragment"),
    [
        *((pickle.dumps({"a": [1, 2]}, protocol), "protocol 2") for protocol in (0, 1, 3, 4)),
        (b"", "protocol 2"),
        (forge.GOOD_PICKLE[:-1], "without STOP"),
        (forge.GOOD_PICKLE + STOP, "1 bytes follow"),
    ],
)
def test_ends_of_a_pickle(raw: bytes, fragment: str, tmp_path: Path) -> None:
    refuse_bytes(tmp_path, archive(raw), fragment)


def test_too_many_opcodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.pickle_machine.MAX_OPCODES", 1000)
    refuse_bytes(tmp_path, archive(pickled(DICT + (NONE + b"q\x00") * 600)), "more than 1000 opcodes")
    assert MAX_OPCODES >= 60_000, "a full-size checkpoint has that many"


def test_a_pickle_over_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.torch_file.MAX_PICKLE_BYTES", 50)
    refuse_bytes(tmp_path, archive(), "data.pkl of")


def test_too_many_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.pickle_machine.MAX_TENSORS", 1)
    refuse_bytes(tmp_path, archive(pickled(table({"a": tensor(), "b": tensor()}))), "more than 1 tensors")


class _Evil:
    """Unpickled for real, leaves a file behind."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def test_nothing_is_run(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    raw = pickle.dumps({"w": _Evil(str(proof))}, 2)
    refuse_bytes(tmp_path, archive(raw), "posix.mkdir" if sys.platform != "win32" else "nt.mkdir")
    assert not proof.exists()
    pickle.Unpickler(io.BytesIO(raw)).load()
    assert proof.exists(), "the file would have run code in another reader"


OBJECTS = {"NEWOBJ", "OBJ", "INST", "POP", "POP_MARK"}
PYTHON_2 = {"SHORT_BINSTRING", "BINSTRING", "INT"}


def test_every_opcode_of_the_table_is_used(tmp_path: Path) -> None:
    """The table holds what torch writes for tensors, what objects add, what Python 2 wrote, and nothing else."""
    import pickletools
    import zipfile

    import torch

    from wdport.checkpoint.pickle_machine import _OPCODES

    path = tmp_path / "all.pt"
    many = {str(index): index for index in range(300)}
    state: OrderedDict[str, object] = OrderedDict(w=torch.nn.Parameter(torch.zeros(2, 3)))
    vars(state)["_metadata"] = OrderedDict()
    odds = [None, True, False, -1, 1, 300, 2**40, 0.5, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [1], torch.Size([2])]
    late = [1]
    torch.save({"model": state, "odds": odds, "many": many, "one": {"a": 1}, "late": late, "again": late}, path)
    with zipfile.ZipFile(path) as opened:
        raw = opened.read("all/data.pkl")
    used = {opcode.name for opcode, _, _ in pickletools.genops(raw)}
    known = {opcode.name for opcode in pickletools.opcodes if ord(opcode.code) in _OPCODES}
    assert used | OBJECTS | PYTHON_2 == known | {"PROTO", "STOP"}
    assert len(used) == 31
