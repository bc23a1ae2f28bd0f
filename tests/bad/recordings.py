"""Bad recordings, for ``verify --against``, and bad parts of an interrupted run, for ``sample``."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.bad.case import Bad, Content, flipped, half
from tests.bad.damage import members, packed
from tests.bad.ground import recording
from tests.bad.interrupt import interrupt
from tests.bad.series import npy, npz

AGAINST = ("verify good.keras --against bad.run.npz",)
MORE = ("sample good.keras --sampler ddim --steps 2 -n 4 --chunk 2 --batch-size 2 --seed 3 -o out.npz",)


def reindexed(change: Callable[[dict[str, Any]], object]) -> Content:
    """The good recording with another index."""

    def make(path: Path) -> None:
        contents = members(recording().read_bytes())
        index = json.loads(np.load(io.BytesIO(contents["index.npy"])).tobytes())
        change(index)
        contents["index.npy"] = npy(np.frombuffer(json.dumps(index).encode(), np.uint8))
        path.write_bytes(packed(contents))

    return make


def _copied(change: Callable[[bytes], bytes]) -> Content:
    return lambda path: path.write_bytes(change(recording().read_bytes()))


RECORDINGS: dict[str, Content] = {
    "empty": b"",
    "an archive of nothing": b"PK\5\6" + bytes(18),
    "an array alone": npy(np.zeros(3)),
    "the first half": _copied(half),
    "minus the last byte": _copied(lambda data: data[:-1]),
    "one bit of the index": _copied(lambda data: flipped(data, (data.index(b'"schema"') + 20) / len(data))),
    "no cases": reindexed(lambda index: index.update(cases=[])),
    "no names": reindexed(lambda index: index.pop("names")),
    "tensors of another model": reindexed(lambda index: index.update(tensors={"a": index["tensors"].popitem()[1]})),
    "no tensors": reindexed(lambda index: index.update(tensors={})),
    "tensors of other shapes": reindexed(lambda index: next(iter(index["tensors"].values())).update(shape=[1, 2])),
    "a shape of 10^12": reindexed(lambda index: next(iter(index["tensors"].values())).update(shape=[10**12])),
    "other weights": reindexed(lambda index: [each.update(sha256="0" * 64) for each in index["tensors"].values()]),
    "hashes that are lists": reindexed(lambda index: [each.update(sha256=[1]) for each in index["tensors"].values()]),
}
"""Others are given to the reader itself in tests/parity/test_bad_recordings.py."""

LATE = {"no cases": 6, "tensors of another model": 4, "no tensors": 4, "tensors of other shapes": 4,
        "a shape of 10^12": 4, "other weights": 4, "hashes that are lists": 4}  # fmt: skip


def _recordings() -> dict[str, Bad]:
    rows = {}
    for name, content in RECORDINGS.items():
        code = (LATE[name], 3) if name in LATE else 3
        rows[f"recording: {name}"] = Bad(AGAINST, code, "*", {"bad.run.npz": content}, builds=True)
    rows["recording: missing"] = Bad(AGAINST, 3, "bad.run.npz: no such file; check the path", {}, builds=True)
    return rows


def parts(change: Callable[[Path], object]) -> Content:
    """The folder of an interrupted run of :data:`MORE`, its first part changed."""

    return lambda folder: change(interrupt(folder.parent, MORE[0]))


def _first(folder: Path) -> Path:
    return next(path for path in sorted(folder.iterdir()) if path.suffix == ".npz")


def _block(folder: Path) -> dict[str, np.ndarray]:
    with np.load(_first(folder)) as archive:
        return {name: archive[name] for name in archive.files}


def _rewritten(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        block = _block(folder)
        change(block)
        _first(folder).write_bytes(npz(**block))

    return make


def _run(text: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "run.json").write_bytes(text)


def _piped(folder: Path) -> None:
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")


def _linked(folder: Path) -> None:
    part = _first(folder)
    part.unlink()
    part.symlink_to("/dev/zero")


def _all(value: float) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda block: block.update({name: np.full_like(array, value) for name, array in block.items()})


PARTS: dict[str, tuple[Callable[[Path], object], int | tuple[int, ...]]] = {
    "cut": (lambda folder: _first(folder).write_bytes(half(_first(folder).read_bytes())), 3),
    "empty": (lambda folder: _first(folder).write_bytes(b""), 3),
    "text": (lambda folder: _first(folder).write_bytes(b"hello"), 3),
    "of code": (lambda folder: _first(folder).write_bytes(npz(coefficients=np.array([None]))), 3),
    "one bit": (lambda folder: _first(folder).write_bytes(flipped(_first(folder).read_bytes(), 1 / 3)), 3),
    "of 777": (_rewritten(_all(777.0)), 3),
    "of NaN": (_rewritten(_all(np.nan)), 3),
    "float64": (_rewritten(lambda b: b.update({n: a.astype(np.float64) for n, a in b.items()})), 3),
    "of another shape": (_rewritten(lambda b: b.update({n: a[:, :-1] for n, a in b.items()})), 3),
    "of fewer rows": (_rewritten(lambda b: b.update({n: a[:1] for n, a in b.items()})), 3),
    "of more arrays": (_rewritten(lambda b: b.update(more=np.zeros(2))), 3),
    "of fewer arrays": (_rewritten(lambda b: b.popitem()), 3),
    "endless": (_linked, 3),
    "no run.json": (lambda folder: (folder / "run.json").unlink(), 3),
    "run.json empty": (_run(b""), 3),
    "run.json cut": (_run(b'{"n": 4'), 3),
    "run.json a list": (_run(b"[]"), 3),
    "run.json deep": (_run(b"[" * 100_000), 3),
    "run.json deep in a value": (_run(b'{"n": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"), (2, 3)),
    "run.json not text": (_run(b"\xff\xfe"), 3),
    "run.json of another run": (_run(b'{"n": 5}'), (2, 3)),
    "run.json a pipe": (_piped, 3),
}


def _parts() -> dict[str, Bad]:
    return {
        f"part: {name}": Bad(MORE, code, "out.npz.parts*", {"out.npz.parts": parts(change)}, name == "endless", True)
        for name, (change, code) in PARTS.items()
    }


def recordings() -> dict[str, Bad]:
    """The rows."""
    return {**_recordings(), **_parts()}
