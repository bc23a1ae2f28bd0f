"""Unfinished files: their names, who holds them, and what a process that died left.

A temporary file has a random name beside the one that it is to have, and its maker holds a lock (``flock``) on it. So
it is left over when nobody holds it, whatever the process ids: two containers have the same ones. The lock is a shared
one, for HDF5 takes another when the file is read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MARK: Final = ".wdport-tmp"
_UNFINISHED: Final = re.compile(r"\.(?P<finished>.+)\.(?P<token>[0-9a-f]+)\.wdport-tmp.*", re.DOTALL)
_ENDING: Final = re.compile(r"(\.weights)?\.[A-Za-z0-9]{1,12}\Z")
"""What other writers (Keras, matplotlib) read off a file's name."""

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Temporary:
    """An unfinished file, held until it is closed; ``finished`` is the name that it is to have."""

    finished: Path
    path: Path
    descriptor: int

    def is_there(self) -> bool:
        """Whether its name still leads to it."""
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def settle(self) -> None:
        """Bring what was written to the disk, with the permissions of the file that it replaces.

        Raises ``OSError`` where nothing was written, too.
        """
        if not self.is_there() or not os.fstat(self.descriptor).st_size:
            raise OSError(errno.ENODATA, "nothing was written")
        os.fsync(self.descriptor)
        with suppress(FileNotFoundError, PermissionError):  # nothing to replace, or a file system without permissions
            os.fchmod(self.descriptor, stat.S_IMODE(os.lstat(self.finished).st_mode))

    def discard(self) -> None:
        """Remove it, unless it has its name, and let go of it."""
        with suppress(OSError):
            if self.is_there():
                _remove(self.path)
        os.close(self.descriptor)


def make_temporary(finished: Path) -> Temporary:
    """A new empty file; raises ``OSError``."""
    ending = _ENDING.search(finished.name)
    while True:
        name = f".{finished.name}.{secrets.token_hex(8)}{_MARK}{ending[0] if ending else ''}"
        path = finished.with_name(name)
        made = Temporary(finished, path, os.open(path, _NEW, 0o666))
        if _lock(made.descriptor, fcntl.LOCK_SH) is not False and made.is_there():
            return made
        os.close(made.descriptor)  # taken for left over before it was held


def make_temporary_folder(finished: Path) -> Temporary:
    """A new empty folder, held likewise; raises ``OSError``."""
    while True:
        path = finished.with_name(f".{finished.name}.{secrets.token_hex(8)}{_MARK}")
        os.mkdir(path)
        made = Temporary(finished, path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
        if _lock(made.descriptor, fcntl.LOCK_SH) is not False and made.is_there():
            return made
        os.close(made.descriptor)


def remove_leftovers(finished: Path, ours: Callable[[Path], bool] | None = None) -> None:
    """Remove what processes that died left of the file ``finished``, or of the folder, of those that are ``ours``."""
    with suppress(PermissionError):
        for name in os.listdir(finished.parent):
            made = _UNFINISHED.fullmatch(name)
            if made and made["finished"] == finished.name and not _is_running(made["token"]):
                with suppress(OSError):  # another one's, or gone meanwhile
                    _remove_unheld(finished.with_name(name), ours)


def is_temporary(name: str, of: re.Pattern[str]) -> bool:
    """Whether a file of this name is an unfinished one whose finished name matches ``of``."""
    made = _UNFINISHED.fullmatch(name)
    return made is not None and of.fullmatch(made["finished"]) is not None


@contextmanager
def held_folder(folder: Path) -> Iterator[int | None]:
    """The folder held against other writers, and its descriptor; None where it may not be read.

    It holds nobody who does not ask, and leaves nothing behind.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # it may be written to, but not listed
        yield None
        return
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _is_running(token: str) -> bool:
    """Older names have the process id of their maker, who holds no lock."""
    return token.isdecimal() and Path(f"/proc/{token}").exists()


def _remove_unheld(path: Path, ours: Callable[[Path], bool] | None) -> None:
    descriptor = os.open(path, _LOOK)
    try:
        kind = os.fstat(descriptor).st_mode
        wanted = stat.S_ISREG(kind) or (stat.S_ISDIR(kind) and ours is not None and ours(path))
        if wanted and _lock(descriptor, fcntl.LOCK_EX):
            _remove(path)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()


def _lock(descriptor: int, how: int) -> bool | None:
    """Whether it is held now: not if another process holds it; None on a file system without locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
