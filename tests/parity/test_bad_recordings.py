"""Damaged and hostile recordings: every difference in what is read is an error of one type, soon, in little memory."""

from __future__ import annotations

import io
import json
import os
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fuzz.mutators import mutant
from wdport.base.errors import InputError, MachineError
from wdport.compare.calls import Case
from wdport.parity.recorded_reference import Replay, open_recording
from wdport.recording.recording_writer import SCHEMA

MUTANTS = int(os.environ.get("WDPORT_MUTANTS", "300"))
"""3,000 take a minute."""

Index = dict[str, Any]
Change = Callable[[Index, dict[str, bytes]], object]


def packed(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), version, allow_pickle=True)
    return stream.getvalue()


def made() -> tuple[Index, dict[str, bytes]]:
    """A recording of two layers in two cases, with everything that a recording can have."""
    draw = np.random.default_rng(0).standard_normal
    members = {f"{number}.npy": packed(draw((4, 3))) for number in range(8)}
    members |= {"8.npy": packed(draw((4, 3)).astype(np.float32)), "9.npy": packed(np.arange(4)), "10.npy": packed(2.5)}
    calls = {"a": [["0", ["1", "9"]], ["2"], "", ["x", "y"]], "b#2": [["2:d"], ["3"], "a", []]}
    single = {"inputs": ["0:s", "9"], "outputs": [["8"], ["4"]], "isolated": [[["5:s"], calls], [["5"], calls]]}
    spread = {"fed": [0.5, 1], "made": [0.25, 2.0], "running": [0.125, 3.0]}
    case = {"seed": 0, "batch": 4, "scale": 1.0, "random_biases": False, "inputs": ["0", "9"], "outputs": ["3"],
            "names": ["y"], "calls": calls, "single": single,
            "conditioning": {"float32": [{"a": spread}, ["6"]], "bfloat16": [{"a": spread}, ["7"]]}}  # fmt: skip
    index: Index = {
        "schema": SCHEMA, "reference": "net:build", "checkpoint": {"name": "a.ckpt", "sha256": "0" * 64},
        "environment": {"python": "3.11", "torch": "2.6", "numpy": "2.0", "torch_matmul": "highest"},
        "evaluating": True, "names": ["a", "b"], "repeats": True, "notes": ["a note"],
        "tensors": {"a.weight": {"shape": [4, 3], "dtype": "float32", "sha256": "1" * 64},
                    "b.table": {"shape": [], "dtype": "float16", "sha256": None}},
        "shifts": {"a.bias": "10"}, "sweeps": {"a": ["0", "0:s", "1"]}, "values": {"a.weight": "8"},
        "cases": [case, {**case, "seed": 1, "random_biases": True, "single": None}],
    }  # fmt: skip
    return index, members


