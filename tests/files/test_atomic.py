"""The one writer: a file comes whole or not at all, whoever is interrupted; and nothing else in wdport writes files."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from wdport.base.errors import MachineError
from wdport.files.atomic import make_temporary, remove_leftovers, replacing, whole_file, write_text
from wdport.files.outputs import LONGEST, is_temporary, writable

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError(28, "No space left on device")])
def test_whatever_is_raised_the_old_files_stay(tmp_path: Path, error: Any) -> None:
    for name in ("a.keras", "a.keras.wdport.json"):
        (tmp_path / name).write_text("old")

    def write() -> None:
        with replacing(writable(tmp_path / "a.keras"), writable(tmp_path / "a.keras.wdport.json")) as made:
            for file in made:
                file.write_text("new")
            raise error

    with pytest.raises(MachineError if isinstance(error, OSError) else error):
        write()
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == {
        "a.keras": "old", "a.keras.wdport.json": "old"}  # fmt: skip


def test_a_file_that_was_not_written_leaves_both_old_ones(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old")
    with (
        pytest.raises(MachineError, match="could not be written"),
        replacing(writable(tmp_path / "a"), writable(tmp_path / "b")) as made,
    ):
        made[0].write_text("new")
    assert {(tmp_path / name).read_text() for name in names(tmp_path)} == {"old"}


def test_a_file_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its folder after that: in the order in which the disk has to learn of them."""
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(opened: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{opened}')).name}")
        sync(opened)

    def replaced(one: Path, other: Path) -> None:
        done.append(f"rename {other.name}")
        replace(one, other)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with whole_file(writable(tmp_path / "a.npz")) as file:
        file.write(b"all")
    assert done[1:] == ["rename a.npz", f"sync {tmp_path.name}"]
    assert re.fullmatch(r"sync \.a\.npz\.[0-9a-f]{16}\.wdport-tmp\.npz", done[0])


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o400])
def test_permissions_of_the_old_file_stay_except_for_writing_by_others(tmp_path: Path, mode: int) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(mode)
    write_text(writable(tmp_path / "a"), "new")
    assert (tmp_path / "a").stat().st_mode & 0o777 == mode & ~0o022


