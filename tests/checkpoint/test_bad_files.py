"""Paths that cannot be read and files of another kind."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from tests.bad.series import npy
from wdport.base.errors import InputError, MachineError
from wdport.checkpoint import open_checkpoint

from .bad import refuse
from .forge import archive, in_tar, tarred

LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
FILES = {
    "empty": (b"", "is empty"),
    "text": (b"epoch 1 loss 0.5\n", "text file"),
    "text of another script": ("\u00e9poque \u6a21\u578b\n".encode() * 100, "text file"),
    "json": (b'{"a": 1}', "text file"),
    "html": (b"\n<!DOCTYPE html><html></html>", "HTML page"),
    "html without doctype": (b"<HTML lang=en>", "HTML page"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
    "gzip": (gzip.compress(archive()), "gunzip"),
    "xz": (lzma.compress(archive()), "unxz"),
    "bz2": (bz2.compress(archive()), "bunzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd\x00\x00", "unzstd"),
    "7z": (b"7z\xbc\xaf\x27\x1c\x00\x04", "7z"),
    "tar": (tarred(in_tar("notes.txt", archive())), "an archive without a checkpoint"),
    "hdf5": (b"\x89HDF\r\n\x1a\n\x00\x00", "HDF5"),
    "gguf": (b"GGUF\x03\x00\x00\x00", "GGUF"),
    "npy": (npy(np.zeros(3)), "numpy array"),
    "onnx": (b"\x08\x07\x12\x07pytorch\x1a\x032.0\xff\xfe\x00", "ONNX"),
    "legacy, cut": (LEGACY, "needs 2 bytes, but 0 are left"),
    "tar before 0.1.10": (tarred(in_tar("sys_info", b"x"), in_tar("pickle", b"y")), "torch before 0.1.10"),
    "bare pickle": (b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00N.", "bare pickle"),
    "zeros": (bytes(5000), "neither a PyTorch nor a safetensors file"),
    "noise": (bytes(range(128, 256)) * 20, "neither a PyTorch nor a safetensors file"),
}


def test_name_too_long(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        open_checkpoint(tmp_path / ("x" * 5000))


def test_zero_byte_in_the_path() -> None:
    with pytest.raises(InputError, match="zero byte"):
        open_checkpoint("a\0b")


def test_pipe_that_takes_the_place_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "pipe.pt", tmp_path / "regular"
    os.mkfifo(path)
    other.touch()
    regular, real = os.stat(other), os.stat
    monkeypatch.setattr("os.stat", lambda asked, **kw: regular if asked == path else real(asked, **kw))
    refuse(path, "is a named pipe")


@pytest.mark.parametrize(
    ("error", "fragment"),
    [
        (PermissionError(13, "Permission denied"), "permission denied"),
        (OSError(24, "Too many open files"), "ulimit"),
        (OSError(5, "Input/output error"), "reading failed"),
    ],
)
def test_refused_by_the_machine(error: OSError, fragment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(archive())

    def refusing(*_: object) -> int:
        raise error

    monkeypatch.setattr("wdport.checkpoint.source.os.open", refusing)
    refuse(path, fragment, MachineError)


def test_unreadable_for_real(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path = tmp_path / "model.pt"
    path.write_bytes(archive())
    path.chmod(0)
    refuse(path, "permission denied", MachineError)


def test_descriptors_are_closed_after_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "bad.pt"
    path.write_bytes(archive()[:-1])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        refuse(path, "end record")
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_of_one_and_two_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    for first in range(256):
        for rest in (b"", b"\0", b"\x08", b"\xff"):
            path.write_bytes(bytes([first]) + rest)
            with pytest.raises(InputError):
                open_checkpoint(path)
