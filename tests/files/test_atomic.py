"""The one writer: a file comes whole or not at all, whoever is interrupted; and nothing else in wdport writes files."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wdport.errors import MachineError
from wdport.files.atomic import is_temporary, replacing, whole_file, write_text
from wdport.files.writable import LONGEST

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError(28, "No space left on device")])
def test_whatever_is_raised_the_old_files_stay(tmp_path: Path, error: Any) -> None:
    for name in ("a.keras", "a.keras.wdport.json"):
        (tmp_path / name).write_text("old")

    def write() -> None:
        with replacing(tmp_path / "a.keras", tmp_path / "a.keras.wdport.json") as made:
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
    with pytest.raises(MachineError, match="could not be written"), replacing(tmp_path / "a", tmp_path / "b") as made:
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
    with whole_file(tmp_path / "a.npz") as file:
        file.write(b"all")
    assert done == [f"sync .a.npz.{os.getpid()}.wdport-tmp.npz", "rename a.npz", f"sync {tmp_path.name}"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_permissions_of_the_old_file_stay(tmp_path: Path, mode: int) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(mode)
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").stat().st_mode & 0o777 == mode
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "b", "new")
    finally:
        os.umask(before)
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o640, "a new file has what the umask leaves"


def test_a_text_goes_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize(
    "name", ["a", "a.npz", "a.weights.h5", "a[1].keras", "line\nbreak.csv", "x" * (LONGEST - 4) + ".npz", "." * LONGEST]
)
def test_leftovers_are_known_by_their_names(tmp_path: Path, name: str) -> None:
    """Of dead processes, of this very file; and the name of a temporary file ends as the file's own."""
    with replacing(tmp_path / name) as (temporary,):
        temporary.write_text("new")
        made = temporary.name
    suffix = re.search(r"(\.weights)?\.[a-z0-9]+$", name)
    assert made.endswith(suffix[0] if suffix else ".wdport-tmp")
    dead, other = (made.replace(f".{os.getpid()}.", ".99999999."), ".b.npz.99999999.wdport-tmp.npz")
    assert is_temporary(dead, re.compile(re.escape(name)))
    assert not is_temporary(other, re.compile(re.escape(name)))
    for each in (dead, other):
        (tmp_path / each).write_text("half")
    with whole_file(tmp_path / name) as file:
        file.write(b"again")
    assert names(tmp_path) == {name, other}


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    """SIGKILL in the middle; what is left goes with the next that writes the file."""
    code = """
import os, signal, sys
from pathlib import Path
from wdport.files.atomic import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (tmp_path / "a.npz").write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.npz")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    assert (tmp_path / "a.npz").read_bytes() == b"old"
    with whole_file(tmp_path / "a.npz") as file:
        file.write(b"new")
    assert names(tmp_path) == {"a.npz"}
    assert (tmp_path / "a.npz").read_bytes() == b"new"


WRITES = re.compile(r"os\.(replace|rename)|fsync|\.(write_text|write_bytes|rename|touch)\Z|mkstemp"
                    r"|NamedTemporaryFile|(np\.|numpy\.)(save\w*)|shutil\.(copy\w*|move)")  # fmt: skip
MODE = re.compile(r"[wax]")
WRITERS = {
    "files/atomic.py": "the writer",
    "recorder.py": "copied on its own into the environments of others",
    "files/keras_files.py": "writes to the name that the writer gives it",
    "conversion/river.py": "writes the manifest to the name that the writer gives it",
    "sampling/parts.py": "writes into the file that the writer opens",
    "parity/repro.py": "writes to the names that the writer gives it",
    "parity/reports/markdown.py": "appends to the summary of a step",
    "parity/selftest/edits.py": "copies of code in a temporary folder",
    "parity/selftest/edit_server.py": "an answer in that folder",
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
    packed_into_an_open_file = {"files/samples.py", "exporting/artefact.py"}
    assert found - packed_into_an_open_file == set(WRITERS)
