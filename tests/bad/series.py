"""Bad data: series to compute statistics from, the statistics themselves, known values and states to start from."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import Any

import numpy as np
import scipy.io

from tests.bad.case import Bad, Content
from tests.uses.data import test_text


def npy(array: object) -> bytes:
    """An array as a file."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


def npz(**arrays: Any) -> bytes:
    """An archive of arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def mat(**arrays: Any) -> bytes:
    """A file of MATLAB 5."""
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, arrays)
    return buffer.getvalue()


def huge(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """An ``.npy`` file that declares a shape and holds eight bytes."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape!r}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8)


def bomb(name: str, size: int) -> bytes:
    """A zip archive of one member that unpacks to ``size`` zeros."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        file = archive.open(name, "w")
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
        file.close()
    return buffer.getvalue()


CALL = b"__import__('os').system('touch canary')"
GRID = np.arange(6.0).reshape(3, 2)
SERIES: dict[str, tuple[str, Content, str]] = {
    "csv, UTF-16": ("csv", "a,b\n1,2\n".encode("utf-16"), "*"),
    "csv, zeros": ("csv", bytes(1000), "*"),
    "csv, control characters": ("csv", b"a,\x1b[31m\n1,x\n2,3\n", "*"),
    "npy, empty": ("npy", b"", "*"),
    "npy, cut": ("npy", npy(GRID)[:-8], "*"),
    "npy, magic alone": ("npy", npy(GRID)[:6], "*"),
    "npy, version 9": ("npy", b"\x93NUMPY\x09" + npy(GRID)[7:], "*"),
    "npy, a header of code": ("npy", b"\x93NUMPY\x01\x00\x30\x00" + CALL.ljust(48), "*"),
    "npz, empty": ("npz", npz(), "has no array*"),
    "npz, one array": ("npz", npy(GRID), "holds a single array*"),
    "npz, cut": ("npz", npz(a=GRID)[:-30], "is not a .npz file, or is damaged *"),
    "npz, a damaged member": ("npz", npz(a=GRID).replace(GRID.tobytes(), GRID[::-1].tobytes()), "*"),
    "npz, no array in it": ("npz", bomb("a.txt", 0), "*"),
    "mat, empty": ("mat", b"", "*"),
    "mat, cut": ("mat", mat(x=GRID)[:-20], "*"),
    "mat, no series": ("mat", mat(rate=2.5), "has no array of numbers over time*"),
    "mat, zeros": ("mat", bytes(300), "*"),
}  # fmt: skip
"""Others are given to the readers themselves in tests/uses/data."""


def _series() -> dict[str, Bad]:
    rows = {}
    for name, (ending, content, line) in SERIES.items():
        file = f"bad.{ending}"
        command = f"convert good.ckpt --data {file} -o out.keras"
        rows[f"data: {name}"] = Bad((command,), 3, f"{file}: {line}", {file: content})
    for number, (text, message) in enumerate(test_text.ARFF_FAULTS):
        data = text if isinstance(text, bytes) else text.encode()
        command = "convert good.ckpt --data bad.arff -o out.keras"
        rows[f"data: arff {number}, {message}"] = Bad((command,), 3, f"bad.arff: *{message}*", {"bad.arff": data})
    return rows


def _statistics() -> dict[str, Bad]:
    command = "convert good.ckpt --norm-stats {} -o out.keras"
    rows = {}
    for name, (ending, content, line) in STATISTICS.items():
        file = f"bad.{ending}"
        rows[f"statistics: {name}"] = Bad((command.format(file),), 3, f"{file}: {line}", {file: content})
    three = json.dumps({"mean": [1, 2], "std": [1, 2]}).encode()
    rows["statistics: of another number of features"] = Bad(
        (command.format("bad.json"),), 4, "good.ckpt: *", {"bad.json": three}
    )
    return rows


STATISTICS: dict[str, tuple[str, Content, str]] = {
    "not text": ("json", b"\xff\xfe", "*"),
    "npz, no zip": ("npz", b"PK\3\4", "is not a .npz file*"),
    "npz, of code": ("npz", npz(mean=np.array([None]), std=np.array([None])), "*"),
    "npz, unpacks to 500 MB": ("npz", lambda path: path.write_bytes(bomb("mean.npy", 500 << 20)), "*"),
    "of another kind": ("txt", b"1 2", "is of an unknown kind*"),
}


def _states() -> dict[str, Bad]:
    """What ``sample`` starts from or is held to."""
    rows = {}
    for name, (option, ending, content, code, line) in STATES.items():
        file = f"bad.{ending}"
        command = f"sample good.keras --sampler ddim --steps 2 --{option} {file} -o out.npz"
        rows[f"{option}: {name}"] = Bad((command,), code, line, {file: content}, builds=True)
    return rows


STATES: dict[str, tuple[str, str, Content, int, str]] = {
    "of text": ("init", "npy", b"hello", 3, "bad.npy: *"),
    "of code": ("init", "npy", npy(np.array([None])), 3, "bad.npy: *"),
    "cut": ("init", "npy", npy(np.zeros((2, 31, 3), np.float32))[:-9], 3, "bad.npy: *"),
    "8 TB": ("init", "npy", huge((10**9, 31, 33)), 3, "bad.npy: *"),
    "of another shape": ("init", "npy", npy(np.zeros((2, 30, 3), np.float32)), 2, "*bad.npy*"),
    "not finite": ("init", "npy", npy(np.full((2, 31, 3), np.nan, np.float32)), 2, "*"),
    "none": ("init", "npy", npy(np.zeros((0, 31, 3), np.float32)), 2, "*"),
    "empty": ("known", "csv", b"", 3, "bad.csv: *"),
    "ragged": ("known", "csv", b"a,b,c\n1,2,3\n4,5\n", 3, "bad.csv: line 3: *"),
    "of other features": ("known", "csv", b"a,b\n" + b"1,2\n" * 24, 2, "--known: has shape (24, 2)*"),
    "infinite": ("known", "npy", npy(np.full((24, 3), np.inf)), 2, "--known: has infinite values*"),
    "far away": ("known", "npy", npy(np.full((24, 3), 1e30)), 2, "--known: has a value *"),
    "of another kind": ("known", "mat", b"x", 3, "bad.mat: is of an unknown kind*"),
}


def series() -> dict[str, Bad]:
    """The rows."""
    return {**_series(), **_statistics(), **_states()}
