"""Start a process of a fresh comparison; confine it before it runs a port.

A confined process has no PyTorch, none of the reference's files, no other programs and no network.

On Linux the kernel enforces it without any privilege, by Landlock (files, signals, other processes) and seccomp
(sockets, and other calls that reach processes). Everywhere, Python's audit hooks refuse the same in Python code, with
errors that name the reason; they do not stop native code.

This module needs only the standard library: the kernel confines the calling thread and those that it starts, so it must
run before numpy and jax start theirs.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from wdport.families.backend import import_less

FRAMEWORKS: Final = ("torch", "torchgen", "functorch", "torchvision", "torchaudio")
"""Packages that are not importable where a port runs alone."""

ROLES: Final = {
    "port": ("port_role", "serve_port"),
    "reference": ("torch_roles", "serve_reference"),
    "layers": ("torch_roles", "serve_task"),
    "names": ("torch_roles", "serve_task"),
    "known faults": ("torch_roles", "serve_task"),
}
"""By role, the module and the function that answers until its input ends."""

_SPAWNS: Final = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty")
_NETWORK: Final = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls of Landlock, on every architecture."""

_MEMORY: Final = ("shm", "mqueue", "hugepages")
"""What holds files in ``/dev``: a process outside could take questions there, and answer them."""

_EXECUTE, _WRITE, _READ, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 14
_CHANGE: Final = sum(1 << bit for bit in (4, 5, 6, 7, 8, 9, 10, 11, 12))
"""Removing and making files and folders."""

_REFER: Final = 1 << 13
"""Moving and linking files between folders."""

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""By machine, as seccomp names it."""

_REFUSED: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "sockets, and io_uring, which opens them too": ((41, 425), (198, 425)),
    "shared memory, semaphores and messages of System V": (
        (29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220), tuple(range(186, 198))),
    "message queues": ((240, 241), (180, 181)),
    "attributes of files": ((188, 189, 190, 197, 198, 199, 463, 466), (5, 6, 7, 14, 15, 16, 463, 466)),
    "keys": ((248, 249, 250), (217, 218, 219)),
    "memory and descriptors of other processes": ((101, 310, 311, 424, 434, 438), (117, 270, 271, 424, 434, 438)),
    "priorities, which others can read": ((141, 251), (140, 30)),
}  # fmt: skip
"""System calls with which a process could ask another one, which is not confined, by what they are for: their numbers
on x86-64 and on aarch64."""

_IGNORED: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "mode and owner of files, also of those outside": ((90, 91, 92, 93, 94, 260, 268, 452), (52, 53, 54, 55, 452)),
    "times of files": ((132, 235, 261, 280), (88,)),
}
"""Calls of that kind which succeed without an effect: code that copies or unpacks a file into its own folder makes them
too."""


def main() -> None:
    """Run the job in the command line's last argument, JSON of :class:`wdport.parity.fresh.process.Worker`.

    What models print goes to standard error.
    """
    job = json.loads(sys.argv[-1])
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG with SIGKILL.
        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # end with the process that started it
    answers = os.fdopen(os.dup(1), "wb")
    # What a model prints must not get between the messages, so standard output becomes standard error.
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ["KERAS_BACKEND"] = "jax"
    import_less()
    enforced = confine(job["denied"], job["folder"]) if job["role"] == "port" else []
    if job["role"] != "port" and sys.platform == "linux":
        _part_from_others()
    sys.argv[1:] = []
    module, function = ROLES[job["role"]]
    getattr(import_module(f"wdport.parity.fresh.{module}"), function)(job, enforced, questions, answers)


def confine(denied: Collection[str], folder: str) -> list[str]:
    """Confine this process, which has only one thread: nothing at or below the ``denied`` paths is readable, files are
    writable only below ``folder``, and devices.

    Returns what the kernel enforces, in words; empty where only Python's audit hooks do.
    """
    real = [os.path.realpath(path) for path in denied]
    enforced = []
    if sys.platform == "linux":
        if _restrict_files(real, os.path.realpath(folder)):
            enforced.append("Landlock")
        if _refuse_calls():
            enforced.append("seccomp")
    _audit(real)
    return enforced


def _audit(denied: Collection[str]) -> None:
    """Refuse imports, files, programs and connections in Python code; a hook cannot be removed."""

    def is_denied(path: object) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        real = os.path.realpath(os.fsdecode(path))
        return any(real == folder or real.startswith(f"{folder}{os.sep}") for folder in denied)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # ModuleNotFoundError, as where PyTorch is not installed: code with an optional import of it still runs.
        if event == "import" and str(arguments[0]).partition(".")[0] in FRAMEWORKS:
            raise ModuleNotFoundError(f"No module named {arguments[0]!r} where the port runs alone", name=arguments[0])
        if event == "open" and is_denied(arguments[0]):
            raise PermissionError(13, "the reference's files are not readable where the port runs alone")
        if event in _SPAWNS:
            raise PermissionError(1, "no other program runs where the port runs alone")
        if event in _NETWORK:
            raise PermissionError(1, "there is no network where the port runs alone")

    sys.addaudithook(hook)


def _restrict_files(denied: Collection[str], folder: str) -> bool:
    """Restrict access to files by Landlock; returns whether the kernel has it."""
    libc = ctypes.CDLL(None, use_errno=True)
    # With the flag LANDLOCK_CREATE_RULESET_VERSION the call returns the version and makes nothing.
    version = libc.syscall(_CREATE, None, 0, 1)
    if version < 1:
        return False
    # A right that the kernel does not know makes the call fail, so each is added only from its version on.
    truncate = _TRUNCATE if version >= 3 else 0
    change = _WRITE | _CHANGE | truncate
    handled = [_EXECUTE | _READ | change, 3 if version >= 4 else 0, 3 if version >= 6 else 0]  # TCP; sockets, signals
    size = 8 * (3 if version >= 6 else 2 if version >= 4 else 1)
    rules = libc.syscall(_CREATE, (ctypes.c_uint64 * 3)(*handled), size, 0)
    if rules < 0:
        return False
    # Landlock only allows; what is denied is everything that no rule covers.
    for path in _beside(denied):
        _allow(libc, rules, path, _READ, _READ)
    _allow(libc, rules, folder, _READ | change, _READ | _WRITE | truncate)
    for name in os.listdir("/dev"):
        if name not in _MEMORY:
            _allow(libc, rules, f"/dev/{name}", _READ | _WRITE | truncate, _READ | _WRITE | truncate)
    return _restrict(libc, rules)


def _restrict(libc: ctypes.CDLL, rules: int) -> bool:
    """Restrict this process to rules of Landlock; returns whether that is so."""
    _forgo_privileges(libc)
    restricted = libc.syscall(_RESTRICT, rules, 0)
    os.close(rules)
    return bool(restricted == 0)


def _forgo_privileges(libc: ctypes.CDLL) -> None:
    """Required without root: otherwise a confined process could run a set-user-ID program."""
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges


def _part_from_others() -> bool:
    """Keep this process from tracing those that it has not started, and from writing into their memory, such as the
    command's: Landlock does, whatever it restricts. Returns whether the kernel can."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Moving a file to another folder is refused unless rules allow it, and the first version has no rule for it.
    if libc.syscall(_CREATE, None, 0, 1) < 2:
        return False
    rules = libc.syscall(_CREATE, (ctypes.c_uint64 * 1)(_REFER), 8, 0)
    if rules < 0:
        return False
    _allow(libc, rules, "/", _REFER, _REFER)
    return _restrict(libc, rules)


