"""HDF5 is never told that a disk is full: the process goes on, and says so itself."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from wdport.files.keras_file import ArchiveWriter, QuietFile, WeightsWriter, quiet_hdf5
from wdport.files.model_files import read_variables

SHAPES = {f"layer_{i}/kernel": (40, i + 1) for i in range(30)}
ARRAYS = {name: np.full(shape, i, np.float32) for i, (name, shape) in enumerate(SHAPES.items())}


def write(path: Path) -> None:
    archive = path.suffix == ".keras"
    writer = ArchiveWriter(path, SHAPES, "{}") if archive else WeightsWriter(path, SHAPES)
    try:
        for name, array in ARRAYS.items():
            writer.write(name, array)
        writer.finish("a manifest")
    finally:
        writer.close()


def with_room(monkeypatch: pytest.MonkeyPatch, room: int, code: int) -> None:
    """Writing beyond ``room`` bytes is refused, after a part of the last piece was taken."""
    write_at = os.pwrite

    def pwrite(file: int, data: Any, position: int) -> int:
        if position >= room:
            raise OSError(code, os.strerror(code))
        return write_at(file, data[: room - position], position)

    monkeypatch.setattr(os, "pwrite", pwrite)


@pytest.mark.parametrize(("name", "code"), [("a.keras", errno.ENOSPC), ("a.weights.h5", errno.EIO)])
def test_a_refusal_at_every_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    write(tmp_path / name)
    assert all(np.array_equal(array, ARRAYS[key]) for key, array in read_variables(tmp_path / name, SHAPES))
    size = (tmp_path / name).stat().st_size
    for room in range(0, size - 4096, 1500):
        with monkeypatch.context() as patch:
            with_room(patch, room, code)
            with pytest.raises(OSError, match=os.strerror(code)):
                write(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_could_not_be_written_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As HDF5 does with its own tables."""
    file = QuietFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT))
    with_room(monkeypatch, 6, errno.ENOSPC)
    for position, data in ((0, b"abcd"), (4, b"efgh"), (2, b"CDEF"), (12, b"z")):
        file.seek(position)
        file.write(memoryview(data))
    assert file.seek(0, os.SEEK_END) == 13
    file.seek(1)
    assert file.read(20) == b"bCDEFgh\0\0\0\0z"
    with pytest.raises(OSError, match="No space left"):
        file.check()
    file.close()


CROWDED = """
import resource, sys
import h5py, numpy
from wdport.files.keras_file import quiet_hdf5
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    with quiet_hdf5():
        file = h5py.File(sys.argv[1], "w")
        for i in range(100):
            file[f"{i}/x"] = numpy.zeros(1000)
        file.close()
except OSError as error:
    sys.exit(error.errno)
"""


def test_a_library_that_opens_the_file_by_its_name(tmp_path: Path) -> None:
    """Against the kernel's own limit; without the helper the process ends by a signal."""
    command = [sys.executable, "-c", CROWDED, str(tmp_path / "a.h5")]
    assert subprocess.run(command, check=False).returncode == errno.EFBIG
    command[2] = CROWDED.replace("with quiet_hdf5():", "if True:")
    bare = subprocess.run(command, check=False, capture_output=True).returncode
    assert bare not in (0, errno.EFBIG), "HDF5 bears a full disk by now: wdport need not shelter it"


def test_a_library_that_leaves_the_file_open(tmp_path: Path) -> None:
    """As Keras does when its model cannot be written."""
    with pytest.raises(ValueError, match="mine"), quiet_hdf5():  # noqa: PT012
        h5py.File(tmp_path / "a.h5", "w")["x"] = 1
        raise ValueError("mine")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["x"][()] == 1
    assert not [
        each for each in os.listdir("/proc/self/fd") if str(tmp_path) in os.path.realpath(f"/proc/self/fd/{each}")
    ]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell has SIGINT ignored in what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_waits(tmp_path: Path) -> None:
    """HDF5 is not told of it either."""
    with pytest.raises(KeyboardInterrupt), quiet_hdf5():  # noqa: PT012
        file = h5py.File(tmp_path / "a.h5", "w")
        signal.raise_signal(signal.SIGINT)
        file["x"] = 1
        file.close()
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["x"][()] == 1
