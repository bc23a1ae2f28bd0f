"""The folder from which an interrupted run resumes: what is complete counts, another run's parts do not."""

from __future__ import annotations

import errno
import os
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from wdport.errors import InputError, MachineError, UsageError
from wdport.sampling.parts import Parts, read_block

FACTS = {"n": 6, "seed": 0, "chunk": 2}


def block(start: int, count: int = 2) -> dict[str, np.ndarray]:
    return {"coefficients": np.arange(start, start + count)[:, None, None] * np.ones((1, 3, 2), np.float32)}


def test_saved_blocks_come_back_in_order(tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        assert parts.done == 0
        for start in (0, 2, 4):
            parts.save(start, block(start))
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        assert parts.done == 6
        assert [b["coefficients"][0, 0, 0] for b in parts.blocks()] == [0.0, 2.0, 4.0]
        parts.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_comes_after_a_gap_or_is_unfinished_does_not_count(tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        for start in (0, 4):
            parts.save(start, block(start))
        made = next(parts.folder.glob("000000000-*.npz")).name
        (parts.folder / f".{made}.1.wdport-tmp.npz").write_bytes(b"half")  # of a process number in use
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        assert parts.done == 2
        assert not list(parts.folder.glob("*wdport-tmp*"))
        assert len(list(parts.blocks())) == 1


def test_another_runs_parts_are_refused(tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        parts.save(0, block(0))
    with pytest.raises(UsageError, match="parts of another run, with seed 0 instead of 1") as raised:
        Parts(tmp_path / "a.npz", {**FACTS, "seed": 1})
    assert "--force" in raised.value.command_line
    with Parts(tmp_path / "a.npz", {**FACTS, "seed": 1}, anew=True) as parts:
        assert parts.done == 0


def test_a_folder_without_parts_is_nobodys(tmp_path: Path) -> None:
    for facts in (FACTS, {**FACTS, "seed": 1}):
        with Parts(tmp_path / "a.npz", facts) as parts:
            assert parts.facts == facts


def test_settled_facts_are_taken_over(tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        parts.save(0, block(0))
    with Parts(tmp_path / "a.npz", {**FACTS, "chunk": 64}, settled=("chunk",)) as parts:
        assert parts.facts["chunk"] == 2
    with pytest.raises(UsageError, match="with chunk 2 instead of 64"):
        Parts(tmp_path / "a.npz", {**FACTS, "chunk": 64})


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", FACTS), pytest.raises(MachineError, match="another process is writing to it"):
        Parts(tmp_path / "a.npz", FACTS)


def test_damage_is_named(tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        parts.save(0, block(0))
        (file,) = parts.folder.glob("*.npz")
        file.write_bytes(file.read_bytes()[:100])
        with pytest.raises(InputError, match=r"[0-9a-f]{64}.npz: is not what this run wrote; remove it"):
            list(parts.blocks())
    with pytest.raises(InputError, match=r"not what this run wrote; remove it, or start again with force=True"):
        Parts(tmp_path / "a.npz", FACTS)
    with Parts(tmp_path / "a.npz", FACTS, anew=True) as parts:  # the refusal above let go of the folder
        assert parts.done == 0
        parts.save(0, block(0))
        (parts.folder / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run.json: is damaged"):
        Parts(tmp_path / "a.npz", FACTS)
    (parts.folder / "run.json").unlink()
    with pytest.raises(InputError, match=r"run.json: is damaged"):
        Parts(tmp_path / "a.npz", FACTS)
    with Parts(tmp_path / "a.npz", FACTS, anew=True) as parts:
        assert parts.done == 0


def test_what_comes_after_a_gap_is_still_another_runs(tmp_path: Path) -> None:
    """The first part was damaged and removed: with another seed, what is left must not be resumed from."""
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        for start in (0, 2):
            parts.save(start, block(start))
        next(parts.folder.glob("000000000-*.npz")).unlink()
    with pytest.raises(UsageError, match="with seed 0 instead of 1"):
        Parts(tmp_path / "a.npz", {**FACTS, "seed": 1})
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        parts.save(0, block(0))
        assert parts.done == 4


def test_beginning_anew_keeps_what_would_be_drawn_again(tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        parts.save(0, block(0))
    with Parts(tmp_path / "a.npz", FACTS, anew=True) as parts:
        assert parts.done == 2


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "a.npz.parts").mkdir()
    thesis = tmp_path / "a.npz.parts" / "thesis.tmp"
    thesis.write_text("years of work")
    for seed in (0, 1):
        with Parts(tmp_path / "a.npz", {**FACTS, "seed": seed}, anew=True) as parts:
            parts.save(0, block(0))
    parts.remove()
    assert list(parts.folder.iterdir()) == [thesis]


@pytest.mark.parametrize("call", ["whole_file", "open_private"])
def test_a_full_disk_leaves_no_folder_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"wdport.files.locked_folder.{call}", full)
    with pytest.raises(MachineError, match="could not be written"):
        Parts(tmp_path / "a.npz", FACTS)
    assert list(tmp_path.iterdir()) == []


def test_blocks_that_no_run_writes(tmp_path: Path) -> None:
    """With the right digest in their names."""
    series = np.zeros((2, 3), np.float32)
    for save, said in ((partial(np.savez_compressed, series=series), "is compressed"), (np.savez, "holds no arrays"),
                       (partial(np.save, arr=series), "holds no arrays")):  # fmt: skip
        file = BytesIO()
        save(file)
        file.seek(0)
        with pytest.raises(InputError, match=f"^a.npz: {said}; remove it$"):
            read_block(file, Path("a.npz"), 2, {}, "remove it")
