"""Experiments: a checkpoint with its configuration, as a folder or an archive, and archives that attack the reader."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from wdport.base.errors import InputError, MachineError
from wdport.base.limits import MAX_ARCHIVE_BYTES
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.state_dict import EMA, RAW

from .forge import in_tar, tarred

CONFIG = b"model:\n  embed_dim: 8\n"


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    torch.save({"state_dict": {"a.weight": torch.arange(6.0).reshape(2, 3)}}, folder / "checkpoint.ckpt")
    (folder / "config.yaml").write_bytes(CONFIG)
    np.save(folder / "samples.npy", np.zeros((2, 3)))
    return folder


def packed(experiment: Path, mode: str, inner: str = "run") -> Path:
    path = experiment.parent / f"packed.{'tar.gz' if mode == 'w:gz' else 'tar'}"
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        archive.add(experiment, inner)
    return path


@pytest.mark.parametrize("make", [
    lambda folder: folder, lambda folder: folder / "checkpoint.ckpt", lambda folder: packed(folder, "w"),
    lambda folder: packed(folder, "w:gz"), lambda folder: packed(folder, "w:gz", "."),
])  # fmt: skip
def test_every_form_gives_the_weights_and_the_configuration(experiment: Path, make: Callable[[Path], Path]) -> None:
    with open_checkpoint(make(experiment)) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read("a.weight"), np.arange(6.0).reshape(2, 3))
        found = checkpoint.training_config
        assert found is not None
        assert found.data == CONFIG
        assert found.path.name == "config.yaml"
        alone = (experiment / "checkpoint.ckpt").read_bytes()
        assert checkpoint.file_sha256() == hashlib.sha256(alone).hexdigest()


def test_without_a_configuration(experiment: Path) -> None:
    (experiment / "config.yaml").unlink()
    for path in (experiment, packed(experiment, "w:gz")):
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.training_config is None


def test_several_checkpoints(experiment: Path) -> None:
    """That with the usual name is taken; without it the user chooses."""
    torch.save({"b": torch.ones(1)}, experiment / "last.ckpt")
    for path in (experiment, packed(experiment, "w")):
        with open_checkpoint(path) as checkpoint:
            assert list(checkpoint.tensors) == ["a.weight"]
    (experiment / "checkpoint.ckpt").rename(experiment / "best.ckpt")
    for path in (experiment, packed(experiment, "w")):
        with pytest.raises(InputError, match=r"several checkpoints: best\.ckpt, last\.ckpt"):
            open_checkpoint(path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_a_configuration_that_is_no_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / "checkpoint.ckpt")
    make(tmp_path / "config.yaml")
    with open_checkpoint(tmp_path) as checkpoint, pytest.raises(InputError, match="next to it is not a regular file"):
        _ = checkpoint.training_config


def test_a_changed_archive_is_noticed(experiment: Path) -> None:
    path = packed(experiment, "w")
    with open_checkpoint(path) as checkpoint:
        path.write_bytes(path.read_bytes() + b"\0")
        with pytest.raises(InputError, match="was changed while it was read"):
            checkpoint.require_unchanged()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_named(experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(experiment, "w")
    monkeypatch.setattr(tempfile, "tempdir", "/scratch")
    monkeypatch.setattr(tempfile, "TemporaryFile", partial(open, "/dev/full", "w+b"))
    with pytest.raises(MachineError, match=r"^/scratch: could not be written \(No space left on device\); free some"):
        open_checkpoint(path)


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


GOOD = in_tar("run/x.txt", b"text")
HOSTILE: dict[str, tuple[bytes, str]] = {
    "parent": (tarred(in_tar("../evil.ckpt", b"x")), "a member outside its folder"),
    "inner parent": (tarred(in_tar("run/../../evil.ckpt", b"x")), "a member outside its folder"),
    "absolute": (tarred(in_tar("/etc/evil.ckpt", b"x")), "a member outside its folder"),
    "symbolic link": (tarred(in_tar("run/checkpoint.ckpt", kind=tarfile.SYMTYPE, linkname="/etc/passwd")), "a link"),
    "hard link": (tarred(GOOD, in_tar("run/checkpoint.ckpt", kind=tarfile.LNKTYPE, linkname="run/x.txt")), "a link"),
    "device": (tarred(in_tar("run/null.ckpt", kind=tarfile.CHRTYPE)), "a link or a device"),
    "pipe": (tarred(in_tar("run/pipe.ckpt", kind=tarfile.FIFOTYPE)), "a link or a device"),
    "declared": (header("run/a.ckpt", MAX_ARCHIVE_BYTES + 1), "declares"),
    "ten gigabytes": (header("run/a.ckpt", 10 << 30) + b"\0" * 4096, "is a damaged"),
    "a long name": (header("././@LongLink", 1 << 33, tarfile.GNUTYPE_LONGNAME) + b"a" * (3 << 20), "has a header"),
    "a pax header": (header("pax", 1 << 33, tarfile.XHDTYPE) + b"9 path=a\n" * (1 << 18), "has a header"),
    "no checkpoint": (tarred(GOOD), "is an archive without a checkpoint"),
    "cut": (tarred(in_tar("run/checkpoint.ckpt", b"x" * 5000))[:2000], "is a damaged"),
    "not torch": (tarred(in_tar("run/checkpoint.ckpt", b"hello")), "is a text file, not a checkpoint"),
    "an archive inside": (tarred(in_tar("a.ckpt", tarred(GOOD))), "is a tar archive"),
    "empty": (b"\0" * 10240, "is"),
    "two of a name": (tarred(in_tar("a/config.yaml", b"a: 1"), in_tar("a/./config.yaml", b"b: 1")), "two members"),
    "two checkpoints": (tarred(in_tar("a.ckpt", b"x"), in_tar("./a.ckpt", b"y")), "two members of one name"),
}  # fmt: skip


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives(case: str, compressed: bool, tmp_path: Path) -> None:
    data, said = HOSTILE[case]
    path = tmp_path / "a.tar"
    path.write_bytes(gzip.compress(data, 1) if compressed else data)
    with pytest.raises(InputError, match=said):
        open_checkpoint(path)
    assert [each.name for each in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize(("make", "said"), [
    (lambda data: data[: len(data) // 2], "is a damaged archive|not a tar"),
    (lambda data: data[:200] + bytes([data[200] ^ 255]) + data[201:], "is a damaged|neither|gzip"),
    (lambda data: gzip.compress(b"not a tar"), "is gzip-compressed"),
])  # fmt: skip
def test_damaged_compression(experiment: Path, make: Callable[[bytes], bytes], said: str) -> None:
    path = packed(experiment, "w:gz")
    path.write_bytes(make(path.read_bytes()))
    with pytest.raises(InputError, match=said):
        open_checkpoint(path)


def test_an_average_beside_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "both.ckpt"
    torch.save({"state_dict": {"a": torch.zeros(2)}, "ema_state_dict": {"a": torch.ones(2)}}, path)
    with pytest.raises(InputError, match="2 candidates for the state_dict: state_dict, ema_state_dict; choose with "
                       "key='ema' or 'raw'"):  # fmt: skip
        open_checkpoint(path)
    for weights, value in ((EMA, 1.0), (RAW, 0.0)):
        with open_checkpoint(path, key=weights) as checkpoint:
            assert checkpoint.read("a").tolist() == [value, value]
    torch.save({"state_dict": {"a": torch.zeros(2)}}, path)
    with pytest.raises(InputError, match="has no ema weights, only state_dict"):
        open_checkpoint(path, key=EMA)
    torch.save({"a": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="has no ema weights: it is itself a state_dict"):
        open_checkpoint(path, key=EMA)
