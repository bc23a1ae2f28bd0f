"""Unfinished and finished files of this process: names, locks, leftovers of processes that died, and a folder for
temporary files.

A temporary file has a random name in the folder of its final one, and the process that writes it holds a lock
(``flock``) on it. So an unlocked file is a leftover; process ids are not used, since two containers may have the same
ones. The lock is shared, because HDF5 takes another one when it reads the file.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wdport.checkpoint.regular_file import require_supported
from wdport.files.defer_signals import deferred_signals
from wdport.platforms import CLOEXEC, DIRECTORY, NOFOLLOW, NONBLOCK, is_running, lock

_MARK: Final = ".wdport-tmp"
_UNFINISHED: Final = re.compile(r"\.(?P<finished>.+)\.(?P<token>[0-9a-f]+)\.wdport-tmp.*", re.DOTALL)
_ENDING: Final = re.compile(r"(\.weights)?\.[A-Za-z0-9]{1,12}\Z")
"""The suffixes from which other writers (Keras, matplotlib) infer the format."""

OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
_FOLDER: Final = os.O_RDONLY | DIRECTORY | NOFOLLOW | CLOEXEC
_LOOK: Final = os.O_RDONLY | NOFOLLOW | NONBLOCK | CLOEXEC


@dataclass(frozen=True)
class Temporary:
    """An unfinished file, locked until it is closed; ``finished`` is its final name."""

    finished: Path
    path: Path
    descriptor: int

    def is_there(self) -> bool:
        """Return whether its name still refers to it."""
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def settle(self) -> None:
        """Sync the file to disk, with the permissions of the file that it replaces, except for writing by other users.

        Also raises ``OSError`` if nothing was written.
        """
        # Another writer may have replaced the file under this name, and the lock would be on a file without a name.
        if not self.is_there() or not os.fstat(self.descriptor).st_size:
            raise OSError(errno.ENODATA, "nothing was written")
        os.fsync(self.descriptor)
        with suppress(FileNotFoundError, PermissionError):  # nothing to replace, or a file system without permissions
            os.fchmod(self.descriptor, stat.S_IMODE(os.lstat(self.finished).st_mode) & ~OTHERS_WRITE)

    def discard(self) -> None:
        """Remove the file, unless it already has its final name, and release it."""
        with suppress(OSError):
            if self.is_there():
                _remove(self.path)
        os.close(self.descriptor)


def make_temporary(finished: Path, folder: bool = False) -> Temporary:
    """Create an empty file, or a ``folder``, that no other user may write to.

    Raises ``OSError``, and :class:`~wdport.errors.MachineError` on Windows.
    """
    require_supported()
    # The temporary name ends with the same suffix, for writers that infer the format from it.
    ending = None if folder else _ENDING.search(finished.name)
    while True:
        name = f".{finished.name}.{secrets.token_hex(8)}{_MARK}{ending[0] if ending else ''}"
        path = finished.with_name(name)
        if folder:
            os.mkdir(path, 0o755)
        temporary = Temporary(finished, path, os.open(path, _FOLDER if folder else _NEW, 0o644))
        if lock(temporary.descriptor, shared=True) is not False and temporary.is_there():
            return temporary
        os.close(temporary.descriptor)  # taken for left over before it was held


def remove_leftovers(finished: Path, ours: Callable[[Path], bool] | None = None) -> None:
    """Remove leftovers of dead processes for the file ``finished``, or for the folder, if they are ``ours``."""
    with suppress(PermissionError):
        for name in os.listdir(finished.parent):
            match = _UNFINISHED.fullmatch(name)
            # The token of an older temporary name, which has no lock, is a process id.
            running = match and match["token"].isdecimal() and is_running(int(match["token"]))
            if match and match["finished"] == finished.name and not running:
                with suppress(OSError):  # another one's, or gone meanwhile
                    _remove_unheld(finished.with_name(name), ours)


def is_temporary(name: str, of: re.Pattern[str]) -> bool:
    """Return whether this is the name of an unfinished file whose final name matches ``of``."""
    match = _UNFINISHED.fullmatch(name)
    return match is not None and of.fullmatch(match["finished"]) is not None


def in_temporary_folder(path: Path) -> bool:
    """Return whether a file lies in an unfinished folder, which goes with it."""
    return any(_UNFINISHED.fullmatch(part) for part in path.parts[:-1])


@contextmanager
def held_folder(folder: Path) -> Iterator[int | None]:
    """Lock the folder against other writers and yield its descriptor; None if it may not be read.

    The lock is advisory and leaves no file.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | DIRECTORY | CLOEXEC)
    except PermissionError:  # it may be written to, but not listed
        yield None
        return
    try:
        lock(descriptor, wait=True)
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_unheld(path: Path, ours: Callable[[Path], bool] | None) -> None:
    descriptor = os.open(path, _LOOK)
    try:
        kind = os.fstat(descriptor).st_mode
        removable = stat.S_ISREG(kind) or (stat.S_ISDIR(kind) and ours is not None and ours(path))
        # The lock is exclusive here, and fails while a writer holds its shared one.
        if removable and lock(descriptor):
            _remove(path)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder in the system's temporary folder, for this user only."""
    place = Path(tempfile.gettempdir(), "wdport")
    with deferred_signals():
        remove_leftovers(place, lambda path: path.lstat().st_uid == os.geteuid())
        temporary = make_temporary(place, folder=True)
    try:
        temporary.path.chmod(0o700)
        inside = temporary.path / "files"  # the folder itself is locked, and whoever writes into a folder locks it
        inside.mkdir()
        yield inside
    finally:
        temporary.discard()


WRITTEN: list[Path] = []


def describe_written() -> str:
    """Return a text such as "a.keras was written"; "nothing was changed" if there are no files or all were removed
    again."""
    paths = [path for path in dict.fromkeys(WRITTEN) if not in_temporary_folder(path)]
    names = [name for name in map(str, paths) if os.path.exists(name)]
    if not names:
        return "nothing was changed"
    return f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} written"


@contextmanager
def track_write(path: Path) -> Iterator[None]:
    """Track a file that another writer renames, such as :mod:`wdport.recorder`."""
    before = _identity(path)
    try:
        yield
    finally:
        if _identity(path) != before:
            WRITTEN.append(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