def write(path: Path, index: Index, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    members = {"index.npy": packed(np.frombuffer(json.dumps(index).encode(), np.uint8)), **members}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            with archive.open(zipfile.ZipInfo(name) if method == zipfile.ZIP_STORED else name, "w") as member:
                member.write(data)
    return path


def told(value: Any) -> Any:
    """With every array as its dtype, shape and bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return [(str(key), told(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [told(each) for each in value]
    return told(astuple(value)) if hasattr(value, "__dataclass_fields__") else value


def everything(path: Path) -> Any:
    """All that is ever read of a recording."""
    with open_recording(path) as recording:
        replay = Replay(recording)
        seen: list[Any] = [recording.tensors, recording.names, recording.values, recording.sweeps(), replay.code]
        seen += [replay.shifts, replay.evaluating, replay.environment, replay.notes, replay.findings]
        for case in recording.cases:
            seen += [case, recording.observation(case)]
            seen += [recording.conditioning(case, dtype) for dtype in ("float32", "bfloat16")]
        return told(seen)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return write(tmp_path / "sound.npz", *made())


def refused(path: Path) -> str:
    """The message, which comes soon and in little memory."""
    size = os.path.getsize(path) if path.is_file() else 0
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises((InputError, MachineError)) as raised:
        everything(path)
    spent, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert raised.value.exit_code == 3
    assert len(str(raised.value)) - len(str(path)) <= 240
    assert spent < 5.0, "tracing takes several times as long as reading"
    assert peak < size + (64 << 20)
    return str(raised.value)


def test_a_sound_one_is_read(sound: Path) -> None:
    seen = everything(sound)
    assert everything(sound) == seen
    with open_recording(sound) as recording:
        assert list(recording.cases) == [Case(0, 4, 1.0, False), Case(1, 4, 1.0, True)]


def test_one_that_does_not_repeat_itself_says_so(tmp_path: Path) -> None:
    index, members = made()
    write(tmp_path / "odd.npz", {**index, "repeats": False, "evaluating": False}, members)
    with open_recording(tmp_path / "odd.npz") as recording:
        assert Replay(recording).findings == ["the reference does not repeat itself bit for bit"]
        assert not Replay(recording).evaluating


def test_a_change_is_an_error_or_makes_no_difference(sound: Path, tmp_path: Path) -> None:
    """The same as when sound, or an InputError; what makes no difference is the date of a member and the like."""
    raw, seen, same = sound.read_bytes(), everything(sound), 0
    for seed in range(MUTANTS):
        (tmp_path / "mutant.npz").write_bytes(mutant([raw], 0, seed)[1])
        started = time.process_time()
        try:
            assert everything(tmp_path / "mutant.npz") == seen, f"mutant {seed} is read as another recording"
            same += 1
        except InputError:
            pass
        assert time.process_time() - started < 1.0, seed
    assert same < MUTANTS / 10


def on(path: str, value: Any) -> Change:
    """A change of the index: ``value`` at a path such as "cases/0/seed"."""

    def change(index: Index, members: dict[str, bytes]) -> None:
        *before, last = path.split("/")
        node: Any = index
        for step in before:
            node = node[int(step)] if isinstance(node, list) else node[step]
        node[int(last) if isinstance(node, list) else last] = value

    return change


ODD: list[tuple[str, Any]] = [
    *(("schema", value) for value in (True, 3.0, "3", 2, None)),
    *(("cases/0/seed", value) for value in (0.5, "0", True, -1, None, [0], 1e400, 1 << 80)),
    *(("cases/0/batch", value) for value in (4.5, "4", True)),
    *(("cases/0/scale", value) for value in ("1", True, None, 1e400)),
    *(("cases/0/random_biases", value) for value in (0, "false", None, [])),
    *(("evaluating", value) for value in (1, "true", None)),
    *(("repeats", value) for value in (1, "true", None)),
    *(("names", value) for value in ("ab", {"a": 1}, [1], None)),
    *(("notes", value) for value in ("ab", [1], None)),
    *(("reference", value) for value in (1, None, ["a"])),
    *(("environment/torch", value) for value in (2, None)),
    *(("tensors/a.weight/shape", value) for value in ([4.0, 3], [-1], ["4"], "43", [1] * 40, [1 << 70], None, [True])),
    *(("tensors/a.weight/dtype", value) for value in (1, None)),
    *(("tensors/a.weight/sha256", value) for value in (1, "", "g" * 64, [], "1" * 63)),
    *(("tensors", value) for value in ([], None, {"a": []}, {"a": {}})),
    *(("values/a.weight", value) for value in (8, ["8"], "8:s", "8:d", "08", "8:", "8:sp", "-1", "99", " 8", "٨")),
    *(("shifts/a.bias", value) for value in (10, None, "10 ", ["10"])),
    *(("sweeps/a", value) for value in ("0", ["0"], ["0", "0", 1], ["0"] * 4, None)),
    *(("cases/0/inputs", value) for value in ("09", [["0"]], {"0": 1}, None)),
    *(("cases/0/outputs", value) for value in ([None], [["3"]], "3")),
    *(("cases/0/calls", value) for value in ([], {"a": []}, {"a": "0123"}, {"a": [[], [], 0, []]}, None)),
    *(("cases/0/single", value) for value in ([], {}, False, 0)),
    *(("cases/0/single/isolated", value) for value in ([], [[[], {}]], None)),
    *(("cases/0/conditioning/float32", value) for value in ([], [{}, []] * 2, [{"a": {"other": [0, 0]}}, []], None)),
    *(("cases/0/conditioning/float32/0/a/fed", value) for value in ([0], [0, "1"], [0, -1], [0, 1e400], [True, 0], 0)),
    ("cases/1/seed", None), ("cases", []), ("cases", {}), ("cases", [1]), ("values", []), ("values", None),
]  # fmt: skip
MISSING = ("schema", "reference", "environment", "evaluating", "names", "tensors", "shifts", "sweeps", "cases",
           "repeats")  # fmt: skip


def test_values_of_wrong_types_are_refused(tmp_path: Path) -> None:
    for path, value in ODD:
        if (path, value) == ("cases", []):
            continue
        index, members = made()
        on(path, value)(index, members)
        said = refused(write(tmp_path / "odd.npz", index, members))
        assert "is not a valid recording" in said or path == "schema", path


def raw_index(text: bytes) -> Change:
    return lambda index, members: members.update({"index.npy": packed(np.frombuffer(text, np.uint8))})


def array(value: Any, version: tuple[int, int] = (1, 0)) -> Change:
    return lambda index, members: members.update({"3.npy": packed(value, version)})


def header(text: str, data: bytes = bytes(96)) -> Change:
    raw = f"{text}\n".encode()
    return lambda index, members: members.update(
        {"3.npy": b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw + data}
    )


ENDLESS = "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 99999999999), }"
HOSTILE: dict[str, tuple[Change, str]] = {
    "deep index": (raw_index(b"[" * 1_200_000), "too many items"),
    "deep index, few": (raw_index(b'{"a":' * 50_000), "not valid JSON"),
    "deep, valid": (raw_index(b'{"a":' + b"[" * 500 + b"]" * 500 + b"}"), "nested more than 100 deep"),
    "many items": (raw_index(b'{"a":[' + b"[]," * 2_000_000 + b"1]}"), "too many items"),
    "long number": (raw_index(b'{"schema":' + b"9" * 100_000 + b"}"), "not valid JSON"),
    "key twice": (raw_index(b'{"schema": 3, "schema": 3}'), "duplicate key"),
    "not a number": (raw_index(b'{"schema": NaN}'), "not valid JSON"),
    "no UTF-8": (raw_index(b'{"a": "\xff"}'), "not valid JSON"),
    "no object": (raw_index(b"3"), "not a JSON object"),
    "huge shape": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000000), }"), "size of"),
    "zero times huge": (header(ENDLESS, b""), "invalid shape"),
    "negative": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"), "not a numeric array"),
    "deep header": (header("(" * 60_000), "not a numeric array"),
    "called header": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (exit(),), }"), "not a numeric array"),
    "fortran": (array(np.asfortranarray(np.ones((4, 3)))), "not a numeric array"),
    "format 2": (array(np.ones((4, 3)), (2, 0)), "not a numeric array"),
    "complex": (array(np.ones((4, 3), complex)), "not a numeric array"),
    "objects": (array(np.array([{}])), "not a numeric array"),
    "text": (array(np.array(["a"])), "not a numeric array"),
    "dates": (array(np.array(["2020-01-01"], "M8[D]")), "not a numeric array"),
    "records": (array(np.zeros(2, [("a", "f8")])), "not a numeric array"),
    "long double": (array(np.ones(3, np.longdouble)), "not a numeric array"),
    "junk after": (lambda index, members: members.update({"3.npy": members["3.npy"] + b"more"}), "size of"),
    "foreign member": (lambda index, members: members.update({"evil.txt": b"x"}), "is not part of a recording"),
    "a path": (lambda index, members: members.update({"../../x.npy": b"x"}), "unsafe name"),
    "eight terabytes": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }", bytes(80)),
                        "not a numeric array"),
    "empty member": (lambda index, members: members.update({"3.npy": b""}), "not a numeric array"),
    "empty index": (lambda index, members: members.update({"index.npy": b"nothing at all"}), "not a numeric array"),
    **{f"no {name}": (lambda index, members, name=name: index.pop(name), f"KeyError: '{name}'") for name in MISSING},
    "the same case twice": (lambda index, members: on("cases/1", index["cases"][0])(index, members), "duplicate case"),
    "tensors in a list": (on("tensors", []), "not an object"),
    "reference to nothing": (on("cases/0/outputs", ["x"]), "has the invalid array reference 'x'"),
    "call cut short": (on("cases/0/calls/a", [["0"]]), "not a list of 4"),
    "member gone": (lambda index, members: members.pop("3.npy"), "has no array 3"),
    "rounded twice": (on("cases/0/calls/b#2/0", ["8:d"]), "rounds an array of float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_ones_are_refused(name: str, tmp_path: Path) -> None:
    change, said = HOSTILE[name]
    index, members = made()
    change(index, members)
    assert said in refused(write(tmp_path / "hostile.npz", index, members))


def test_archives_that_two_readers_see_differently(sound: Path, tmp_path: Path) -> None:
    index, members = made()
    assert "compressed" in refused(write(tmp_path / "deflated.npz", index, members, zipfile.ZIP_DEFLATED))
    twice = write(tmp_path / "twice.npz", index, members)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(twice, "a") as archive:
        archive.writestr("3.npy", packed(np.zeros((4, 3))))
    assert "duplicate zip member" in refused(twice)
    raw = bytearray(sound.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(mark) + at] |= 1
    (tmp_path / "encrypted.npz").write_bytes(raw)
    assert "encrypted" in refused(tmp_path / "encrypted.npz")
    (tmp_path / "before.npz").write_bytes(b"#!/bin/sh\n" + sound.read_bytes())
    (tmp_path / "after.npz").write_bytes(sound.read_bytes() + b"\0")
    for name in ("before.npz", "after.npz"):
        assert "is not a valid recording" in refused(tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "missing", "empty", "text"])
def test_only_regular_files_are_opened(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    makers: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(path), "endless": lambda: path.symlink_to("/dev/zero"), "folder": path.mkdir,
        "missing": lambda: None, "empty": path.touch, "text": lambda: path.write_text("hello " * 1000),
    }  # fmt: skip
    makers[kind]()
    said = {"pipe": "is a named pipe", "endless": "is a device", "folder": "is a directory", "missing": "no such file"}
    assert said.get(kind, "is not a valid recording") in refused(path)


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.parity.recording_file.MAX_RECORDED", 5)
    assert "more than are read" in refused(write(tmp_path / "many.npz", *made()))
