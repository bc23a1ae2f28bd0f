"""Other operating systems, simulated: what macOS lacks is taken away, and then what Windows lacks.

A subprocess starts with a `sitecustomize` that deletes the functions and blocks the modules, before anything of wdport
is imported.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.make import TWO_LEVELS, TWO_LEVELS_SET, make_state, save
from wdport.base import platforms
from wdport.base.platforms import allocate, is_running, lock, physical_bytes, read_at, require_room

ROOT = Path(__file__).parents[2]

MACOS = """
import os, builtins, pathlib, errno
for name in ("posix_fallocate", "posix_fadvise", "O_DIRECT", "preadv", "pwritev", "sched_getaffinity", "memfd_create"):
    if hasattr(os, name):
        delattr(os, name)

def hiding(call):
    def hidden(path, *arguments, **named):
        if isinstance(path, (str, os.PathLike)) and str(path).startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return call(path, *arguments, **named)
    return hidden

os.stat, os.open, builtins.open = map(hiding, (os.stat, os.open, builtins.open))
import io
io.open = builtins.open
"""

WINDOWS = """
import os, signal, sys
for name in ("pread", "preadv", "pwrite", "pwritev", "posix_fallocate", "posix_fadvise", "O_NONBLOCK", "O_NOFOLLOW",
             "O_DIRECTORY", "O_CLOEXEC", "O_DIRECT", "fchmod", "statvfs", "geteuid", "getuid", "fork",
             "sched_getaffinity", "EX_OK"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGPIPE"):
    if hasattr(signal, name):
        delattr(signal, name)
sys.modules["fcntl"] = sys.modules["resource"] = sys.modules["termios"] = None
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "fcntl" else find_spec(name, package)
"""

REFUSED = (
    "error: posix: wdport needs file locks and positional reads, which this system lacks; "
    "use Linux or macOS, or WSL 2 on Windows"
)


def run(folder: Path, system: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "system").mkdir(exist_ok=True)
    (folder / "system" / "sitecustomize.py").write_text(system)
    path = os.pathsep.join([str(folder / "system"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "KERAS_BACKEND": "jax", "WDPORT_COMPILE_CACHE": "off"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("platforms") / "small.ckpt", make_state(TWO_LEVELS))


def test_the_simulations_take_something_away(tmp_path: Path) -> None:
    lacks = "import os; assert not hasattr(os, 'posix_fallocate') and not os.path.exists('/proc/self'); print('mac')"
    assert run(tmp_path, MACOS, "-c", lacks).stdout == "mac\n"
    lacks = "import os, sys; assert not hasattr(os, 'pread')\ntry:\n import fcntl\nexcept ImportError: print('windows')"
    assert run(tmp_path, WINDOWS, "-c", lacks).stdout == "windows\n"


@pytest.mark.parametrize("output", ["out.keras", "out/"])
def test_macos_converts_inspects_and_samples(output: str, checkpoint: Path, tmp_path: Path) -> None:
    done = run(tmp_path, MACOS, "-m", "wdport", "convert", str(checkpoint), "-o", output, *TWO_LEVELS_SET)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(tmp_path, MACOS, "-m", "wdport", "inspect", output)
    assert (done.returncode, done.stderr) == (0, "")
    assert "small.ckpt" in done.stdout or "tensors" in done.stdout
    if output == "out.keras":
        draw = ["sample", output, "-n", "2", "--sampler", "euler", "--steps", "1", "-o", "s.npz"]
        done = run(tmp_path, MACOS, "-m", "wdport", *draw)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "s.npz").stat().st_size
    assert not [name for name in os.listdir(tmp_path) if ".wdport-tmp" in name]


COMMANDS = [
    "convert small.ckpt", "verify small.ckpt small.keras", "record small.ckpt --keras-model x:y", "sample small.keras",
    "export small.keras", "inspect small.ckpt", "map check table.yaml", "selftest",
]  # fmt: skip


def test_windows_is_refused_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, WINDOWS, "-m", "wdport", *COMMANDS[0].split())
    assert (done.returncode, done.stdout, done.stderr) == (5, "", f"{REFUSED}\n")
    code = f"from wdport.cli.main import main; print([main(words.split()) for words in {COMMANDS}])"
    done = run(tmp_path, WINDOWS, "-c", code)
    assert (done.stdout, done.stderr) == (f"{[5] * len(COMMANDS)}\n", f"{REFUSED}\n" * len(COMMANDS))


def test_windows_imports_and_refuses_in_python(checkpoint: Path, tmp_path: Path) -> None:
    """What opens no file works; what does raises the same line, however it is reached."""
    code = f"""
import wdport, pytest_wdport, wdport.recording
import wdport.uses.wavelets, wdport.uses.data
def refused(call):
    try:
        call()
    except wdport.WdportError as error:
        print(type(error).__name__, error)
refused(lambda: wdport.convert({str(checkpoint)!r}))
refused(lambda: wdport.load_model("small.keras"))
from pathlib import Path
from wdport.files.atomic import write_text
from wdport.files.outputs import writable
refused(lambda: write_text(writable(Path("a.txt")), "text"))
"""
    (tmp_path / "small.keras").write_bytes(b"PK")
    done = run(tmp_path, WINDOWS, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"MachineError {REFUSED[7:]}"] * 3
    done = run(tmp_path, WINDOWS, "-m", "wdport", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "convert" in done.stdout


def test_a_place_without_reserved_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems of Linux reserve none either; a full disk is told before anything is written in any case."""

    def refuse(number: int) -> None:
        def call(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "posix_fallocate", call)

    with (tmp_path / "file").open("w+b") as file:
        refuse(errno.EOPNOTSUPP)
        allocate(file.fileno(), 10_000)
        assert os.fstat(file.fileno()).st_size == 10_000
        refuse(errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            allocate(file.fileno(), 10_000)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=512))
    with pytest.raises(OSError, match=r"No space left on device: 513 bytes are needed"):
        require_room(tmp_path, 513)


def test_reads_without_preadv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    monkeypatch.delattr(os, "preadv")
    with (tmp_path / "file").open("rb") as file:
        buffer = bytearray(10)
        assert read_at(file.fileno(), memoryview(buffer), 95) == 5
        assert bytes(buffer[:5]) == bytes(range(95, 100))
        assert read_at(file.fileno(), memoryview(buffer), 100) == 0


def test_processes_locks_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_running(os.getpid())
    assert is_running(1)  # of another user, unless this is root
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not is_running(child.pid)
    assert not is_running(1 << 70)
    assert not is_running(0)
    with (tmp_path / "file").open("w") as one, (tmp_path / "file").open() as other:
        assert lock(one.fileno(), shared=True)
        assert lock(other.fileno(), shared=True)
        assert lock(other.fileno()) is False
    memory = physical_bytes()
    assert memory is not None
    assert memory > 1 << 28
    monkeypatch.delattr(os, "sysconf")
    assert physical_bytes() is None
    assert platforms.CLOEXEC
