"""Write files and folders atomically: under a temporary name next to the target, synced, then renamed; and a folder for
temporary files.

An older file is unchanged until the rename, whatever happens before it. An older folder is exchanged for the new one in
a single file-system operation, and then removed.

A temporary file has a random name, and the process that writes it holds a lock (``flock``) on it. So an unlocked file
is a leftover of a process that died; process ids are not used, since two containers may have the same ones. The lock is
shared, because HDF5 takes another one when it reads the file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from wdport.base.errors import MachineError
from wdport.base.platforms import CLOEXEC, DIRECTORY, NOFOLLOW, NONBLOCK, is_running, lock
from wdport.checkpoint.regular_file import require_supported
from wdport.files.defer_signals import deferred_signals
from wdport.files.outputs import UNFINISHED, OutputPath, in_temporary_folder, is_stream

_MARK: Final = ".wdport-tmp"
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


def make_temporary(finished: Path, folder: bool = False, mode: int = 0o755) -> Temporary:
    """Create an empty file, or a ``folder`` with this ``mode``, that no other user may write to.

    Raises ``OSError``, and :class:`~wdport.base.errors.MachineError` on Windows.
    """
    require_supported()
    # The temporary name ends with the same suffix, for writers that infer the format from it.
    ending = None if folder else _ENDING.search(finished.name)
    while True:
        name = f".{finished.name}.{secrets.token_hex(8)}{_MARK}{ending[0] if ending else ''}"
        path = finished.with_name(name)
        if folder:
            os.mkdir(path, mode)
        try:
            descriptor = os.open(path, _FOLDER if folder else _NEW, 0o644)
        except FileNotFoundError:
            if folder:  # taken for left over before it was opened
                continue
            raise
        temporary = Temporary(finished, path, descriptor)
        if lock(temporary.descriptor, shared=True) is not False and temporary.is_there():
            return temporary
        os.close(temporary.descriptor)  # taken for left over before it was held


def remove_leftovers(finished: Path, ours: Callable[[Path], bool] | None = None) -> None:
    """Remove leftovers of dead processes for the file ``finished``, or for the folder, if they are ``ours``."""
    with suppress(PermissionError):
        for name in os.listdir(finished.parent):
            match = UNFINISHED.fullmatch(name)
            # The token of an older temporary name, which has no lock, is a process id.
            running = match and match["token"].isdecimal() and is_running(int(match["token"]))
            if match and match["finished"] == finished.name and not running:
                with suppress(OSError):  # another one's, or gone meanwhile
                    _remove_unheld(finished.with_name(name), ours)


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
        temporary = make_temporary(place, folder=True, mode=0o700)
    try:
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
    """Track a file that another writer renames, such as :mod:`wdport.recording`."""
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


_FIXES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
}


@contextmanager
def replacing(*outputs: OutputPath) -> Iterator[tuple[Path, ...]]:
    """Yield a temporary file for each of ``outputs``, all in one folder, to be written by any means.

    When the block succeeds, the files are synced and renamed to their names, in this order; a replaced file passes
    its permissions on. No signal and no other process that uses this function interrupts the renames. If an exception
    is raised, no temporary file is left; files that a killed process left are removed by the next one that writes the
    same path. Raises :class:`MachineError` if writing fails.
    """
    temporaries: list[Temporary] = []
    try:
        with deferred_signals():
            for output in outputs:
                # A signal between the creation of a file and its entry in the list would leave the file behind.
                remove_leftovers(output.path)
                temporaries.append(make_temporary(output.path))
        yield tuple(temporary.path for temporary in temporaries)
        for temporary in temporaries:
            temporary.settle()
        # As late as possible: syncing may take minutes, in which an input could change.
        for output in outputs:
            output.require_inputs()
        _give_names(temporaries, outputs)
    except OSError as error:
        raise machine_error(outputs[0].path, error) from error
    finally:
        with deferred_signals():
            for temporary in temporaries:
                temporary.discard()


def _give_names(temporaries: Sequence[Temporary], outputs: Sequence[OutputPath]) -> None:
    with held_folder(temporaries[0].finished.parent) as folder, deferred_signals():
        for output in outputs:
            # While the folder is locked: another process may have finished a file of this name in the meantime.
            output.require_new()
        named: list[Path] = []
        try:
            for temporary in temporaries:
                os.replace(temporary.path, temporary.finished)
                named.append(temporary.finished)
            if folder is not None:
                # A rename is durable only once the folder is synced.
                os.fsync(folder)
        except OSError as error:
            if not named:
                raise
            rest = " and ".join(temporary.finished.name for temporary in temporaries[len(named) :])
            fault = f"{rest} could not be" if rest else "its folder could not be synced"
            what = f"was written, but {fault} ({error.strerror or error})"
            raise MachineError(named[0], what, "check the disk and run the same again") from error
        finally:
            WRITTEN.extend(named)


@contextmanager
def whole_file(output: OutputPath) -> Iterator[IO[bytes]]:
    """Yield a file to write, which replaces ``output`` when the block succeeds: see :func:`replacing`."""
    with replacing(output) as (temporary,), temporary.open("wb") as file:
        yield file


def copy_file(source: Path, output: OutputPath) -> None:
    """Copy a file; raises :class:`MachineError` if writing fails."""
    with whole_file(output) as file, source.open("rb") as stream:
        shutil.copyfileobj(stream, file)


def write_text(output: OutputPath, text: str) -> None:
    """Write a text file; a stream (:func:`is_stream`) is written to directly.

    Raises :class:`MachineError` if writing fails.
    """
    path = output.path
    if not is_stream(path):
        with whole_file(output) as file:
            file.write(text.encode())
        return
    output.require_inputs()
    try:
        with path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise machine_error(path, error) from error


def machine_error(path: Path, error: OSError) -> MachineError:
    """Convert an ``OSError`` to a one-line error."""
    fix = _FIXES.get(error.errno or 0, "check the folder and its disk")
    return MachineError(path, f"could not be written ({error.strerror or error})", fix)


_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextmanager
def whole_folder(output: OutputPath, ours: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield an empty folder, which becomes ``output`` when the block succeeds; the caller syncs the files in it.

    An older folder with this name is replaced, so check first that nothing is lost with it; ``ours`` returns whether a
    folder contains only what is written here. If an exception is raised, no temporary folder is left; leftovers of a
    killed process are removed by the next one that writes the same path. Raises :class:`MachineError` if writing fails.
    """
    temporary: Temporary | None = None
    path = output.path
    try:
        with deferred_signals():
            remove_leftovers(path, ours)
            temporary = make_temporary(path, folder=True)
        yield temporary.path
        os.fsync(temporary.descriptor)
        output.require_inputs()
        with held_folder(path.parent) as parent, deferred_signals():
            _give_name(temporary, ours)
            if parent is not None:
                os.fsync(parent)
    except OSError as error:
        raise machine_error(path, error) from error
    finally:
        with deferred_signals():
            if temporary is not None:
                temporary.discard()


def _give_name(temporary: Temporary, ours: Callable[[Path], bool]) -> None:
    """Rename the folder, or exchange it with the older one, which is then discarded instead."""
    if not os.path.lexists(temporary.finished):
        os.rename(temporary.path, temporary.finished)
        WRITTEN.append(temporary.finished)
        return
    # Python has no exchange of two names. `rename` replaces only an empty folder, and removing the older one first
    # would leave none if the process were killed.
    libc = ctypes.CDLL(None, use_errno=True)
    new, old = os.fsencode(temporary.path), os.fsencode(temporary.finished)
    exchange = getattr(libc, "renameat2", None)
    if exchange is None or exchange(_AT_FDCWD, new, _AT_FDCWD, old, _RENAME_EXCHANGE) != 0:
        reason = "this system cannot exchange folders" if exchange is None else os.strerror(ctypes.get_errno())
        what = f"could not be replaced in one step ({reason})"
        raise MachineError(temporary.finished, what, "remove the older folder first, or give another name with `-o`")
    WRITTEN.append(temporary.finished)
    remove_leftovers(temporary.finished, ours)
