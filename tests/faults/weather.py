"""Faults that come over a forked process: a signal at a step or a time, a full disk, a broken one."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import mmap
import os
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from wdport.cli.signals import ignore_signals

STEPS = mmap.mmap(-1, 8)
"""How many steps the process has taken, for the one that forked it."""

PAGE = 4096
SMALL_DISK = 256 << 20
"""Bytes free on a disk that may be filled."""

CALLS = frozenset([
    "open", "close", "read", "write", "pwrite", "fsync", "replace", "unlink", "rename", "flock", "ftruncate",
    "truncate", "fchmod", "lstat", "flush", "mkdir", "rmdir", "posix_fallocate", "writelines",
])  # fmt: skip


class Fault:
    """No fault at all."""

    killed = broken = False
    brief = False
    """Whether nothing is to be learned from how Python ends, which takes most of the time."""

    @contextlib.contextmanager
    def over(self) -> Iterator[None]:
        """In the process that was forked."""
        yield

    def outside(self, process: int) -> None:
        """In the one that forked it."""

    @contextlib.contextmanager
    def around(self, folder: Path) -> Iterator[None]:
        """While both are there, the forked one writing into ``folder``."""
        yield


def _count() -> int:
    step = struct.unpack("q", STEPS[:])[0] + 1
    STEPS[:] = struct.pack("q", step)
    return step


def steps_taken() -> int:
    """And begin anew."""
    taken: int = struct.unpack("q", STEPS[:])[0]
    STEPS[:] = bytes(8)
    return taken


@dataclass(frozen=True)
class SignalAt(Fault):
    """``number`` right before the call number ``step`` of those that touch files, whoever makes it in Python."""

    number: int
    step: int
    brief = True

    @property
    def killed(self) -> bool:  # type: ignore[override]
        return self.number == signal.SIGKILL

    @contextlib.contextmanager
    def over(self) -> Iterator[None]:
        def hook(frame: FrameType, event: str, called: Any) -> None:
            if event != "c_call" or called.__name__ not in CALLS or isinstance(called.__self__, str):
                return
            if _count() == self.step:
                os.kill(os.getpid(), self.number)

        sys.setprofile(hook)
        try:
            yield
        finally:
            sys.setprofile(None)


@dataclass(frozen=True)
class SignalAfter(Fault):
    """``number`` after ``seconds``, wherever it is."""

    number: int
    seconds: float
    brief = True

    @property
    def killed(self) -> bool:  # type: ignore[override]
        return self.number == signal.SIGKILL

    def outside(self, process: int) -> None:
        time.sleep(self.seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, self.number)


@dataclass(frozen=True)
class SizeLimit(Fault):
    """The kernel refuses to let any file grow beyond ``size`` (``EFBIG``)."""

    size: int

    @contextlib.contextmanager
    def over(self) -> Iterator[None]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))
        yield


@dataclass(frozen=True)
class FullDisk(Fault):
    """``free`` pages are left on the disk of the folder, which must be a small one."""

    free: int

    @contextlib.contextmanager
    def around(self, folder: Path) -> Iterator[None]:
        disk, ballast = os.statvfs(folder), folder / "ballast"
        if disk.f_bavail * disk.f_frsize > SMALL_DISK:
            raise SystemExit(f"{folder} lies on a large disk: mount -t tmpfs -o size=24m tmpfs FOLDER first")
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, (disk.f_bavail - self.free)) * PAGE)
        yield
        ballast.unlink()


@dataclass(frozen=True)
class Refused(Fault):
    """The call number ``step`` of wdport's own writing is refused; those after it too, if it is ``lasting``."""

    code: int
    step: int
    lasting: bool = False
    broken = brief = True

    @contextlib.contextmanager
    def over(self) -> Iterator[None]:
        calls = [(os, name) for name in ("pwrite", "fsync", "replace", "open", "fchmod", "unlink", "posix_fallocate")]
        with contextlib.ExitStack() as stack:
            for module, name in [*calls, (fcntl, "flock")]:
                before = getattr(module, name)
                stack.callback(setattr, module, name, before)
                setattr(module, name, self._refusing(before))
            yield

    def _refusing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def refusing(*given: Any, **options: Any) -> Any:
            caller = sys._getframe(1).f_code.co_filename
            if "/wdport/files/" in caller or "/wdport/recording/" in caller:
                step = _count()
                removes = call.__name__ == "unlink"  # a full disk allows that
                if step == self.step or (self.lasting and step > self.step and not removes):
                    raise OSError(self.code, os.strerror(self.code))
            return call(*given, **options)

        return refusing


@dataclass(frozen=True)
class Outcome:
    """How a process ended, and what it said on standard error; the ``steps`` that it had taken."""

    code: int
    said: str
    steps: int


def forked(act: Callable[[], int], fault: Fault, limit: float = 120.0) -> Outcome:
    """``act`` in a process of its own that ends as any other; it is killed after ``limit`` seconds."""
    steps_taken()
    reads, writes = os.pipe()
    process = os.fork()
    if not process:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(writes, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with fault.over():
            code = act()
            ignore_signals()  # as the command line does
        if fault.brief:
            os._exit(code)
        gc.freeze()
        sys.exit(code)
    os.close(writes)
    timer = threading.Timer(limit, os.kill, (process, signal.SIGABRT))
    timer.start()
    fault.outside(process)
    with os.fdopen(reads, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(process, 0)
    timer.cancel()
    return Outcome(os.waitstatus_to_exitcode(status), said.decode(errors="replace"), steps_taken())
