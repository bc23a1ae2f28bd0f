"""A file that is written to, or replaced, while it is read: never a mixture, never a word of success."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import wdport
from wdport.base.errors import InputError
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import read_small, unchanged

from .make import SETTINGS, make_state, save


def as_safetensors(path: Path, seed: int = 0) -> None:
    save_file({name: tensor.contiguous() for name, tensor in make_state(seed=seed).items()}, path)


def as_zip(path: Path, seed: int = 0) -> None:
    save(path, make_state(seed=seed))


def as_legacy(path: Path, seed: int = 0) -> None:
    torch.save(make_state(seed=seed), path, _use_new_zipfile_serialization=False)


WRITERS: dict[str, Callable[[Path, int], None]] = {"safetensors": as_safetensors, "zip": as_zip, "legacy": as_legacy}


def overwrite(path: Path, other: Path) -> None:
    """As rsync --inplace does: the same file, other bytes, the same length."""
    size = path.stat().st_size  # torch's old format has addresses in decimal, so files may differ by some bytes
    with path.open("r+b") as file:
        file.write(other.read_bytes()[:size].ljust(size, b"\0"))


def replace(path: Path, other: Path) -> None:
    other.replace(path)


@pytest.mark.parametrize(("form", "change"), [("safetensors", overwrite), ("zip", replace), ("legacy", overwrite)])
def test_changed_in_the_middle_of_a_conversion(form: str, change: Callable[[Path, Path], None], tmp_path: Path) -> None:
    path, other, output = tmp_path / "model.bin", tmp_path / "other.bin", tmp_path / "model.keras"
    WRITERS[form](path, 0)
    WRITERS[form](other, 1)
    wdport.convert(path, output, values=SETTINGS)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("model.keras*")}
    calls = []

    def meanwhile(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            change(path, other)

    with pytest.raises(InputError, match=r"was (changed|replaced) while it was read; run it again"):
        wdport.convert(path, output, values=SETTINGS, force=True, progress=meanwhile)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("model.keras*")} == before
    assert {file.name for file in tmp_path.iterdir()} <= {"model.bin", "other.bin", *before}


@pytest.mark.parametrize("replaced", [False, True])
def test_changed_after_the_last_tensor(replaced: bool, tmp_path: Path) -> None:
    """The hash is of the file that the weights are from."""
    path, other = tmp_path / "model.bin", tmp_path / "other.bin"
    as_safetensors(path)
    as_safetensors(other, 1)
    with open_checkpoint(path) as checkpoint:
        for name in checkpoint.tensors:
            checkpoint.read(name)
        if replaced:
            other.replace(path)
        else:
            os.utime(path, ns=(1, 1))
        with pytest.raises(InputError, match="was replaced" if replaced else "was changed"):
            checkpoint.file_sha256()


def test_a_shard_that_changes(tmp_path: Path) -> None:
    for number in (1, 2):
        save_file({f"t{number}": torch.ones(3)}, tmp_path / f"part{number}.safetensors")
    names = ", ".join(f'"t{number}": "part{number}.safetensors"' for number in (1, 2))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(f'{{"weight_map": {{{names}}}}}')
    with open_checkpoint(index) as checkpoint:
        save_file({"t2": torch.zeros(3)}, tmp_path / "new")
        overwrite(tmp_path / "part2.safetensors", tmp_path / "new")
        assert checkpoint.read("t1").tolist() == [1.0, 1.0, 1.0]
        with pytest.raises(InputError, match=r"part2\.safetensors: t2: was changed"):
            checkpoint.read("t2")
        with pytest.raises(InputError, match=r"part2\.safetensors: was changed"):
            checkpoint.require_unchanged()


def test_for_readers_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    with unchanged(path):
        assert path.read_bytes() == b"one"
    with pytest.raises(Fault, match="was changed"), unchanged(path):
        path.write_bytes(b"other")
    (tmp_path / "new").write_bytes(b"other")
    with pytest.raises(Fault, match="was replaced"), unchanged(path):
        (tmp_path / "new").replace(path)


def test_a_small_file_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    real = os.fdopen

    def late(*arguments: object) -> object:
        opened = real(*arguments)  # type: ignore[call-overload]
        monkeypatch.setattr("wdport.checkpoint.regular_file.state_of", told)
        return opened

    states = []

    def told(descriptor: int) -> object:
        if states:
            path.write_bytes(b"more than that")
        states.append(real_state(descriptor))
        return states[-1]

    from wdport.checkpoint.regular_file import state_of as real_state

    monkeypatch.setattr("wdport.checkpoint.regular_file.os.fdopen", late)
    with pytest.raises(Fault, match="was changed"):
        read_small(path, 100)
