"""Bad converted files: of each format, for the verbs that read one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.bad.case import Bad, Content, changed, flipped, half
from tests.bad.damage import (
    ACCOUNT,
    BIAS,
    configured,
    edited,
    packed,
    repacked,
    with_member,
)
from tests.files.test_hdf5 import FOREIGN

ENDINGS = ("keras", "weights.h5", "safetensors")
EVERY = ("inspect {}", "sample {} -o out.npz", "export {} -o out.stablehlo", "verify good.ckpt {}")
"""Refused as soon as the file is looked at."""

DRAW = ("sample {} --sampler ddim --steps 2 -o out.npz",)
"""Refused when the variables are read."""


def _rows(name: str, endings: tuple[str, ...], commands: tuple[str, ...], content: Content | None, line: str = "*",
          child: bool = False, code: int | tuple[int, ...] = 3) -> dict[str, Bad]:  # fmt: skip
    rows = {}
    for ending in endings:
        file = f"bad.{ending}"
        rows[f"{ending}: {name}"] = Bad(
            tuple(command.format(file) for command in commands), code, f"{file}: {line}",
            {} if content is None else {file: content}, child, commands is DRAW,
        )  # fmt: skip
    return rows


def _of_good(change: Callable[[bytes], bytes]) -> Content:
    """The good file of the same ending, changed."""
    return lambda path: changed(path.name.replace("bad", "good"), change)(path)


KINDS: dict[str, Content | None] = {
    "missing": None,
    "empty": b"",
    "text": b"these are my weights\n",
    "an HTML page": b"<!DOCTYPE html><html><body>404</body></html>",
    "a git-lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    "zeros": bytes(4096),
    "a directory": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "first half": _of_good(half),
    "the first hundred bytes": _of_good(lambda data: data[:100]),
    "minus the last byte": _of_good(lambda data: data[:-1]),
}


def _kinds() -> dict[str, Bad]:
    rows: dict[str, Bad] = {}
    for name, content in KINDS.items():
        rows |= _rows(name, ENDINGS, EVERY, content)
    rows |= _rows("a named pipe", ENDINGS, EVERY, os.mkfifo)
    rows |= _rows("endless", ENDINGS, EVERY[:2], lambda path: path.symlink_to("/dev/zero"), child=True)
    for ending, other in zip(ENDINGS, (*ENDINGS[1:], ENDINGS[0]), strict=True):
        rows |= _rows(f"a .{other} file", (ending,), EVERY, changed(f"good.{other}", bytes))
    rows |= _rows("a checkpoint", ("keras", "weights.h5"), EVERY, changed("good.ckpt", bytes))
    rows["not a converted model"] = Bad(
        tuple(command.format("good.ckpt") for command in EVERY[1:3]),
        3,
        "good.ckpt: is not a converted model; convert it first (wdport convert, wdport.convert)",
        {},
    )
    return rows


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "heads as text": {"num_heads": "2"},
    "half a layer": {"num_layers": 1.5},
    "a width that is true": {"embed_dim": True, "num_heads": 1},
    "no levels": {"level_lengths": []},
    "an unknown boundary": {"boundary_mode": "open"},
    "a mean alone": {"norm_mean": [0.0, 0.0, 0.0]},
    "a std of zero": {"norm_mean": [0.0] * 3, "norm_std": [1.0, 0.0, 1.0]},
    "a mean that is NaN": {"norm_mean": [float("nan")] * 3, "norm_std": [1.0] * 3},
    "a name twice": {"feature_names": ["a", "b", "a"]},
    "a name that clears the screen": {"feature_names": ["a", "b", "\x1b[2J"]},
    "a name of 10^6 characters": {"feature_names": ["a", "b", "c" * 10**6]},
    "an unknown value": {"colour": "red"},
    "a value that runs": {"module": "os", "class_name": "system"},
    "10^400 time steps": {"seq_len": 10**400},
}
"""Some of the values that tests/uses/waveletdiff/test_config.py gives the reader itself."""

HEAVY: dict[str, dict[str, Any]] = {
    "10^9 layers": {"num_layers": 10**9},
    "a million levels": {"level_lengths": [5] * 10**6},
}


def _configurations() -> dict[str, Bad]:
    rows: dict[str, Bad] = {}
    for name, values in CONFIGURATIONS.items():
        rows |= _rows(f"config, {name}", ("keras",), EVERY, configured(values), "is not a model that wdport wrote (*")
    for name, values in HEAVY.items():
        rows |= _rows(f"config, {name}", ("keras",), EVERY[:1], configured(values), child=True)
    edited_account = _of_good(lambda data: data.replace(b"embed_dim", b"embed_Dim"))
    return rows | _rows("config, edited", ENDINGS[1:], EVERY, edited_account, "its manifest is damaged, was edited, *")


def _beside(add: Callable[[h5py.File], object]) -> Callable[[h5py.File], object]:
    """A group of an array ``ok`` and what ``add`` puts beside it."""

    def change(file: h5py.File) -> None:
        file["more/ok"] = np.ones(3, np.float32)
        add(file["more"])

    return change


def _instead(data: Any) -> Callable[[h5py.File], object]:
    def change(file: h5py.File) -> None:
        del file[BIAS]
        file[BIAS] = data

    return change


def _huge(file: h5py.File) -> None:
    del file[BIAS]
    file.create_dataset(BIAS, (10**12,), "f4", chunks=(1 << 20,))


def _deep(file: h5py.File) -> None:
    group = file["level_1"]
    for _ in range(2000):
        group = group.create_group("g")


def _many(file: h5py.File) -> None:
    for number in range(3000):
        file.create_dataset(f"extra/{number}", data=np.float32(1))


HDF5: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    **{f"with {name}": (_beside(add), said) for name, (add, said) in FOREIGN.items()},
    "one too many": (lambda file: file.create_dataset("level_1/more", data=1.0), "variables, but the model has"),
    "a group in its place": (lambda file: (file.__delitem__(BIAS), file.create_group(BIAS)), ""),
    "float64": (_instead(np.zeros(16, "f8")), ""),
    "integers": (_instead(np.zeros(16, "i4")), ""),
    "a soft link to itself": (_instead(h5py.SoftLink(f"/{BIAS}")), ""),
    "4 TB declared": (_huge, ""),
    "2,000 groups deep": (_deep, ""),
    "3,000 more": (_many, ""),
    "NaN": (_instead(np.full(16, np.nan, "f4")), ""),
    "infinity": (_instead(np.full(16, np.inf, "f4")), ""),
    "other values": (_instead(np.full(16, 777, "f4")), ""),
}


def _pipe_link(path: Path) -> None:
    """A link to a file that never answers."""
    os.mkfifo(path.with_name("pipe.h5"))
    edited(_instead(h5py.ExternalLink("pipe.h5", "/x")))(path)


def _zeroed(at: float, count: int = 8) -> Content:
    def change(data: bytes) -> bytes:
        place = int(len(data) * at) if at < 1 else int(at)
        return data[:place] + bytes(count) + data[place + count :]

    return _of_good(change)


def _hdf5() -> dict[str, Bad]:
    rows: dict[str, Bad] = {}
    for number, (name, (edit, said)) in enumerate(HDF5.items()):
        endings = (ENDINGS[number % 2],)  # one function reads the variables of both
        line = f"*{said}*" if said else "*"
        rows |= _rows(f"a variable, {name}", endings, DRAW, edited(edit), line, child=name in IN_CHILD)
    rows |= _rows("a variable, a link to a pipe", ("weights.h5",), DRAW, _pipe_link)
    for at in (8, 13, 14, 40, 48, 64, 96, 136, 680, 0.3, 0.9):
        rows |= _rows(f"zeros at {at}", ("weights.h5",), DRAW, _zeroed(at))
    return rows


IN_CHILD = {"4 TB declared", "2,000 groups deep", "with loop", "a soft link to itself"}

DEEP = b'{"config": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ARCHIVE: dict[str, tuple[Content, bool]] = {
    "config.json of another class": (with_member("config.json", b'{"class_name": "Sequential", "config": {}}'), False),
    "config.json of a lambda": (
        with_member("config.json", b'{"module": "keras.layers", "class_name": "Lambda", "config": {}}'), False),
    "config.json names code": (
        with_member("config.json", b'{"module": "os", "class_name": "system", "config": "touch canary"}'), False),
    "account empty": (with_member(ACCOUNT, b""), False),
    "account a list": (with_member(ACCOUNT, b"[]"), False),
    "account edited": (
        repacked(lambda held: {**held, ACCOUNT: held[ACCOUNT].replace(b"embed_dim", b"embed_Dim")}), False),
    "account a number": (with_member(ACCOUNT, b'{"wdport": 3}'), False),
    "account not JSON": (with_member(ACCOUNT, b'{"wdport": "{"}'), False),
    "account deep": (with_member(ACCOUNT, json.dumps({"wdport": DEEP.decode()}).encode()), False),
    "one bit of the weights": (_of_good(flipped), True),
    "one bit near the end of the weights": (_of_good(lambda data: flipped(data, 0.98)), True),
}  # fmt: skip
"""Others are given to the readers themselves in tests/files/test_keras_archive.py and tests/checkpoint."""


OTHERS = {"config.json of another class", "config.json of a lambda", "config.json names code"}
"""Damaged if the file has an account of ours, and otherwise no model of ours."""


def _archives() -> dict[str, Bad]:
    rows: dict[str, Bad] = {}
    for name, (content, late) in ARCHIVE.items():
        code = (3, 4) if name in OTHERS else 3
        rows |= _rows(f"archive, {name}", ("keras",), DRAW if late else EVERY, content, code=code)
    return rows | _rows("only an archive", ("keras",), EVERY, packed({"a": b""}))


def _turned(path: Path) -> None:
    """One bit of one weight is another, in whatever format."""
    with h5py.File(path.with_name("good.weights.h5")) as file:
        raw = np.ascontiguousarray(file["level_1/input_proj/vars/0"][()]).tobytes()
    data = bytearray(path.with_name(path.name.replace("bad", "good")).read_bytes())
    assert data.count(raw) == 1
    data[data.index(raw) + 2] ^= 1
    path.write_bytes(data)


def _values() -> dict[str, Bad]:
    """Another number in the weights, which only a checksum can tell."""
    rows = _rows("one bit of a weight", ENDINGS, DRAW, _turned)
    rows |= _rows("one bit of a weight, exported", ENDINGS, ("export {} -o out.stablehlo",), _turned)
    return {name: replace(row, builds=True) for name, row in rows.items()}


def converted() -> dict[str, Bad]:
    """The rows."""
    return {**_kinds(), **_configurations(), **_hdf5(), **_archives(), **_values()}
