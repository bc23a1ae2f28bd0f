"""The folder from which an interrupted run resumes: complete parts count; others' and damaged ones are found."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from wdport.base import file_trust as owners
from wdport.base.errors import InputError, MachineError, UsageError, WdportError
from wdport.base.file_trust import distrust
from wdport.models.interface import Array
from wdport.uses.sampling.parts import Parts, read_block

FACTS = {"n": 6, "seed": 0, "chunk": 2}


def block(start: int, count: int = 2) -> dict[str, Array]:
    return {"coefficients": np.arange(start, start + count, dtype=np.float32)[:, None, None] * np.ones((1, 3, 2), "f")}


def saved(folder: Path, *starts: int) -> Path:
    """The output of a run that has saved these blocks beside it."""
    with Parts(folder / "a.npz", FACTS) as parts:
        for start in starts:
            parts.save(start, block(start))
    return folder / "a.npz"


def test_saved_blocks_come_back_in_order(tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", FACTS) as parts:
        assert parts.done == 0
    with Parts(saved(tmp_path, 0, 2, 4), FACTS) as parts:
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
    output = saved(tmp_path, 0)
    with pytest.raises(UsageError, match="parts of another run, with seed 0 instead of 1") as raised:
        Parts(output, {**FACTS, "seed": 1})
    assert "--force" in raised.value.command_line
    with Parts(output, {**FACTS, "seed": 1}, anew=True) as parts:
        assert parts.done == 0


def test_a_folder_without_parts_is_nobodys(tmp_path: Path) -> None:
    for facts in (FACTS, {**FACTS, "seed": 1}):
        with Parts(tmp_path / "a.npz", facts) as parts:
            assert parts.facts == facts


def test_settled_facts_are_taken_over(tmp_path: Path) -> None:
    output = saved(tmp_path, 0)
    with Parts(output, {**FACTS, "chunk": 64}, settled=("chunk",)) as parts:
        assert parts.facts["chunk"] == 2
    with pytest.raises(UsageError, match="with chunk 2 instead of 64"):
        Parts(output, {**FACTS, "chunk": 64})


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
    output = saved(tmp_path, 0, 2)
    next(tmp_path.glob("a.npz.parts/000000000-*.npz")).unlink()
    with pytest.raises(UsageError, match="with seed 0 instead of 1"):
        Parts(output, {**FACTS, "seed": 1})
    with Parts(output, FACTS) as parts:
        parts.save(0, block(0))
        assert parts.done == 4


def test_beginning_anew_keeps_what_would_be_drawn_again(tmp_path: Path) -> None:
    with Parts(saved(tmp_path, 0), FACTS, anew=True) as parts:
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


RUN = {"n": 6, "seed": 0, "batch": 2}
LAYOUT = {"coefficients": ((3, 2), "float32")}
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two parts of a run that was killed, so its lock is still there."""
    with Parts(tmp_path / "a.npz", RUN, layout=LAYOUT) as parts:
        for start in (0, 2):
            parts.save(start, block(start))
    (parts.folder / "lock").touch(0o600)
    return parts.folder


def part(folder: Path, start: int = 0) -> Path:
    return next(folder.glob(f"{start:09d}-*.npz"))


def resume(folder: Path) -> int:
    with Parts(folder.with_suffix(""), RUN, layout=LAYOUT) as parts:
        return parts.done


def refused(folder: Path, said: str) -> None:
    with pytest.raises(WdportError) as raised:
        resume(folder)
    assert said in str(raised.value)
    assert raised.value.exit_code in (2, 3)


def write(file: Path, arrays: Mapping[str, Array]) -> None:
    with file.open("wb") as opened:
        np.savez(opened, **arrays)  # type: ignore[arg-type, unused-ignore]


