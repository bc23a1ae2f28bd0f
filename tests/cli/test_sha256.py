"""``--sha256`` holds the first file of every verb to a digest that somebody knows."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.bad.ground import ground
from tests.checkpoint.test_safetensors import A, B, sharded
from tests.command import Cli
from wdport.base.errors import InputError, UsageError
from wdport.checkpoint.expected_hash import require_sha256, require_undamaged
from wdport.cli.main import main
from wdport.files.inputs import InputFiles

SET = ["--set", "num_heads=2", "--set", "wavelet=db2", "--set", "seq_len=24"]
DRAW = ["--sampler", "ddim", "--steps", "2", "-o", "out.npz"]
COMMANDS = {
    "convert": (["good.ckpt", "-o", "out.keras", *SET], "good.ckpt"),
    "inspect": (["good.ckpt"], "good.ckpt"),
    "verify": (["good.ckpt", "good.keras"], "good.ckpt"),
    "record": (["tests.user_model:small", "good.ckpt", "-o", "out.npz"], "good.ckpt"),
    "sample": (["good.keras", *DRAW], "good.keras"),
    "export": (["good.keras", "-o", "out.stablehlo"], "good.keras"),
}
RUN = ("convert", "inspect", "sample")
"""Verbs that are quick enough to be run to their end."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("good.ckpt", "good.keras"):
        shutil.copy(ground() / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def digest(path: Path | str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.mark.parametrize("verb", COMMANDS)
def test_another_file_is_refused(verb: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, held = COMMANDS[verb]
    before = sorted(folder.iterdir())
    assert main([verb, *words, "--sha256", "0" * 64]) == 3
    told = f"error: {held}: has the SHA-256 {digest(held)[:16]}..., not {'0' * 16}...; "
    assert capsys.readouterr().err.startswith(told)
    assert main([verb, *words, "--sha256", "abc"]) == 2
    assert "invalid SHA-256 'abc'; give its 64 hexadecimal digits" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("verb", RUN)
def test_the_file_itself_is_read(verb: str, folder: Path) -> None:
    words, held = COMMANDS[verb]
    assert main([verb, *words, "--sha256", digest(held).upper()]) == 0


def test_a_recording_stands_for_no_checkpoint(folder: Path, cli: Cli) -> None:
    """The converted file is then the first."""
    shown = cli("verify", "good.keras", "--against", "none.npz", "--sha256", digest("good.ckpt"), code=3)
    assert shown.err.startswith("error: good.keras: has the SHA-256 ")


def test_it_is_looked_at_first(folder: Path, cli: Cli) -> None:
    Path("bad.pt").write_bytes(b"hello")
    assert "has the SHA-256" in cli("inspect", "bad.pt", "--sha256", "0" * 64, code=3).err


def test_shards_and_folders(tmp_path: Path) -> None:
    """The hash is the one that manifests state: of the index and its shards."""
    index = sharded(tmp_path, {"a": "x.safetensors", "b": "y.safetensors"}, x=A, y=B)
    whole = hashlib.sha256(index.read_bytes() + A + B).hexdigest()
    for path in (index, tmp_path):
        require_sha256(path, whole)
        with pytest.raises(InputError, match="has the SHA-256"):
            require_sha256(path, digest(index))


def test_no_hash_is_none() -> None:
    require_sha256("/nowhere", None)
    with pytest.raises(InputError, match="no such file"):
        require_sha256("/nowhere", "0" * 64)
    with pytest.raises(UsageError):
        require_sha256("/nowhere", "g" * 64)


def test_the_hash_is_that_of_the_manifest(folder: Path) -> None:
    assert main(["convert", "good.ckpt", "-o", "out.keras", *SET]) == 0
    manifest = json.loads(Path("out.keras.wdport.json").read_text())
    require_sha256("good.ckpt", manifest["source"]["sha256"])
    require_sha256("out.keras", manifest["output"]["sha256"])


def test_a_recording_is_made_of_sound_files_alone(folder: Path, cli: Cli) -> None:
    """torch reads a flipped bit without a word."""
    data = bytearray(Path("good.ckpt").read_bytes())
    data[len(data) // 2] ^= 1
    Path("bad.ckpt").write_bytes(data)
    torch.load("bad.ckpt", weights_only=True)
    assert "the bytes do not match their CRC" in cli("record", "tests.user_model:small", "bad.ckpt", code=3).err
    require_undamaged("good.ckpt")
    for name, content in {"of.npz": bytes(data), "text.pt": b"hello", "empty.pt": b""}.items():
        Path(name).write_bytes(content)
        require_undamaged(name)  # left to whoever reads it


def test_a_change_that_no_status_shows(folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """As through a memory map: the file is hashed again after it has been read."""
    path, expected = folder / "good.ckpt", digest("good.ckpt")
    real = InputFiles.check

    def late(inputs: InputFiles, require: Callable[[], object]) -> None:
        real(inputs, require)
        status, data = path.stat(), bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1  # in a tensor, which is not read here
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    monkeypatch.setattr(InputFiles, "check", late)
    ended = cli("inspect", "good.ckpt", "--sha256", expected, code=3)
    assert ended.out == ""
    assert f"has the SHA-256 {digest('good.ckpt')[:16]}..., not {expected[:16]}..." in ended.err