@pytest.mark.parametrize(("mask", "mode"), [(0o027, 0o640), (0, 0o644), (0o077, 0o600)])
def test_a_new_file_has_what_the_umask_leaves_and_no_other_user_may_write(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_text(writable(tmp_path / "b"), "new")
    finally:
        os.umask(before)
    assert (tmp_path / "b").stat().st_mode & 0o777 == mode


def test_a_link_that_came_meanwhile_is_not_followed(tmp_path: Path) -> None:
    """One that is there when a verb begins is refused: `tests/cli/test_links.py`."""
    (tmp_path / "real").write_text("old")
    with whole_file(writable(tmp_path / "link")) as file:
        file.write(b"new")
        (tmp_path / "link").symlink_to("real")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "old"


@pytest.mark.parametrize(
    "name", ["a", "a.npz", "a.weights.h5", "a[1].keras", "line\nbreak.csv", "x" * (LONGEST - 4) + ".npz", "." * LONGEST]
)
def test_leftovers_are_known_by_their_names(tmp_path: Path, name: str) -> None:
    """Of dead processes, of this very file; and the name of a temporary file ends as the file's own."""
    with replacing(writable(tmp_path / name)) as (temporary,):
        temporary.write_text("new")
        made = temporary.name
    suffix = re.search(r"(\.weights)?\.[a-z0-9]+$", name)
    assert made.endswith(suffix[0] if suffix else ".wdport-tmp")
    token = re.findall(r"\.([0-9a-f]{16})\.wdport-tmp", made)[-1]
    dead, older, other = (made.replace(token, "0" * 16), made.replace(token, "99999999"), f".b.npz.{token}.wdport-tmp")
    assert is_temporary(dead, re.compile(re.escape(name)))
    assert not is_temporary(other, re.compile(re.escape(name)))
    for each in (dead, older, other):
        (tmp_path / each).write_text("half")
    with whole_file(writable(tmp_path / name)) as file:
        file.write(b"again")
    assert names(tmp_path) == {name, other}


def test_what_is_written_by_somebody_is_not_left_over(tmp_path: Path) -> None:
    """Though its maker has the same process id, in another container, say; the lock tells."""
    with whole_file(writable(tmp_path / "a")) as one:
        one.write(b"one")
        with whole_file(writable(tmp_path / "a")) as other:
            other.write(b"other")
        assert (tmp_path / "a").read_bytes() == b"other"
    assert (tmp_path / "a").read_bytes() == b"one"
    older = tmp_path / f".a.{os.getppid()}.wdport-tmp"
    older.write_text("of a wdport that holds no lock and still runs")
    write_text(writable(tmp_path / "a"), "new")
    assert names(tmp_path) == {"a", older.name}


def test_what_is_planted_under_such_a_name_stays(tmp_path: Path) -> None:
    """And is not waited for."""
    (tmp_path / "precious").write_text("mine")
    planted = [tmp_path / f".a.{i:016x}.wdport-tmp" for i in range(3)]
    planted[0].symlink_to(tmp_path / "precious")
    os.mkfifo(planted[1])
    planted[2].mkdir()
    write_text(writable(tmp_path / "a"), "new")
    assert names(tmp_path) == {"a", "precious", *(each.name for each in planted)}
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_name_that_is_taken_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it guessed."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".a.00.wdport-tmp").symlink_to(tmp_path / "precious")
    monkeypatch.setattr("secrets.token_hex", lambda _: "00")
    with pytest.raises(MachineError, match="File exists"):
        write_text(writable(tmp_path / "a"), "new")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_file_that_is_removed_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, removed = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not removed:
            removed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            os.unlink(removed[0])
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    made = make_temporary(tmp_path / "a")
    assert str(made.path) != removed[0]
    assert made.is_there()
    made.discard()
    assert names(tmp_path) == set()


def test_a_folder_that_is_removed_before_it_is_opened_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir, removed = os.mkdir, []

    def early(path: Path, mode: int) -> None:
        mkdir(path, mode)
        if not removed:
            removed.append(path)
            remove_leftovers(tmp_path / "a", lambda _: True)

    monkeypatch.setattr(os, "mkdir", early)
    made = make_temporary(tmp_path / "a", folder=True)
    assert made.path != removed[0]
    assert names(tmp_path) == {made.path.name}
    made.discard()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(("step", "said"), [
    (0, r"a: could not be written \("), (1, r"a: was written, but b could not be \("),
    (2, r"a: was written, but its folder could not be synced \("),
])  # fmt: skip
def test_an_error_between_the_names_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, said: str, code: int
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old")
    calls = iter(range(5))

    def refusing(call: Any, *given: Any) -> None:
        if next(calls) == step:
            raise OSError(code, os.strerror(code))
        call(*given)

    replace, sync = os.replace, os.fsync

    def synced(descriptor: int) -> None:
        refusing(sync, descriptor) if stat.S_ISDIR(os.fstat(descriptor).st_mode) else sync(descriptor)

    monkeypatch.setattr(os, "replace", lambda *given: refusing(replace, *given))
    monkeypatch.setattr(os, "fsync", synced)
    with pytest.raises(MachineError, match=said):
        _pair(tmp_path, "new")
    texts = [(tmp_path / name).read_text() for name in ("a", "b")]
    assert texts == ["new"] * step + ["old"] * (2 - step)
    assert names(tmp_path) == {"a", "b"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_does_not_come_between_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    replace, before = os.replace, signal.signal(number, signal.default_int_handler)

    def interrupted(*given: Any) -> None:
        signal.raise_signal(number)
        replace(*given)

    monkeypatch.setattr(os, "replace", interrupted)
    monkeypatch.setattr("wdport.files.atomic.WRITTEN", written := [])
    try:
        with pytest.raises(KeyboardInterrupt):
            _pair(tmp_path, "new")
    finally:
        signal.signal(number, before)
    assert names(tmp_path) == {"a", "b"}
    assert written == [tmp_path / "a", tmp_path / "b"]


def test_two_writers_do_not_mix_their_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits with its names until the first has given both."""
    replace, order = os.replace, []
    other = threading.Thread(target=lambda: _pair(tmp_path, "other"))

    def slow(one: Path, two: Path) -> None:
        order.append(one.read_text())
        if len(order) == 1:
            other.start()
            time.sleep(0.3)
        replace(one, two)

    monkeypatch.setattr(os, "replace", slow)
    _pair(tmp_path, "one")
    other.join()
    assert order == ["one", "one", "other", "other"]


def _pair(folder: Path, text: str) -> None:
    with replacing(writable(folder / "a"), writable(folder / "b")) as made:
        for file in made:
            file.write_text(text)


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    """SIGKILL in the middle; what is left goes with the next that writes the file."""
    code = """
import os, signal, sys
from pathlib import Path
from wdport.files.atomic import whole_file
from wdport.files.outputs import writable
with whole_file(writable(Path(sys.argv[1]))) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (tmp_path / "a.npz").write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.npz")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    assert (tmp_path / "a.npz").read_bytes() == b"old"
    with whole_file(writable(tmp_path / "a.npz")) as file:
        file.write(b"new")
    assert names(tmp_path) == {"a.npz"}
    assert (tmp_path / "a.npz").read_bytes() == b"new"


WRITES = re.compile(r"os\.(replace|rename)|fsync|\.(write_text|write_bytes|rename|touch)\Z|mkstemp"
                    r"|NamedTemporaryFile|(np\.|numpy\.)(save\w*)|shutil\.(copy\w*|move)")  # fmt: skip
MODE = re.compile(r"[wax]")
WRITERS = {
    "files/atomic.py": "the writer of files and folders",
    "files/safetensors_writer.py": "writes to the name that its caller has of that writer",
    "files/orbax_folder.py": "writes to the folder that the writer gives it",
    "files/npz_file.py": "writes to the name that the writer gives it",
    "recording/recording_writer.py": "copied on its own into the environments of others",
    "files/keras_file.py": "writes to the name that the writer gives it",
    "parity/proving/proof.py": "writes a table and random weights into a temporary folder",
    "uses/training/initial.py": "writes random weights into a temporary folder",
    "conversion/convert.py": "writes the manifest to the name that the writer gives it",
    "uses/sampling/parts.py": "writes into the file that the writer opens",
    "cli/signals.py": "opens standard streams that are closed",
    "uses/cli/codec.py": "writes to the name that the writer gives it",
    "uses/cli/generate.py": "writes to the name that the writer gives it",
    "uses/training/run_state.py": "writes to the name that the writer gives it",
    "files/sealed_archive.py": "writes to the name that the writer gives it",
    "uses/masked_lm/port.py": "Keras names the folder, which it packs into its archive",
    "files/animation.py": "writes to the name that the writer gives it",
    "parity/repro.py": "writes to the names that the writer gives it",
    "parity/reports/markdown.py": "appends to the summary of a step",
    "uses/exporting/isolated.py": "results in the temporary folder of its process",
    "uses/exporting/verification.py": "inputs in that folder",
}
"""Every module that opens, renames or syncs a file to write, and why it may."""


def writing_calls(path: Path) -> list[str]:
    """The calls of a module that write files."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        modes = [mode for mode in modes if len(mode) <= 3]
        opens = called.rpartition(".")[2] in ("open", "File", "ZipFile") and any(map(MODE.search, modes))
        if opens or (WRITES.search(called) and called != "write_text"):
            found.append(called)
    return found


def test_nothing_else_writes_files() -> None:
    found = {str(path.relative_to(ROOT / "wdport")) for path in (ROOT / "wdport").rglob("*.py") if writing_calls(path)}
    packed_into_an_open_file = {"files/samples_writer.py", "uses/exporting/artifact.py"}
    assert found - packed_into_an_open_file == set(WRITERS)


CHECKS = {"files/outputs.py", "files/model_target.py", "files/locked_folder.py"}
"""Modules that check paths, or hold the folder that they are in."""


def test_nothing_else_says_that_a_path_may_be_written() -> None:
    """The writers take an ``OutputPath``, which mypy requires, so a verb writes only what was checked."""
    made = re.compile(r"\bOutputPath\(")
    paths = (ROOT / "wdport").rglob("*.py")
    found = {str(path.relative_to(ROOT / "wdport")) for path in paths if made.search(path.read_text(encoding="utf-8"))}
    assert found == CHECKS


def test_a_file_that_another_process_writes_meanwhile_is_kept(tmp_path: Path) -> None:
    ours, theirs = (writable(tmp_path / "a", force=False) for _ in "ab")
    write_text(theirs, "theirs")
    with pytest.raises(MachineError, match="was written by another process meanwhile"):
        write_text(ours, "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "theirs"
    write_text(writable(tmp_path / "a"), "forced")