class _AllowRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


def _allow(libc: ctypes.CDLL, rules: int, path: str, below: int, file: int) -> None:
    """Allow ``below`` at and below a folder, or ``file`` for a file; what cannot be opened stays refused."""
    try:
        descriptor = os.open(path, getattr(os, "O_PATH") | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    rule = _AllowRule(below if os.path.isdir(path) else file, descriptor)
    libc.syscall(_ADD, rules, 1, ctypes.byref(rule), 0)
    os.close(descriptor)


def _beside(denied: Collection[str]) -> Iterator[str]:
    """The files and folders that together contain everything but ``denied``. Symbolic links are left out: what they
    lead to is allowed or not by itself."""
    closed = {Path(path) for path in denied}
    above = {folder for path in closed for folder in path.parents}
    for folder in above or {Path("/")}:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for sibling in (folder / name for name in names):
            if sibling not in closed and sibling not in above and not sibling.is_symlink():
                yield str(sibling)


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filters", ctypes.POINTER(_Filter)))


def _refuse_calls() -> bool:
    """Refuse the calls of :data:`_REFUSED` by seccomp, and ignore those of :data:`_IGNORED`; returns whether that is
    possible here."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    architecture = _ARCHITECTURES[platform.machine()]
    refused, ignored = (
        [number for calls in group.values() for number in calls[platform.machine() == "aarch64"]]
        for group in (_REFUSED, _IGNORED)
    )
    load, equal, above, give = 0x20, 0x15, 0x35, 0x06
    refuse, ignore, allow = 0x00050001, 0x00050000, 0x7FFF0000  # EPERM; 0, as if it had succeeded
    # BPF: load the architecture, then the number of the call. Refused are calls of another architecture, these numbers,
    # and those from 0x40000000, which on x86-64 (x32) name the same calls again. A jump counts from the next line.
    count = len(refused) + len(ignored)
    lines = [(load, 0, 0, 4), (equal, 0, count + 2, architecture), (load, 0, 0, 0),
             *((equal, count - index, 0, number) for index, number in enumerate(refused)),
             *((equal, count - index + 2, 0, number) for index, number in enumerate(ignored, len(refused))),
             (above, 0, 1, 0x40000000), (give, 0, 0, refuse), (give, 0, 0, allow), (give, 0, 0, ignore)]  # fmt: skip
    program = _Program(len(lines), (_Filter * len(lines))(*(_Filter(*line) for line in lines)))
    libc = ctypes.CDLL(None, use_errno=True)
    _forgo_privileges(libc)
    return bool(libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0)
