"""A temporary folder goes at the end of its process, or at the next one's start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from wdport.files import atomic as written
from wdport.files.atomic import replacing, scratch_folder, write_text
from wdport.files.outputs import writable

KILLED = "import time\nfrom wdport.files.atomic import scratch_folder\nwith scratch_folder() as folder:\n" \
    "    (folder / 'large').write_text('x')\n    print(folder, flush=True)\n    time.sleep(60)"  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_it_is_private_and_goes(place: Path) -> None:
    before = os.umask(0)
    try:
        with scratch_folder() as folder:
            assert folder.parent.stat().st_mode & 0o777 == 0o700
            (folder / "a").mkdir()
    finally:
        os.umask(before)
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes(place: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with scratch_folder():
            assert (left / "large").is_file()  # of a process that runs
        process.send_signal(signal.SIGKILL)
    assert left.is_dir()
    with scratch_folder() as folder:
        assert list(place.iterdir()) == [folder.parent]


def test_it_takes_files_that_are_written_all_or_nothing() -> None:
    with scratch_folder() as folder:
        with replacing(writable(folder / "made.bin")) as (temporary,):
            temporary.write_bytes(b"1")
        assert [path.name for path in folder.iterdir()] == ["made.bin"]


def test_files_in_it_are_not_among_those_that_were_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They go with it, so an interruption does not name them."""
    monkeypatch.setattr(written, "WRITTEN", [])
    with scratch_folder() as folder:
        for path in (folder / "a.json", tmp_path / "b.json"):
            write_text(writable(path), "{}")
            written.WRITTEN.append(path)
        assert written.describe_written() == f"{tmp_path / 'b.json'} was written"