def planted(folder: Path, arrays: Mapping[str, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the first part, by somebody who knows how its digest is made."""
    part(folder).unlink()
    with monkeypatch.context() as patch:
        patch.setattr("wdport.uses.sampling.parts.unsound", lambda block: 0)
        with Parts(folder.with_suffix(""), RUN) as parts:
            parts.save(0, arrays)


def test_every_changed_byte_is_found(folder: Path) -> None:
    file = part(folder)
    sound = file.read_bytes()
    for at in range(0, len(sound), 7):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        refused(folder, f"{file}: is not what this run wrote; remove it, or start again with force=True")
    file.write_bytes(sound)
    assert resume(folder) == 4


def test_a_part_of_another_run_is_found(folder: Path, tmp_path: Path) -> None:
    """Sound in itself, and of the same name but for its digest."""
    with Parts(tmp_path / "b.npz", {**RUN, "seed": 1}) as other:
        other.save(0, block(7))
    part(folder).unlink()
    shutil.copy(part(other.folder), folder)
    refused(folder, "is not what this run wrote")


def test_a_part_at_another_place_is_found(folder: Path) -> None:
    part(folder).rename(folder / part(folder).name.replace("000000002", "000000003"))
    refused(folder, "holds coefficients of float32 (2, 3, 2) for 3 samples; remove it")


def test_another_batch_is_another_run(folder: Path) -> None:
    """The one settled fact, which is taken from the folder."""
    run = folder / "run.json"
    run.write_text(run.read_text().replace('"batch": 2', '"batch": 4'))
    with pytest.raises(InputError, match="is not what this run wrote"):
        Parts(folder.with_suffix(""), RUN, ("batch",))
    for batch in ("0", "-2", "true", "2.0", '"2"', "null", "1e400"):
        run.write_text(json.dumps(RUN).replace('"batch": 2', f'"batch": {batch}'))
        with pytest.raises(InputError, match=r"run.json: is damaged; remove the folder"):
            Parts(folder.with_suffix(""), RUN, ("batch",))


PLANTED: dict[str, tuple[Callable[[], dict[str, Array]], str]] = {
    "dtype": (lambda: {"coefficients": np.ones((2, 3, 2))},
              "holds coefficients of float64 (3, 2) where this run has coefficients of float32 (3, 2)"),
    "shape": (lambda: {"coefficients": np.ones((2, 3, 3), np.float32)}, "holds coefficients of float32 (3, 3) where"),
    "names": (lambda: {"series": np.ones((2, 3, 2), np.float32)}, "holds no coefficients where this run has"),
    "kind": (lambda: {"coefficients": np.ones((2, 3, 2), np.int32)}, "holds coefficients of int32 (2, 3, 2) for 2"),
    "rows": (lambda: {**block(0), "series": np.ones((3, 3), np.float32)}, "holds series of float32 (3, 3) for 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_other_arrays_are_found(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, said = PLANTED[name]
    planted(folder, arrays(), monkeypatch)
    refused(folder, said)


RUNS: dict[str, Callable[[Path], object]] = {
    "deep": lambda run: run.write_text("[" * 100_000),
    "a list": lambda run: run.write_text("[]"),
    "no text": lambda run: run.write_bytes(b"\xff\xfe"),
    "missing": lambda run: run.unlink(),
    "large": lambda run: run.write_bytes(b" " * (1 << 20) + b"{}"),
    "pipe": lambda run: (run.unlink(), os.mkfifo(run)),
    "link": lambda run: (run.rename(run.with_name("other")), run.symlink_to("other")),
    "endless": lambda run: (run.unlink(), run.symlink_to("/dev/zero")),
    "folder": lambda run: (run.unlink(), run.mkdir()),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_damaged_run_is_refused(folder: Path, name: str) -> None:
    RUNS[name](folder / "run.json")
    refused(folder, "run.json: ")


@pytest.mark.parametrize("name", ["lock", "part"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_only_regular_files_are_opened(folder: Path, name: str, kind: str) -> None:
    file, other = folder / "lock" if name == "lock" else part(folder), folder.parent / "other"
    file.replace(other)
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(other)
    before = other.read_bytes()
    refused(folder, f"{file}: is not a regular file; remove it")
    assert other.read_bytes() == before


def test_a_link_is_no_folder(folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    refused(folder, "is a link to a folder; remove it")


def place(folder: Path, name: str) -> Path:
    return {"folder": folder, "lock": folder / "lock", "run": folder / "run.json", "part": part(folder)}[name]


@pytest.mark.parametrize("name", ["folder", "lock", "run", "part"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_others_may_not_write(folder: Path, name: str, mode: int) -> None:
    file = place(folder, name)
    file.chmod(file.stat().st_mode | mode)
    refused(folder, f"{file}: may be written to by other users; remove ")


@ROOT
@pytest.mark.parametrize("name", ["folder", "lock", "run", "part"])
def test_another_owner_is_refused(folder: Path, name: str) -> None:
    file = place(folder, name)
    os.chown(file, 12345, 12345)
    if name == "folder":
        refused(folder, f"{file}: belongs to another user (id 12345); remove it, or give another name with output=")
    os.chown(folder, 0, 0)
    if name != "folder":
        refused(folder, f"{file}: belongs to another user (id 12345); remove ")


@ROOT
def test_the_owner_of_the_folder_around_is_trusted(folder: Path) -> None:
    """A container's root, in a folder that is mounted from outside: whoever owns it can replace the output as well."""
    for path in (folder.parent, folder, *folder.iterdir()):
        os.chown(path, 12345, 12345)
    assert resume(folder) == 4


def test_a_mask_that_lets_others_write_does_not_matter(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Parts(tmp_path / "a.npz", RUN) as parts:
            parts.save(0, block(0))
        assert resume(parts.folder) == 2
    finally:
        os.umask(before)


def test_a_file_system_without_permissions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There every file has one owner and all bits, so they say nothing; but another owner is another user."""
    folder.chmod(0o777)
    found = folder.stat()
    assert distrust(found, folder.parent) == "may be written to by other users"
    monkeypatch.setattr(owners, "_new_file", lambda folder: found)
    assert distrust(found, folder.parent) is None
    other = os.stat_result([0o777, 0, 0, 1, 54321, 0, 0, 0, 0, 0])
    assert distrust(other, folder.parent) == "belongs to another user (id 54321)"
    monkeypatch.setattr(owners, "_new_file", lambda folder: None)
    assert distrust(found, folder.parent) == "may be written to by other users"


def test_force_does_not_take_another_users_folder(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(InputError, match="may be written to by other users"):
        Parts(folder.with_suffix(""), RUN, anew=True)
    folder.chmod(0o700)
    write(part(folder), {"coefficients": np.full((2, 3, 2), 777.0, np.float32)})
    with Parts(folder.with_suffix(""), RUN, anew=True) as parts:
        assert parts.done == 0


def test_a_part_that_is_drawn_again_replaces_the_other(folder: Path) -> None:
    with Parts(folder.with_suffix(""), RUN, layout=LAYOUT) as parts:
        parts.save(2, block(5))
        assert [b["coefficients"][0, 0, 0] for b in parts.blocks()] == [0.0, 5.0]
    assert len(list(folder.glob("000000002-*"))) == 1


def test_what_is_not_finite_is_counted(folder: Path) -> None:
    odd = block(4, 3)
    odd["coefficients"][1, 0, 0], odd["coefficients"][2] = np.inf, np.nan
    with Parts(folder.with_suffix(""), RUN, layout=LAYOUT) as parts:
        assert parts.unsound == 0
        parts.save(4, odd)
        assert parts.unsound == 2
    with Parts(folder.with_suffix(""), RUN, layout=LAYOUT) as parts:
        assert parts.unsound == 2
