"""What opening and reading touch, what they cost, and what happens when the file changes meanwhile."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from wdport.base.errors import InputError, MachineError, UsageError
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.tensor import TensorRef

from .forge import archive


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    path.write_bytes(archive())
    return path


def test_opening_and_reading_touch_nothing_else(tmp_path: Path, reads: list[tuple[int, int]]) -> None:
    path = tmp_path / "model.pt"
    torch.save({"big": torch.zeros(1_000_000), "small": torch.ones(3)}, path)
    with open_checkpoint(path) as checkpoint:
        assert sum(length for _, length in reads) < 5000
        reads.clear()
        checkpoint.read("small")
        assert [length for _, length in reads] == [12]
        reads.clear()
        checkpoint.read("big")
        assert sum(length for _, length in reads) == 4_000_000, "one pass"


def test_a_shared_storage_is_checked_once(tmp_path: Path, reads: list[tuple[int, int]]) -> None:
    path = tmp_path / "model.pt"
    base = torch.arange(1000.0)
    torch.save({"a": base[:10], "b": base[10:20], "all": base}, path)
    with open_checkpoint(path) as checkpoint:
        reads.clear()
        checkpoint.read("a")
        assert sum(length for _, length in reads) == 4000 + 40
        reads.clear()
        assert checkpoint.read("b").tolist() == list(range(10, 20))
        assert sum(length for _, length in reads) == 40


def test_the_hash_of_a_storage_that_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"a": torch.arange(8 << 20, dtype=torch.int32)}, path)
    part = np.empty(1 << 20, np.uint8)
    with open_checkpoint(path) as checkpoint, checkpoint.hashed() as running:
        for first in range(0, 8 << 20, 1 << 18):
            checkpoint.read_run("a", first, part.data)
            running.settle()
        assert running.hexdigest() == checkpoint.file_sha256()


def test_a_part_of_a_damaged_storage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"a": torch.arange(1000.0)[:10]}, path)
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(999).tobytes())] ^= 1
    path.write_bytes(content)
    with open_checkpoint(path) as checkpoint, pytest.raises(InputError, match="CRC"):
        checkpoint.read("a")


def test_memory_is_one_storage(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(1000, 4000), "h": torch.zeros(4_000_000, dtype=torch.bfloat16)}, path)
    with open_checkpoint(path) as checkpoint:
        for name, factor in (("w", 1.1), ("h", 1.6)):
            tracemalloc.start()
            result = checkpoint.read(name)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < factor * result.nbytes


def test_the_result_is_owned(good: Path) -> None:
    with open_checkpoint(good) as checkpoint:
        first = checkpoint.read("w")
        first[:] = 7
        assert checkpoint.read("w")[0, 0] == 0.0
    assert first[0, 0] == 7.0


def test_cut_short_while_open(good: Path) -> None:
    with open_checkpoint(good) as checkpoint:
        os.truncate(good, 100)
        with pytest.raises(InputError, match="became shorter"):
            checkpoint.read("w")
        with pytest.raises(InputError, match="became shorter"):
            checkpoint.file_sha256()


def test_replaced_while_open(good: Path) -> None:
    """The open file stays the one that was parsed."""
    with open_checkpoint(good) as checkpoint:
        other = good.with_name("other")
        other.write_bytes(b"x" * 5000)
        other.replace(good)
        assert checkpoint.read("w")[1, 2] == 5.0


def test_overwritten_while_open(good: Path) -> None:
    with open_checkpoint(good) as checkpoint:
        before = good.stat()
        with good.open("r+b") as file:
            file.write(b"\0" * good.stat().st_size)
        with pytest.raises(InputError, match="was changed while it was read"):
            checkpoint.read("w")
        os.utime(good, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(InputError, match="CRC"):
            checkpoint.read("w")


def test_reading_fails_in_the_machine(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with open_checkpoint(good) as checkpoint:
        monkeypatch.setattr("wdport.checkpoint.source.os.preadv", failing)
        with pytest.raises(MachineError, match="Input/output error"):
            checkpoint.read("w")


def test_short_reads_are_continued(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv
    monkeypatch.setattr("wdport.checkpoint.source.os.preadv", lambda fd, views, at: real(fd, [views[0][:3]], at))
    with open_checkpoint(good) as checkpoint:
        assert checkpoint.read("w")[1, 2] == 5.0


def test_no_memory(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise MemoryError

    with open_checkpoint(good) as checkpoint:
        monkeypatch.setattr("wdport.checkpoint.source.np.empty", failing)
        with pytest.raises(MachineError, match="MiB of memory"):
            checkpoint.read("w")


def test_wrong_calls(good: Path) -> None:
    with open_checkpoint(good) as checkpoint:
        with pytest.raises(UsageError, match="no tensor of that name"):
            checkpoint.read("v")
        with pytest.raises(UsageError, match="not a tensor of this checkpoint"):
            checkpoint.read_ref("w")
        assert isinstance(checkpoint.tree, dict)
        ref = checkpoint.tree["w"]
        assert isinstance(ref, TensorRef)
        assert (checkpoint.read_ref(ref) == checkpoint.read("w")).all()
    checkpoint.close()
    with pytest.raises(UsageError, match="closed"):
        checkpoint.read("w")
